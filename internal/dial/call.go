package dial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coder/websocket"

	"downlink/internal/door"
	"downlink/internal/event"
	"downlink/internal/lease"
	"downlink/internal/session"
)

// steps are how many steps a dial has that each may take DialTimeout: finding the
// address, connecting, TLS, and the upgrade.
const steps = 4

// errNoHello: the device began otherwise.
var errNoHello = errors.New("the device's first message isn't its hello")

// errOlder: the device is another member's.
var errOlder = errors.New("the device knows a newer owner than this member")

// errRevoked: nobody may send to the device.
var errRevoked = errors.New("the device is revoked")

// dial opens a WebSocket to the device and joins it with a session. Without an
// error it counts among the engine's sockets until it was served.
func (s *socket) dial(l lease.Lease) (*call, Result, error) {
	e := s.holding.engine
	if e.opts.Revoked(s.device.ID) {
		return nil, FailedOwner, errRevoked
	}
	if !e.takeSocket() {
		return nil, FailedLimit, errFull
	}
	c, result, err := s.open(l)
	if err != nil {
		e.sockets.Add(-1)
	}
	return c, result, err
}

func (s *socket) open(l lease.Lease) (*call, Result, error) {
	o := &s.holding.engine.opts
	header := s.holding.engine.greeting(l)
	header.Set(deviceHeader, s.device.ID)
	ctx, cancel := context.WithTimeout(s.ctx, steps*o.DialTimeout)
	defer cancel()
	ws, answer, err := websocket.Dial(ctx, s.device.URL, &websocket.DialOptions{ //nolint:bodyclose // "You never need to close resp.Body yourself"
		HTTPClient: named(o.Client(s.device.Credential), s.device.URL), HTTPHeader: header, Subprotocols: []string{Subprotocol},
	})
	switch {
	case err != nil && answer == nil:
		return nil, FailedReach, withoutURL(err)
	case err != nil && answer.StatusCode == http.StatusConflict:
		s.holding.engine.outranked(s.holding.shard, answer.Header.Get(generationHeader))
		return nil, FailedOlder, errOlder
	case err != nil:
		return nil, FailedAnswer, fmt.Errorf("the device answered %d, and doesn't begin a WebSocket: %w", answer.StatusCode, errors.Unwrap(err))
	}
	c := &call{socket: s, ws: ws, said: l.Generation, heard: make(chan error, 1)}
	if ws.Subprotocol() != Subprotocol {
		c.part(errMessage)
		return nil, FailedAnswer, errors.New("the device began a WebSocket without the subprotocol " + Subprotocol)
	}
	ws.SetReadLimit(maxMessage)
	err = c.greet(l)
	switch {
	case c.outranked(err):
		return nil, FailedOlder, errOlder
	case err != nil:
		return nil, FailedHello, err
	}
	return c, Opened, nil
}

// greet hears the device's hello, joins the shard where it says, and welcomes it.
func (c *call) greet(l lease.Lease) error {
	s, o := c.socket, &c.socket.holding.engine.opts
	ctx, cancel := context.WithTimeout(s.ctx, o.DialTimeout)
	defer cancel()
	h, err := c.hear(ctx)
	if err != nil {
		c.part(err)
		return err
	}
	text := welcome(l, o.Member, s.device.Groups, o.Keepalive)
	start, err := h.start(door.GroupsValue(s.device.Groups), func() (event.ID, bool, error) { return s.holding.kept(ctx, s.device.ID) })
	err = cmp.Or(context.Cause(s.ctx), err) // what we wished for counts first
	if err == nil {
		err = c.welcome(text)
	}
	if err != nil {
		c.part(err)
		return err
	}
	c.session = session.New(s.device.ID, s, &o.Session)
	c.session.Know(session.Facts{Since: time.Now(), Credential: session.Dialled})
	if err := c.session.Attach(o.Log.Of(s.device.ID), s.device.Groups, start); err != nil {
		c.part(err)
		return err
	}
	if o.Revoked(s.device.ID) {
		c.session.End(session.Revoked) // it was, while the dial was under way
	}
	return nil
}

// welcome answers the device's hello. A link that ends meanwhile doesn't cut it: the
// device is to hear why it is left.
func (c *call) welcome(text []byte) error {
	ctx, cancel := context.WithTimeout(c.socket.cut, c.socket.holding.engine.opts.DialTimeout)
	defer cancel()
	return c.ws.Write(ctx, websocket.MessageText, text)
}

// hear reads the device's first message, which has to be its hello.
func (c *call) hear(ctx context.Context) (hello, error) {
	kind, text, err := c.ws.Read(ctx)
	if err != nil {
		return hello{}, fmt.Errorf("the device didn't say hello: %w", err)
	}
	m, err := parse(text)
	if err != nil || kind != websocket.MessageText {
		return hello{}, errMessage
	}
	if m.Hello == nil {
		return hello{}, errNoHello
	}
	return *m.Hello, nil
}

// named is a client that asks for what stands in the inventory: the library turns
// ws into http, and one of them may be allowed without the other.
func named(c *http.Client, text string) *http.Client {
	scheme, _, _ := strings.Cut(text, ":")
	again := *c
	again.Transport = asScheme{c.Transport, scheme}
	return &again
}

type asScheme struct {
	http.RoundTripper
	scheme string
}

func (a asScheme) RoundTrip(r *http.Request) (*http.Response, error) {
	u := *r.URL
	u.Scheme = a.scheme
	r = r.WithContext(r.Context())
	r.URL = &u
	return a.RoundTripper.RoundTrip(r)
}

// withoutURL is the reason of a failed request without its URL, in which somebody
// may have put a secret.
func withoutURL(err error) error {
	if outer, ok := errors.AsType[*url.Error](err); ok {
		return outer.Err
	}
	return err
}
