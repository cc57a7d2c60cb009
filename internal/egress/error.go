package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"net/textproto"
	"strings"
	"sync/atomic"
)

// A Stage is a step on the way to a device.
type Stage string

// The stages, in their order. At each of them nothing has been sent yet.
const (
	Policy     Stage = "policy"     // the rules forbid it
	Credential Stage = "credential" // what should be shown isn't known
	Resolve    Stage = "resolve"    // the name has no address
	Connect    Stage = "connect"    // no address of it can be reached
	TLS        Stage = "tls"        // the handshake failed, or the device isn't who it should be
)

// An Error says at which step a device wasn't reached. Nothing was sent.
type Error struct {
	Stage   Stage
	Timeout bool // the step took longer than allowed
	Err     error
}

func (e *Error) Error() string { return string(e.Stage) + ": " + e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

var errURL = errors.New("the URL isn't one that can be dialled")

// Told is an error of a call, for people, without what the other end has said: a
// device that only echoes would have us repeat the URL that it was asked for, or
// its own bearer token. What net/http and the like repeat stands in quotes, or in
// brackets.
func Told(err error) error {
	if _, ours := errors.AsType[*Error](err); ours || errors.Is(err, io.EOF) {
		return err
	}
	if _, system := errors.AsType[*net.OpError](err); system {
		return err
	}
	if _, line := errors.AsType[textproto.ProtocolError](err); line {
		return errHeader
	}
	text := err.Error()
	if i := strings.IndexAny(text, "\"[{"); i >= 0 {
		return errors.New(strings.TrimRight(text[:i], " :=") + " …")
	}
	return err
}

var errHeader = errors.New("the answer's header can't be understood")

// A Progress says how far a call has come. Safe for concurrent use.
type Progress struct {
	ctx   context.Context // of the call
	stage atomic.Pointer[Stage]
}

type progressKey struct{}

// Track is ctx for a call whose steps are to be known: a call that ends by its
// time limit fails with the context's error, which doesn't say where it was.
func Track(ctx context.Context) (context.Context, *Progress) {
	p := &Progress{ctx: ctx}
	return context.WithValue(ctx, progressKey{}, p), p
}

// Stage is the step that is, or was, under way; empty if none was begun, because
// a connection was there.
func (p *Progress) Stage() Stage {
	if s := p.stage.Load(); s != nil {
		return *s
	}
	return ""
}

// Reset begins anew: a call is tried again on another connection.
func (p *Progress) Reset() { p.stage.Store(nil) }

func (p *Progress) enter(s Stage) {
	if p != nil {
		p.stage.Store(&s)
	}
}

// fail makes an error of a step, and says whether it was the clock. The call's
// own end counts: the context of a dial doesn't have its deadline.
func (p *Progress) fail(s Stage, err error) *Error {
	if known, ok := errors.AsType[*Error](err); ok {
		return known
	}
	timeout := errors.Is(err, context.DeadlineExceeded)
	if n, ok := errors.AsType[net.Error](err); ok {
		timeout = timeout || n.Timeout()
	}
	if p != nil && errors.Is(p.ctx.Err(), context.DeadlineExceeded) {
		timeout, err = true, context.DeadlineExceeded
	}
	return &Error{Stage: s, Timeout: timeout, Err: err}
}
