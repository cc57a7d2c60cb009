// Package throttle is for programs that let others in, or start work, and have
// to do less of it while what they depend on is short of room: it keeps at hand
// what a governor says, which is a gateway of Downlink or "downlink governor".
// It decides nothing: how many may come in is the caller's own arithmetic with
// the ratio. Its invariant: asking costs one atomic load and never waits, and
// while the governor doesn't answer, or not credibly, its last word stands.
package throttle

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	mathrand "math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Defaults.
const (
	DefaultRefresh = 10 * time.Second
	DefaultTimeout = 2 * time.Second
	// DefaultLever is who may come in.
	DefaultLever = "admission"
)

// Options say whom to ask, and how often.
type Options struct {
	// URL of the governor, such as "http://127.0.0.1:9095"; or of the back-end
	// port of a gateway, which has a governor built in.
	URL string
	// Token is sent as "Authorization: Bearer …" if not empty. It is sent to
	// nobody else: redirects aren't followed.
	Token string
	// Lever is which of its ratios is meant; empty means DefaultLever.
	Lever string
	// Initial is the ratio before the governor has answered for the first time;
	// 0 means 1, which holds nobody back.
	Initial float64
	// Refresh is how often the governor is asked, give or take a tenth; 0 means
	// DefaultRefresh. Before its first answer it is asked every second.
	Refresh time.Duration
	// Timeout of one question; 0 means DefaultTimeout.
	Timeout time.Duration
	// HTTPClient is used for all questions, as it is; nil means one of the
	// package's own.
	HTTPClient *http.Client
	// Use says how much of what the lever lets in is in use here, such as how many
	// users are inside. It is called before each question, and told to "downlink
	// governor", which adds up what all say: a fall counts from there then, if that
	// is less than what is allowed, and so is felt at once. All processes of all
	// programs that ask one governor have it, or none; a gateway's own governor
	// doesn't take it.
	Use func() float64
	// Logger is told when the governor ceases to answer, and when it does again;
	// nil means that nobody is.
	Logger *slog.Logger
}

// A State is what is known of a lever.
type State struct {
	// Ratio is what part of its full work the caller should do: 1 is all of it.
	Ratio float64
	// Maximum is what that means in Unit, where the governor was told what 1 stands
	// for; else 0.
	Maximum float64
	Unit    string
	// Signal is by which the ratio is below 1, and Why says it in a sentence.
	Signal, Why string
	// Unsure says that the governor itself lacks a fresh reading of one of the
	// signals: the ratio doesn't rise until it has one.
	Unsure bool

	// Answered is when the governor answered last; zero: it never has.
	Answered time.Time
	// Age is how long ago that was, or how long it has been asked in vain.
	Age time.Duration
	// Stale says that three answers in a row are missing. The ratio stands all the
	// same.
	Stale bool
	// Err says why the last question has no answer; nil if it has.
	Err error
}

// A Client asks in the background. Make it with New, and Close it. Safe for
// concurrent use.
type Client struct {
	// Set at construction.
	opts  Options
	http  *http.Client
	name  string // by which Use is told from that of others
	began time.Time
	stop  context.CancelFunc
	ended chan struct{}

	known atomic.Pointer[State] // Age and Stale aren't filled in

	asking sync.Mutex // held while a question is under way
}

var (
	errURL   = errors.New("throttle: Options.URL must be an absolute http or https URL, such as http://127.0.0.1:9095")
	errToken = errors.New("throttle: Options.Token contains a character that can't travel in a header; often a line end from the file it was read from")
	errRange = errors.New("throttle: Options.Initial must be 0 (for 1), or more and at most 1; Refresh and Timeout must not be negative")
)

// New begins to ask. It doesn't wait for an answer: Ratio is Options.Initial
// until then. An error means that the options can't be used.
func New(o Options) (*Client, error) {
	// The parser's error would repeat the URL, which may hold a password.
	u, err := url.Parse(o.URL)
	switch {
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "":
		return nil, errURL
	case strings.ContainsFunc(o.Token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return nil, errToken
	case !(o.Initial >= 0 && o.Initial <= 1) || o.Refresh < 0 || o.Timeout < 0:
		return nil, errRange
	}
	o.URL = strings.TrimRight(o.URL, "/") + path
	fill(&o.Lever, DefaultLever)
	fill(&o.Initial, 1)
	fill(&o.Refresh, DefaultRefresh)
	fill(&o.Timeout, DefaultTimeout)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, stop := context.WithCancel(context.Background())
	c := &Client{opts: o, http: o.HTTPClient, name: rand.Text(), began: time.Now(), stop: stop, ended: make(chan struct{})}
	if c.http == nil {
		c.http = ownClient()
	}
	c.known.Store(&State{Ratio: o.Initial})
	go c.run(ctx)
	return c, nil
}

func fill[T comparable](v *T, otherwise T) {
	var none T
	if *v == none {
		*v = otherwise
	}
}

// Ratio is what part of its full work the caller should do, as the governor said
// last: more than 0, and at most 1. It is meant for every request.
func (c *Client) Ratio() float64 { return c.known.Load().Ratio }

// State is all that is known, for logs, metrics and health.
func (c *Client) State() State {
	s := *c.known.Load()
	since := s.Answered
	if since.IsZero() {
		since = c.began
	}
	s.Age = time.Since(since)
	s.Stale = s.Age > 3*c.opts.Refresh+c.opts.Timeout
	return s
}

// Refresh asks now, and waits for the answer: at the start of a program that
// would rather not begin with Options.Initial. After an error the last word stands.
func (c *Client) Refresh(ctx context.Context) error { return c.ask(ctx) }

// Close ends the questions. Ratio goes on to say what it said last.
func (c *Client) Close() {
	c.stop()
	<-c.ended
	if c.opts.HTTPClient == nil {
		c.http.CloseIdleConnections()
	}
}

// firstTries is how often a governor is asked that has never answered.
const firstTries = time.Second

func (c *Client) run(ctx context.Context) {
	defer close(c.ended)
	for {
		_ = c.ask(ctx) // the state has it
		wait := c.opts.Refresh
		if c.known.Load().Answered.IsZero() {
			wait = min(wait, firstTries)
		}
		// Spread, or the instances of a program that were started together ask together.
		wait = time.Duration(float64(wait) * (0.9 + 0.2*mathrand.Float64())) //nolint:gosec // no secret
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// ask puts one question, and notes what comes of it.
func (c *Client) ask(ctx context.Context) error {
	c.asking.Lock()
	defer c.asking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	before := *c.known.Load()
	now, err := c.fetch(ctx)
	if errors.Is(err, context.Canceled) { // nobody wants to know any more
		return err
	}
	if err != nil {
		now = before
		now.Err = err
	} else {
		now.Answered = time.Now()
	}
	c.known.Store(&now)
	switch {
	case err != nil && before.Err == nil:
		c.opts.Logger.Warn("the governor doesn't say what it should; its last ratio stands", "ratio", now.Ratio, "error", err)
	case err == nil && before.Err != nil:
		c.opts.Logger.Warn("the governor answers again", "ratio", now.Ratio)
	}
	return err
}
