package chaos

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"downlink/internal/event"
)

// debtLimit is how long after a gap a device may go on untold: another gateway
// may have to say that something is missing, and a slow device reads it late.
const debtLimit = 30 * time.Second

// A witness holds what one device handles against what was published. Its
// methods are called in the device's order; safe for concurrent use.
type witness struct {
	device    string
	shard     int
	chronicle *chronicle
	stored    func(event.ID) time.Duration // when an ID was given out; a slow device gets it late

	mu       sync.Mutex
	lanes    map[string]*progress
	begun    bool // it has got its first position
	cursor   event.ID
	cursorAt time.Duration
	handled  int
	anew     int // events that came again because the log had lost them
	spared   int // events for which a newer one of their key came
	resyncs  map[event.Reason]int
	worst    time.Duration // from acknowledgement to here, while it was there
}

// progress is how far a device is in a lane.
type progress struct {
	lane    *lane
	last    int           // all up to here is finished, or known by a resync
	covered int           // what the full state of the last resync told
	told    time.Duration // from when on events may be in entries after it
	seen    int           // the last one that came
	debt    int           // the lowest number that is missing, and the device wasn't told; 0: none
	since   time.Duration
}

func newWitness(device string, shard int, c *chronicle, stored func(event.ID) time.Duration, lanes ...*lane) *witness {
	w := &witness{device: device, shard: shard, chronicle: c, stored: stored, lanes: map[string]*progress{}, resyncs: map[event.Reason]int{}}
	for _, l := range lanes {
		w.lanes[l.name] = &progress{lane: l}
	}
	return w
}

// event takes one that the device has handled. steady says that the device was
// there all the time, so that its wait counts.
func (w *witness) event(name string, n int, id event.ID, now time.Duration, steady bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.lanes[name]
	if p == nil || n < 1 || n > p.lane.begun() {
		w.fault("%s: %s %d (%s) was never published", w.device, name, n, id)
		return
	}
	if !w.cursor.Less(id) {
		w.fault("%s: disorder, %s %d has ID %s, the device is at %s", w.device, name, n, id, w.cursor)
	}
	sent, acked, _ := p.lane.when(n)
	w.cursor, w.cursorAt = id, now
	if acked > 0 { // the cursor is as old as its entry
		w.cursorAt = min(now, acked)
	}
	w.handled++
	p.seen = n
	if p.debt != 0 && now-p.since > debtLimit {
		w.fault("%s: silent loss, %s %d is missing for %v and nobody says so", w.device, name, p.debt, now-p.since)
		p.debt = 0
	}
	switch {
	case n <= p.covered: // its state had it, which a device has to bear
		p.last = max(p.last, n)
		return
	case n == p.debt:
		w.fault("%s: order, %s %d (%s) came after %d", w.device, name, n, id, p.last)
		p.debt = 0
		return
	case n <= p.last:
		w.again(p, n, id, sent, now)
		return
	case n > p.last+1:
		w.gap(p, n, id, now)
	}
	p.last = n
	if steady && now-max(sent, acked) > w.worst {
		w.worst = now - max(sent, acked)
	}
}

// again is an event that has been handled already, in a new entry: the log must
// have lost the old one, or its idempotency key must have left with the window.
func (w *witness) again(p *progress, n int, id event.ID, sent, now time.Duration) {
	if _, _, owed := p.lane.when(n); owed && !w.chronicle.lost(w.shard, sent, now, false) && now-sent < w.chronicle.window {
		w.fault("%s: repeat, %s %d (%s) after %d", w.device, p.lane.name, n, id, p.last)
		return
	}
	w.anew++
}

// gap is what lies between the last event of a lane and this one, which makes all
// that needless if they have a key.
func (w *witness) gap(p *progress, n int, id event.ID, now time.Duration) {
	if p.lane.key != "" {
		w.spared += n - p.last - 1
		return
	}
	for k := p.last + 1; k < n; k++ {
		sent, acked, owed := p.lane.when(k)
		if !owed {
			continue
		}
		if !w.chronicle.lost(w.shard, sent, now, acked > 0) {
			w.fault("%s: loss, %s %d came (%s) and %d didn't", w.device, p.lane.name, n, id, k)
			return
		}
		if p.debt == 0 {
			p.debt, p.since = k, now
		}
		return
	}
}

// resync takes one when the device has fetched its full state.
func (w *witness) resync(reason event.Reason, id event.ID, now time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	first := !w.begun && reason == event.NoCursor
	if !first {
		w.resyncs[reason]++
		if !w.excused(reason, now) {
			w.fault("%s: unjustified resync %s at %s; the cursor was %s", w.device, reason, id, w.cursor)
		}
	}
	w.begun = true
	w.cursor, w.cursorAt = id, now
	for _, p := range w.lanes {
		p.last = max(p.last, p.lane.begun())
		p.covered, p.told, p.debt = p.last, min(now, w.stored(id))-time.Second, 0
	}
}

func (w *witness) excused(reason event.Reason, now time.Duration) bool {
	if w.chronicle.excuses(w.device, w.shard, reason, w.cursorAt, now) {
		return true
	}
	if reason != event.WindowExpired {
		return false
	}
	for _, p := range w.lanes {
		if p.expired(now, w.chronicle.window) {
			return true
		}
	}
	return false
}

// expired reports whether something that the device hasn't got is older than the
// window. What it knows by a resync may have been stored after that only.
func (p *progress) expired(now, window time.Duration) bool {
	for n := p.seen + 1; n <= p.lane.begun(); n++ {
		sent, acked, _ := p.lane.when(n)
		if now-sent < window {
			return false // so are those after it
		}
		if n > p.covered || acked == 0 || acked > p.told {
			return true
		}
	}
	return false
}

// missing says what the device is still owed; empty if nothing.
func (w *witness) missing() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, p := range w.lanes {
		if owed := p.lane.lastOwed(); p.last < owed {
			sent, acked, _ := p.lane.when(p.last + 1)
			return fmt.Sprintf("%s: loss, %s %d to %d didn't come (the first was sent at %v and acknowledged at %v; the cursor is %s)",
				w.device, name, p.last+1, owed, sent, acked, w.cursor)
		}
		if p.debt != 0 {
			return fmt.Sprintf("%s: silent loss, %s %d is missing since %v and nobody said so", w.device, name, p.debt, p.since)
		}
	}
	return ""
}

func (w *witness) fault(format string, args ...any) { w.chronicle.fault(format, args...) }

// conflated is how many events the device was spared.
func (w *witness) conflated() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.spared
}

func (w *witness) tally() (handled, anew int, resyncs map[event.Reason]int, worst time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.handled, w.anew, maps.Clone(w.resyncs), w.worst
}
