// Package session owns one device's live delivery: what is pending for it, its
// cursor, and how it ends. It is a passive state machine: a shard offers
// messages, a driver takes frames, and nothing in here waits, reads a clock or
// owns a goroutine, so that the driver under it can be exchanged. Its
// invariant: it never skips but for what a pending newer event of the same key
// makes needless. What it can't hold it refuses, and reads again from the log.
package session

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"downlink/internal/event"
	"downlink/internal/frame"
	"downlink/internal/shard"
)

// A Sink is woken when its session has something for it.
type Sink interface {
	// Wake says that Next, or Ended, has news. It must not block and may be
	// called at any time, from any goroutine, also after the session's end.
	Wake()
	// Peer says where the session's events go, for people: an address and the
	// protocol. Empty if that can't be known any more, or not yet.
	Peer() (address, protocol string)
}

// Options for a session.
type Options struct {
	MaxPending func() int           // messages that wait for the sink; asked at each offer
	MaxBytes   func() int           // of their frames, likewise; one message alone may be larger
	Goodbye    func() time.Duration // the retry for a stream that ends in order
	JSON       bool                 // Next gives JSON objects instead of an event stream's frames
}

// A Session is one device's live delivery. Safe for concurrent use by its
// shard, its driver and whoever ends it; Next, KeepAlive, Advance and Goodbye
// belong to the driver alone.
type Session struct {
	// Set at construction.
	device string
	sink   Sink
	opts   *Options

	// Set once by Know and Attach, before the driver starts.
	facts  facts
	member *shard.Member

	// Guarded by mu, which is taken after the shard's.
	mu      sync.Mutex
	told    time.Duration // goes out before anything else; 0: nothing does
	resync  *resync       // goes out before what is pending
	pending []*shard.Message
	slot    [1]*shard.Message // holds what is pending as long as it is one message
	bytes   int
	cursor  event.ID // what the device is known to have: where it began, or the last ID taken
	ended   *end     // nil while the session lives
	behind  bool     // an offer was refused; the shard waits for Resume

	over atomic.Bool // ended isn't nil
}

// burst is how many messages a session makes room for when one isn't enough.
const burst = 16

// A resync is what the next frame must say first.
type resync struct {
	reason event.Reason
	at     event.ID
	after  time.Duration
}

// New makes the session of a device. It gets nothing before Attach. Sessions
// share their options, which stay as they are.
func New(device string, sink Sink, opts *Options) *Session {
	return &Session{device: device, sink: sink, opts: opts}
}

// Attach joins the device's shard. The error is shard.ErrTooManyStreams.
func (s *Session) Attach(to *shard.Shard, groups []string, start shard.Start) error {
	s.mu.Lock()
	s.cursor = start.Cursor
	s.mu.Unlock()
	member, err := to.Attach(s, s.device, groups, start)
	if err != nil {
		return err
	}
	s.member = member
	return nil
}

// Offer takes a message from the shard if there is room, which the one that it
// replaces gives back (shard.Subscriber).
func (s *Session) Offer(m *shard.Message) (taken, replaced bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.replacedLocked(m)
	count, bytes, size := len(s.pending), s.bytes, m.Size()
	if old >= 0 {
		count, bytes = count-1, bytes-s.pending[old].Size()
	}
	full := count >= s.opts.MaxPending() || bytes+size > s.opts.MaxBytes()
	if full && count > 0 {
		s.behind = true
		return false, false
	}
	if old >= 0 {
		// Whoever reads on from the cursor of what stands between gets m.
		s.pending = slices.Delete(s.pending, old, old+1)
	}
	s.holdLocked(m)
	s.bytes = bytes + size
	s.sink.Wake()
	return true, old >= 0
}

// replacedLocked finds the pending message that m makes needless; -1 if there is
// none. There is never more than one.
func (s *Session) replacedLocked(m *shard.Message) int {
	if !m.Keyed() {
		return -1
	}
	return slices.IndexFunc(s.pending, m.Replaces)
}

// holdLocked keeps a message. One alone, which is what mostly comes, costs no
// allocation, and an idle session holds no buffer.
func (s *Session) holdLocked(m *shard.Message) {
	switch len(s.pending) {
	case 0:
		s.pending = s.slot[:0]
	case 1:
		if cap(s.pending) == 1 {
			s.pending = append(make([]*shard.Message, 0, burst), s.pending...)
			s.slot[0] = nil
		}
	}
	s.pending = append(s.pending, m)
}

// held is the size of what is pending.
func (s *Session) held() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}

// dropLocked forgets what is pending.
func (s *Session) dropLocked() { s.pending, s.slot, s.bytes = nil, [1]*shard.Message{}, 0 }

// Resync drops what is pending, which the device's full state will hold, and
// puts the resync frame first (shard.Subscriber).
func (s *Session) Resync(reason event.Reason, at event.ID, after time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resync = &resync{reason, at, after}
	s.dropLocked()
	s.behind = false
	s.sink.Wake()
}

