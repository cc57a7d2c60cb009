// Package fleet owns the connections of many devices to one event-stream
// server: opening them at a bounded rate, reading them, and being the kinds of
// clients that a server has trouble with. It owns neither what the events mean
// nor when which device connects. Its invariant: each Connect of a device is
// answered by exactly one call of Opened or Failed, and each Opened by exactly
// one of Closed, unless the whole fleet is closed.
//
// On Linux few loops around epoll drive all plain connections, so that the
// generator stays lighter than the server beside it. Elsewhere, and for https,
// a goroutine drives each connection behind the same interface.
package fleet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"downlink/internal/load/wire"
)

// An Observer is told what happens to devices. It is called from several
// goroutines, but for one lane from one at a time; device n is in lane
// n % Lanes. None of its methods may block.
type Observer interface {
	// Opened: a device's connection has been answered with status 200.
	// took is the time since the connection was begun.
	Opened(device int, took time.Duration)
	// Failed: a device's connection couldn't be opened.
	Failed(device int, err error)
	// Event: a device received an event at a time in ns since 1970.
	Event(device int, e *wire.Event, at int64)
	// Closed: a device's connection has ended; err is nil if by Disconnect.
	Closed(device int, err error)
}

// A Manner is how a device behaves once its stream is open.
type Manner uint8

// The manners. All but Proper are what operators meet in the field.
const (
	Proper    Manner = iota
	Asleep           // reads nothing more
	Slow             // reads Options.ReadRate bytes a second
	Resetting        // resets the connection after a while, and comes back; this and what follows each at its own time
	HalfClose        // ends its sending side, as broken middle boxes do
	Rubbish          // sends bytes after its request
)

// Options are a fleet's settings. All are required unless said otherwise.
type Options struct {
	Address    netip.AddrPort
	TLS        *tls.Config      // nil for plain connections
	Sources    []netip.Addr     // local addresses, by turns; empty: the system's choice
	Devices    int              // number of devices
	Lanes      int              // goroutines that read, on Linux without TLS
	Connecting int              // connections that may be opening at once
	Rate       float64          // connections begun per second; 0 for no bound
	Timeout    time.Duration    // for opening a connection
	Manner     func(int) Manner // of a device; nil: all are Proper
	ReadRate   int              // bytes a second of Slow devices
	Patience   time.Duration    // how long on average a Resetting device stays, and one stays away that was cut off for its manners; 0 without such
	KeepID     bool             // keep each device's last event ID
	Portable   bool             // a goroutine for each connection, on Linux too

	// Request appends a device's request. id is its last event ID and valid
	// during the call.
	Request func(b []byte, device int, id []byte) []byte
	// Raw is told each piece of a stream, its head included; may be nil.
	Raw func(device int, piece []byte)

	Observer Observer
}

// A driver moves the bytes of connections. Its methods don't block and may be
// called at the same time.
type driver interface {
	connect(device int)
	disconnect(device int)
	wake(device int)
	// do calls f for one lane after another, as the Observer is called for it.
	do(f func(lane int))
	// close ends all connections without a call of Closed, and returns when
	// nothing runs any more.
	close()
}

// ErrTimeout is what Failed gets for a connection that took too long.
var ErrTimeout = errors.New("no answer within the time for connecting")

// errUnanswered is the end of a connection by the server, before any answer.
var errUnanswered = errors.New("the server ended the connection without an answer")

// errEnded is the end of a response, or of a connection, by the server.
var errEnded = errors.New("the server ended the stream")

// errLeft is what Failed gets for a device that was disconnected before.
var errLeft = errors.New("disconnected while it was connecting")

// errReset is the end by a device's own manners.
var errReset = errors.New("reset by the device, as its manner is")

// unopened is what Failed gets for the end of a connection.
func unopened(end error) error {
	switch end {
	case nil:
		return errLeft
	case errEnded: //nolint:errorlint // ours, never wrapped
		return errUnanswered
	}
	return end
}

// A StatusError is an answer other than 200.
type StatusError int

func (e StatusError) Error() string { return fmt.Sprintf("the server answered %d", int(e)) }

// A Fleet is the devices of one run. Its methods may be called from one
// goroutine at a time.
type Fleet struct {
	opts    Options
	driver  driver
	opening *gate
	closing sync.Once
	due     time.Time // when the next connection may begin
}

// New starts what drives the connections; Close ends it.
func New(o Options) (*Fleet, error) {
	f := &Fleet{opts: o, opening: newGate(o.Connecting)}
	var err error
	f.driver, err = newDriver(o, f.opening.give)
	return f, err
}

// Connect connects the devices from first up to, but without, end, and returns
// when each of them was reported as Opened or Failed, or ctx has ended.
func (f *Fleet) Connect(ctx context.Context, first, end int) error {
	return f.ConnectEach(ctx, func(yield func(int) bool) {
		for device := first; device < end && yield(device); device++ {
		}
	})
}

// ConnectEach is Connect for any devices, none of which may be connected.
func (f *Fleet) ConnectEach(ctx context.Context, devices func(yield func(int) bool)) error {
	var err error
	places := 0 // that are ours
	devices(func(device int) bool {
		if err = f.pace(ctx); err == nil && places == 0 {
			places, err = f.opening.take(ctx, f.opening.places)
		}
		if err == nil {
			places--
			f.driver.connect(device)
		}
		return err == nil
	})
	f.opening.give(places)
	if err != nil {
		return err
	}
	return f.opening.settle(ctx)
}

// pace waits until another connection may begin.
func (f *Fleet) pace(ctx context.Context) error {
	if f.opts.Rate <= 0 {
		return nil
	}
	now := time.Now()
	// Timers are coarse: what was slept too long is made up for, up to 10 ms.
	f.due = later(f.due, now.Add(-10*time.Millisecond)).Add(time.Duration(float64(time.Second) / f.opts.Rate))
	if wait := f.due.Sub(now); wait > 0 && !pause(ctx, wait) {
		return ctx.Err()
	}
	return nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Disconnect ends a device's connection, if it has one. Closed is called soon.
func (f *Fleet) Disconnect(device int) { f.driver.disconnect(device) }

// Wake lets a device that is Asleep or Slow read on as a Proper one does.
func (f *Fleet) Wake(device int) { f.driver.wake(device) }

// Do calls f for one lane after another, while the Observer isn't called for
// that one.
func (f *Fleet) Do(each func(lane int)) { f.driver.do(each) }

// Close ends all connections without a call of Closed, and returns when none
// of the fleet's goroutines runs any more. It may be called again.
func (f *Fleet) Close() { f.closing.Do(f.driver.close) }

// source is the local address of a device; invalid for the system's choice.
func (o *Options) source(device int) netip.Addr {
	if len(o.Sources) == 0 {
		return netip.Addr{}
	}
	return o.Sources[device%len(o.Sources)]
}

func (o *Options) manner(device int) Manner {
	if o.Manner == nil {
		return Proper
	}
	return o.Manner(device)
}

// ticksPerSecond is how often a Slow device reads.
const ticksPerSecond = 10

// rubbish is what nobody sends on purpose: not HTTP, and not TLS either.
const rubbish = "\x00\xff rubbish \r\n\r\nGET\r\n"

// ByManner reports whether a connection ended by its device's own manners.
func ByManner(err error) bool { return errors.Is(err, errReset) }
