// Package client is a device's end of Downlink: it keeps one event stream
// open, or asks by long polls, reconnects, resumes where it left off, and keeps
// the cursor (Client); or takes the connections of gateways that dial the device
// (Receiver). It owns no connection pool and no log. Its invariant: the cursor moves past an event only
// after the handler has finished it, so each event is handled at least once,
// and whatever can't be resumed is announced by a resync.
package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"downlink/internal/backoff"
	"downlink/internal/frame"
)

// Defaults and bounds.
const (
	// DefaultSilence is three keep-alives of a gateway with default settings.
	DefaultSilence = 60 * time.Second
	// DefaultMaxEventBytes is far over a gateway's default of 1 MiB.
	DefaultMaxEventBytes = frame.DefaultMaxBlock

	defaultRetry = 3 * time.Second // until the gateway has said another
	minRetry     = 100 * time.Millisecond
	maxRetry     = time.Hour   // a gateway may not put a device to sleep for good
	maxBackoff   = time.Minute // beside the delay that the gateway asked for
)

// Version is what the client tells the gateway in "Downlink-Client: go/…".
const Version = "1"

// A Client says whom to connect to and as what. Don't change it during Run.
type Client struct {
	// URL of the gateway, such as "https://push.example.com". The client asks
	// for the path "events" below it, or "poll"; a query is kept.
	URL string
	// Device is the device ID where the gateway runs without authentication;
	// elsewhere leave it empty: there it comes from the Token.
	Device string
	// Token is sent as "Authorization: Bearer …" if not empty. It is not sent
	// on to another host by a redirect.
	Token string
	// Cursors keeps the cursor; nil keeps it only during one Run. A store
	// belongs to one device and to one Run at a time.
	Cursors Store
	// Earliest asks a gateway, if there is no cursor yet, for all that its
	// window still holds instead of a resync.
	Earliest bool
	// Poll asks for events by long polls instead of keeping a stream open, for
	// networks that hold streams back. The guarantees are the same.
	Poll bool
	// HTTPClient is used for all requests; nil means one with the library's
	// defaults. Its Timeout must be 0, because it would cut the stream.
	HTTPClient *http.Client
	// Silence is how long the gateway may send nothing, not even a keep-alive,
	// before the connection counts as dead: three of the gateway's keep-alives.
	// With Poll it counts from when an answer is due.
	// 0 means DefaultSilence.
	Silence time.Duration
	// MaxEventBytes bounds one event in memory; 0 means DefaultMaxEventBytes.
	// A larger one ends Run with ErrEventTooLarge.
	MaxEventBytes int
}

// An Event is what a producer sent.
type Event struct {
	// ID is the event's entry ID. It is a text; compare it by equality only.
	ID string
	// Type is the producer's; "message" if there was none.
	Type string
	// Data is the payload. CR LF and CR in it have become LF, where it came in a
	// stream.
	Data string
	// Key is what a producer that pushed the event past the log called it; such
	// an event has no ID.
	Key string
}

// A Resync says that nobody can prove that the device missed nothing.
type Resync struct {
	// ID is the position from which live events continue.
	ID string
	// Reason is "no-cursor" (first connection), "window-expired",
	// "invalid-cursor", "log-rewound", "log-uncertain", "groups-changed",
	// "event-too-large", or one that this version doesn't know.
	Reason string
}

// A Status is a change of the connection.
type Status struct {
	// Connected says that a stream has begun, or that a first poll was answered;
	// the other fields are empty then.
	Connected bool
	// Err is why there is no stream; nil if the gateway ended it in order.
	Err error
	// Wait is how long the client waits before it tries again.
	Wait time.Duration
}

