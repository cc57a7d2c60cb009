package dial

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"downlink/internal/event"
	"downlink/internal/frame"
	"downlink/internal/inventory"
	"downlink/internal/lease"
	"downlink/internal/post"
	"downlink/internal/session"
	"downlink/internal/shard"
)

// A mailbox is the link of a device that gets a POST for each event: one at a
// time, in order, each until it was taken or has left the window. It costs no
// goroutine and no connection while there is nothing to send.
type mailbox struct {
	// Set at construction.
	holding *holding
	device  inventory.Device
	at      standing

	// Guarded by mu, which is never held for long.
	mu      sync.Mutex
	phase   phase
	leaving bool               // no attempt begins any more
	left    chan struct{}      // closed by who has the turn when he is through; nil: nobody waits
	stop    context.CancelFunc // cuts the attempt that is under way; nil without one

	// Of whoever has the turn.
	session *session.Session
	item    *session.Delivery // what is being delivered; nil: nothing is
	began   time.Time         // when item was first tried
	attempt int               // how often it was tried; written before the turn is given back
	retryAt time.Time         // not before; zero: at any time
	timer   *time.Timer       // wakes at retryAt
	start   shard.Start       // where the next session begins
}

// A phase is how far a mailbox is on its way to a turn.
type phase uint8

const (
	idle    phase = iota
	queued        // waits for its turn
	running       // has it
	again         // has it, and was woken meanwhile
	over          // has had its last one
)

func newMailbox(h *holding, d inventory.Device, start shard.Start) *mailbox {
	m := &mailbox{holding: h, device: d, start: start, phase: running}
	m.at.metrics = h.engine.opts.Metrics
	return m
}

func (m *mailbox) begin() {
	m.at.is(Connected) // none is needed yet
	m.attach()
	m.through(false)
}

// Wake implements session.Sink.
func (m *mailbox) Wake() {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch m.phase {
	case idle:
		m.phase = queued
		m.holding.engine.queue.add(m, m.attempt > 0)
	case running:
		m.phase = again
	}
}

func (m *mailbox) wake() { m.Wake() }

// turn does one thing, and queues up again if there may be more.
func (m *mailbox) turn() {
	if m.seize(queued) {
		m.through(m.step())
	}
}

// seize takes the turn if the mailbox is in a phase.
func (m *mailbox) seize(in phase) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.phase != in {
		return false
	}
	m.phase = running
	return true
}

// through gives the turn back.
func (m *mailbox) through(more bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.leaving:
		m.phase = over
		if m.left != nil {
			close(m.left)
		}
	case more || m.phase == again:
		m.phase = queued
		m.holding.engine.queue.add(m, m.attempt > 0)
	default:
		m.phase = idle
	}
}

// Peer implements session.Sink.
func (m *mailbox) Peer() (address, protocol string) { return hostOf(m.device.URL), "POST" }

func (m *mailbox) state() State { return m.at.state() }

// attach begins a session where the device is known to have come. A revoked
// device has none until that is lifted.
func (m *mailbox) attach() {
	o := &m.holding.engine.opts
	m.session = nil
	if o.Revoked(m.device.ID) {
		m.at.is(Unreachable)
		m.later(o.Backoff.Max)
		return
	}
	s := session.New(m.device.ID, m, &o.Session)
	s.Know(session.Facts{Since: time.Now(), Credential: session.Dialled})
	if err := s.Attach(o.Log.Of(m.device.ID), m.device.Groups, m.start); err != nil {
		m.later(o.Backoff.Max) // no shard of an engine has a limit of streams
		return
	}
	m.session = s
}

// step makes one attempt at what is due, and reports whether more may be.
func (m *mailbox) step() (more bool) {
	if time.Now().Before(m.retryAt) {
		return false
	}
	if m.session == nil || m.session.Ended() != "" {
		m.renew(m.start)
		return false // what it has to say wakes us
	}
	if m.item == nil {
		d, ok := m.session.One()
		if !ok {
			return false
		}
		m.item, m.began, m.attempt = &d, time.Now(), 0
	}
	l, live := m.holding.lease()
	if !live {
		return false // the holding wakes us when it lives again
	}
	if m.expired() {
		m.pass()
		return true
	}
	return m.try(l)
}

// renew begins another session.
func (m *mailbox) renew(start shard.Start) {
	if m.session != nil {
		m.session.Detach()
	}
	m.item, m.retryAt = nil, time.Time{}
	m.start = start
	m.attach()
}

