package chaos

import (
	"sync"
	"time"
)

// A lane is a row of events 1, 2, 3 … from one publisher to one addressee, in
// that order. Safe for concurrent use.
type lane struct {
	name   string // also the type of its events
	target string // a device, or "*"
	shard  int    // -1: all
	key    string // of all its events; with one, only the newest has to come

	mu    sync.Mutex
	sent  []int32 // by number - 1: when it was first sent, in ms of the run
	acked []int32 // when it was acknowledged; notYet or never
}

// What acked says of an event that wasn't acknowledged.
const (
	notYet = 0
	never  = -1 // its publisher doesn't know, and doesn't repeat it
)

// begin gives out the next number.
func (l *lane) begin(now time.Duration) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent, l.acked = append(l.sent, stamp(now)), append(l.acked, notYet)
	return len(l.sent)
}

func (l *lane) ack(n int, now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked[n-1] = stamp(now)
}

// abandon says that nobody will know whether event n was stored.
func (l *lane) abandon(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked[n-1] = never
}

// begun is the highest number so far.
func (l *lane) begun() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.sent)
}

// when says when event n was first sent, and when it was acknowledged, if it
// was; owed is false for one that was abandoned.
func (l *lane) when(n int) (sent, acked time.Duration, owed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n > len(l.sent) {
		return 0, 0, false
	}
	return unstamp(l.sent[n-1]), unstamp(max(l.acked[n-1], 0)), l.acked[n-1] != never
}

// lastOwed is the highest number that was acknowledged.
func (l *lane) lastOwed() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := len(l.acked); n > 0; n-- {
		if l.acked[n-1] > 0 {
			return n
		}
	}
	return 0
}

// counted is how many events were acknowledged.
func (l *lane) counted() (events int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, at := range l.acked {
		if at > 0 {
			events++
		}
	}
	return events
}

// stamp keeps a time in four bytes; 0 is kept for "not yet".
func stamp(d time.Duration) int32 { return int32(d/time.Millisecond) + 1 }

func unstamp(ms int32) time.Duration { return time.Duration(ms) * time.Millisecond }
