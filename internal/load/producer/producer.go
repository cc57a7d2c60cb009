// Package producer owns the sending end of a load: events to a gateway's back
// end, straight into a Redis log, or through any HTTP API. It owns neither the
// rate nor the numbering of events. Its invariant: an event counts as accepted
// only when the other side has said so, and as refused only when it has said
// no or was never asked.
package producer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"
)

// An Event is one to be published. Its bytes are only read during Publish.
type Event struct {
	Device  string // "*" for every device
	Payload []byte // a JSON object
}

// An Outcome is what became of one event.
type Outcome uint8

// The outcomes.
const (
	Unknown  Outcome = iota // it was sent, and no answer came
	Accepted                // the other side has it
	Refused                 // the other side said no, or couldn't be asked
)

// A Sender publishes over one connection, which it opens when it needs it. It
// is used by one goroutine at a time.
type Sender interface {
	// Publish sends the events in one request and sets the outcome of each.
	// The error is the first that a Refused or Unknown one stands for.
	Publish(ctx context.Context, events []Event, outcomes []Outcome) error
	Close()
}

// requestTimeout is how long an answer may take before it is Unknown.
const requestTimeout = 30 * time.Second

// A link is a connection that is opened on demand and kept.
type link struct {
	address string
	tls     *tls.Config // nil for a plain connection
	conn    net.Conn
}

// newLink is to a URL's host. port is for a URL without one.
func newLink(u *url.URL, port string, secure bool) link {
	l := link{address: net.JoinHostPort(u.Hostname(), port)}
	if u.Port() != "" {
		l.address = net.JoinHostPort(u.Hostname(), u.Port())
	}
	if secure {
		l.tls = &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12}
	}
	return l
}

// open returns whether the connection is new.
func (l *link) open(ctx context.Context) (fresh bool, err error) {
	if l.conn != nil {
		return false, nil
	}
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	if l.tls != nil {
		l.conn, err = (&tls.Dialer{NetDialer: dialer, Config: l.tls}).DialContext(ctx, "tcp", l.address)
	} else {
		l.conn, err = dialer.DialContext(ctx, "tcp", l.address)
	}
	if err != nil {
		l.conn = nil // a tls.Dialer's may be a typed nil
		return false, fmt.Errorf("reaching %s to publish: %w", l.address, err)
	}
	return true, nil
}

func (l *link) drop() {
	if l.conn != nil {
		l.conn.Close()
		l.conn = nil
	}
}

// setAll sets the outcome of all events.
func setAll(outcomes []Outcome, o Outcome) {
	for i := range outcomes {
		outcomes[i] = o
	}
}

var errNotAnswered = errors.New("the connection ended before the answer")