// try posts what is due.
func (m *mailbox) try(l lease.Lease) (more bool) {
	reply, err := m.post(l)
	o := &m.holding.engine.opts
	switch {
	case err == nil && reply.OK():
		o.Metrics.posted(accepted)
		m.at.is(Connected)
		m.start = shard.Start{Cursor: m.item.ID}
		m.holding.note(m.device.ID, m.item.ID)
		m.item, m.retryAt, m.attempt = nil, time.Time{}, 0
		return true
	case errors.Is(err, errLeaving) || err != nil && m.isLeaving():
		return false // whoever has the device next posts it again
	case err != nil:
		o.Metrics.posted(failed)
	case reply.Status == http.StatusConflict:
		o.Metrics.posted(superseded)
	default:
		o.Metrics.posted(refused)
	}
	m.at.is(Unreachable)
	wait, detail := o.Backoff.Delay(m.attempt), "no answer"
	if err != nil {
		detail = err.Error()
	} else {
		wait, detail = max(wait, min(reply.RetryAfter, o.Backoff.Max)), "the device answered "+reply.String()
	}
	m.holding.engine.note(m.device.ID, "post_failed", detail)
	m.later(wait)
	m.attempt++
	return false
}

// later wakes the mailbox after d, and nothing is tried before.
func (m *mailbox) later(d time.Duration) {
	m.retryAt = time.Now().Add(d)
	if m.timer == nil {
		m.timer = time.AfterFunc(d, m.Wake)
		return
	}
	m.timer.Reset(d)
}

// post makes one attempt. The lease must live; an attempt that outlasts it is cut.
func (m *mailbox) post(l lease.Lease) (*post.Reply, error) {
	if !l.Live(time.Now()) {
		return nil, errLapsed
	}
	ctx, stop := m.holding.guard(context.Background(), l, 0)
	defer stop()
	if !m.cuttable(stop) {
		return nil, errLeaving
	}
	defer m.cuttable(nil)
	return m.holding.engine.opts.Poster.Post(ctx, m.device, m.event(l))
}

// errLeaving: the link ends, and begins nothing any more.
var errLeaving = errors.New("the link ends")

// cuttable notes what cuts the attempt that is about to begin; false if none may.
func (m *mailbox) cuttable(stop context.CancelFunc) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stop = stop
	return !m.leaving
}

func (m *mailbox) isLeaving() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.leaving
}

// event is what is due, as a device is sent it.
func (m *mailbox) event(l lease.Lease) post.Event {
	e := post.Event{Type: m.item.Type, Payload: m.item.Payload, ID: m.item.ID.String(), Extra: m.holding.engine.greeting(l)}
	if m.item.Reason != "" {
		e.Type = event.ResyncType
		e.Payload = string(frame.AppendResyncData(nil, m.item.Reason, m.item.After))
	}
	return e
}

// expired reports whether what is due has been tried for as long as the window,
// or has left it: by the log's clock, as far as the shard has come. A resync is
// tried for as long, and then gives way to one that stands further on.
func (m *mailbox) expired() bool {
	o := &m.holding.engine.opts
	window := o.Window
	if m.attempt > 0 && time.Since(m.began) > window {
		return true
	}
	if m.item.Reason != "" {
		return false
	}
	head := o.Log.Of(m.device.ID).Position()
	return m.attempt > 0 && head.Ms > m.item.ID.Ms && time.Duration(head.Ms-m.item.ID.Ms) > window/time.Millisecond
}

// pass gives up what is due: its device is told to fetch its full state, which
// holds all that waits behind it, too.
func (m *mailbox) pass() {
	o := &m.holding.engine.opts
	if m.item.Reason == "" {
		o.Metrics.posted(expired)
		o.Logger.Warn("an event has left the window and could not be delivered: its device is told to resync as soon as it can be reached",
			"device", m.device.ID, "id", m.item.ID.String(), "attempts", m.attempt)
		m.holding.engine.note(m.device.ID, "expired", "the event "+m.item.ID.String()+" has left the window")
	}
	m.renew(shard.Start{Reason: event.WindowExpired})
}

// moveOn notes how far a quiet device has come, so that its position doesn't age.
func (m *mailbox) moveOn() {
	if m.seize(idle) {
		m.advance()
		m.through(false)
	}
}

func (m *mailbox) advance() {
	if m.item != nil || m.session == nil {
		return
	}
	if at, moved := m.session.Advance(); moved {
		m.start = shard.Start{Cursor: at}
		m.holding.note(m.device.ID, at)
	}
}

// end implements link.
func (m *mailbox) end(ctx context.Context, _ End) {
	if left := m.leave(); left != nil {
		select {
		case <-left:
		case <-ctx.Done():
			m.cut()
			<-left
		}
	}
	m.advance()
	if m.timer != nil {
		m.timer.Stop()
	}
	if m.session != nil {
		m.session.Detach()
	}
	m.at.is("")
}

// leave lets no attempt begin any more. What it returns, if anything, is closed when
// the one that is under way has ended.
func (m *mailbox) leave() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leaving = true
	if m.phase == running || m.phase == again {
		m.left = make(chan struct{})
	} else {
		m.phase = over
	}
	return m.left
}

// cut ends the attempt that is under way.
func (m *mailbox) cut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stop != nil {
		m.stop()
	}
}