// A Handler is what a device does. Its functions are called one at a time, in
// the stream's order, on Run's goroutine; the next frame waits for each. A
// handler that takes longer than the gateway's write timeout may cost the
// connection, never an event.
type Handler struct {
	// Event handles one event; required. After it has returned nil the event
	// is committed and doesn't come again, except after a crash right then:
	// let it be harmless twice. An error ends Run, and the event comes again
	// in the next Run.
	Event func(context.Context, Event) error
	// Resync fetches the device's full state. It is called after the delay
	// that the gateway asked for, and again with growing delays until it
	// returns nil; later frames wait. nil means that there is no state to fetch.
	Resync func(context.Context, Resync) error
	// Status is told of every change of the connection, for logs; may be nil.
	Status func(Status)
}

// Run connects and stays connected until the context ends, whose error it then
// returns, or until going on is useless: an error that wraps ErrUnauthorized,
// ErrRevoked, ErrRefused, ErrContentType, ErrEventTooLarge, an error of the
// event handler, or one of the cursor store. Everything else is tried again:
// after the delay that the gateway asked for, with jitter, and after repeated
// failures up to a minute more. It starts no goroutine that outlives it.
func (c *Client) Run(ctx context.Context, h Handler) error {
	r, err := c.newRun(h)
	if err != nil {
		return err
	}
	defer r.http.CloseIdleConnections()
	err = r.loop(ctx)
	if unsaved := r.cursor.flush(); unsaved != nil {
		return errors.Join(err, unsaved)
	}
	return err
}

var (
	errURL     = errors.New("client: URL must be an absolute http or https URL, such as https://push.example.com")
	errHandler = errors.New("client: Handler.Event is missing")
	errToken   = errors.New("client: Token contains a character that can't travel in a header; often a line end from the file it was read from")
	errTimeout = errors.New("client: HTTPClient.Timeout must be 0, it would cut every stream; Silence finds dead connections")
)

func (c *Client) newRun(h Handler) (*run, error) {
	if h.Event == nil {
		return nil, errHandler
	}
	if headerSafe(c.Token) != c.Token {
		return nil, errToken
	}
	// The parser's error would repeat the URL, which may hold a password.
	u, err := url.Parse(c.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, errURL
	}
	if u.Path == "" {
		u.Path = "/"
	}
	if c.Poll {
		u = u.JoinPath("poll")
	} else {
		u = u.JoinPath("events")
	}
	if c.Device != "" {
		q := u.Query()
		q.Set("device", c.Device)
		u.RawQuery = q.Encode()
	}
	hc, err := httpClient(c.HTTPClient)
	if err != nil {
		return nil, err
	}
	r := &run{desk: desk{handler: h}, http: hc, url: u, token: c.Token, earliest: c.Earliest, poll: c.Poll, silence: c.Silence}
	if r.silence <= 0 {
		r.silence = DefaultSilence
	}
	r.parser.MaxBlock = c.MaxEventBytes
	if r.cursor, err = newKeeper(c.Cursors); err != nil {
		return nil, err
	}
	r.parser.Reset(r.cursor.now.ID)
	return r, nil
}

// httpClient is a copy of given, with a rule for redirects if it has none.
func httpClient(given *http.Client) (*http.Client, error) {
	var hc http.Client
	if given != nil {
		hc = *given
	}
	if hc.Timeout != 0 {
		return nil, errTimeout
	}
	if hc.Transport == nil {
		if t, ok := http.DefaultTransport.(*http.Transport); ok {
			hc.Transport = t.Clone() // its connections end with Run
		}
	}
	if hc.CheckRedirect == nil {
		hc.CheckRedirect = checkRedirect
	}
	return &hc, nil
}

// checkRedirect follows ten redirects and never from https to http: the token
// would travel in the clear.
func checkRedirect(next *http.Request, via []*http.Request) error {
	if len(via) >= 10 {
		return errors.New("the gateway redirects in a loop")
	}
	if next.URL.Scheme != "https" && via[len(via)-1].URL.Scheme == "https" {
		return errors.New("the gateway redirects from https to http")
	}
	return nil
}

// spread is d and up to a quarter more: never earlier than asked, and devices
// that were cut off together don't come back together.
func spread(d time.Duration) time.Duration {
	return d + backoff.Backoff{Base: d / 4, Max: d / 4}.Delay(0)
}