// Tell says when to come back should the stream end without a word: its client
// keeps the last such time. A poll has its own in its answer, and is told nothing.
func (s *Session) Tell(retry time.Duration) {
	if s.opts.JSON {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = retry
	s.sink.Wake()
}

// Next appends pending frames to dst until about maxBytes are gathered, and
// moves the cursor past them. The driver must write them in order, or end.
func (s *Session) Next(dst [][]byte, maxBytes int) [][]byte {
	dst, resume := s.take(dst, maxBytes)
	if resume {
		s.member.Resume() // without our lock: the shard's comes first
	}
	return dst
}

func (s *Session) take(dst [][]byte, maxBytes int) (frames [][]byte, resume bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	total := 0
	if s.told > 0 {
		dst = append(dst, frame.AppendRetry(nil, s.told))
		s.told = 0
	}
	if r := s.resync; r != nil {
		dst = append(dst, s.encodeResync(r.at, r.reason, r.after))
		s.cursor, s.resync = r.at, nil
	}
	for len(s.pending) > 0 && total < maxBytes {
		data := s.encode(s.shiftLocked())
		total += len(data)
		dst = append(dst, data)
	}
	return dst, s.roomLocked()
}

// shiftLocked takes the first pending message.
func (s *Session) shiftLocked() *shard.Message {
	m := s.pending[0]
	s.pending[0] = nil
	s.bytes -= m.Size()
	s.cursor = m.ID
	if s.pending = s.pending[1:]; len(s.pending) == 0 {
		s.pending = nil // an idle session holds no buffer
	}
	return m
}

// roomLocked reports whether the shard waits for room, and there is enough again.
func (s *Session) roomLocked() bool {
	if !s.behind || len(s.pending) > s.opts.MaxPending()/2 {
		return false
	}
	s.behind = false
	return true
}

// resyncRoom is enough for most resync frames.
const resyncRoom = 112

// encode is a message as the driver writes it. An entry that is too large
// becomes a resync that moves the cursor past it, or it would poison every
// resume.
func (s *Session) encode(m *shard.Message) []byte {
	switch {
	case m.TooLarge:
		return s.encodeResync(m.ID, event.EventTooLarge, 0)
	case s.opts.JSON:
		return frame.AppendEventJSON(nil, m.ID, m.Type, m.Payload)
	default:
		return m.Frame()
	}
}

func (s *Session) encodeResync(at event.ID, reason event.Reason, after time.Duration) []byte {
	if s.opts.JSON {
		return frame.AppendResyncJSON(nil, at, reason, after)
	}
	return frame.AppendResync(make([]byte, 0, resyncRoom), at, reason, after)
}

// KeepAlive is what a driver writes when it has written nothing for a while:
// the shard's position if it has moved past the cursor, so that a quiet
// device's cursor never ages out, otherwise a comment.
func (s *Session) KeepAlive() []byte {
	position, moved := s.Advance()
	if !moved {
		return []byte(frame.Ping)
	}
	return frame.AppendPosition(nil, position)
}

// Live reports whether the device has been offered everything for it up to now.
func (s *Session) Live() bool {
	_, live := s.member.Position()
	return live
}

// Advance moves the cursor to the shard's position, if nothing for the device
// lies between and it hasn't been told of that position.
func (s *Session) Advance() (position event.ID, moved bool) {
	position, ok := s.member.Position()
	s.mu.Lock()
	defer s.mu.Unlock()
	// What was offered after Position is pending now and has a higher ID; what
	// was offered before it is pending or taken. So nothing may be pending.
	if !ok || s.resync != nil || len(s.pending) > 0 || !s.cursor.Less(position) {
		return position, false
	}
	s.cursor = position
	return position, true
}

// End ends the session; the first reason stands. The driver is woken, says
// Goodbye if there is somebody to say it to, and calls Detach.
func (s *Session) End(reason EndReason) { s.EndWith(reason, 0) }

// EndWith is End, and says when the device is to come back; 0 leaves that to
// Options.Goodbye.
func (s *Session) EndWith(reason EndReason, retry time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended == nil {
		s.ended = &end{reason, retry}
		s.over.Store(true)
		s.sink.Wake()
	}
}

// Ended is the reason of the end, empty while the session lives.
func (s *Session) Ended() EndReason {
	if !s.over.Load() { // asked before each write
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended.reason
}

// Goodbye is the last frame of a stream that ends in order: when to come back.
func (s *Session) Goodbye() []byte { return frame.AppendRetry(nil, s.Retry()) }

// Retry is when the device should come back.
func (s *Session) Retry() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil && s.ended.retry > 0 {
		return s.ended.retry
	}
	return s.opts.Goodbye()
}

// Detach leaves the shard and drops what is pending. Nothing follows.
func (s *Session) Detach() {
	if s.member != nil {
		s.member.Detach()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropLocked()
	s.resync = nil
}

// Cursor is the last ID that the driver has taken, or where the device began.
func (s *Session) Cursor() event.ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cursor
}

// LogValue names the session in a log line.
func (s *Session) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("device", s.device),
		slog.String("cursor", s.Cursor().String()),
	)
}
