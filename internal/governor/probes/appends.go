package probes

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"downlink/internal/eventlog"
	"downlink/internal/governor"
)

// AppendLatencyName is the name of what Appends measures.
const AppendLatencyName = "append_latency"

// Appends passes appends on to a log, and measures how long they take. Safe for
// concurrent use. Beside a round trip to Redis, or a sync of a disk, what it costs
// isn't seen: about a microsecond, measured on two cores that were very busy.
type Appends struct {
	log eventlog.Appender

	mu     sync.Mutex
	next   uint64
	began  map[uint64]time.Time // of those under way
	took   [len(bounds) + 1]int // since the last reading, those that the log has answered
	failed int                  // likewise, those that it hasn't
}

// bounds are the upper ends of what is told apart, each about 1.4 times the last.
var bounds = [...]time.Duration{ //nolint:gochecknoglobals // a table
	500 * time.Microsecond, 700 * time.Microsecond, time.Millisecond, 1400 * time.Microsecond,
	2 * time.Millisecond, 3 * time.Millisecond, 4 * time.Millisecond, 6 * time.Millisecond, 8 * time.Millisecond, 11 * time.Millisecond,
	16 * time.Millisecond, 23 * time.Millisecond, 32 * time.Millisecond, 45 * time.Millisecond, 64 * time.Millisecond, 90 * time.Millisecond,
	128 * time.Millisecond, 180 * time.Millisecond, 256 * time.Millisecond, 362 * time.Millisecond, 512 * time.Millisecond, 724 * time.Millisecond,
	time.Second, 1400 * time.Millisecond, 2 * time.Second, 3 * time.Second, 4 * time.Second, 6 * time.Second,
}

// TimeAppends measures the appends to a log.
func TimeAppends(log eventlog.Appender) *Appends {
	return &Appends{log: log, began: make(map[uint64]time.Time)}
}

// Append implements eventlog.Appender.
func (a *Appends) Append(ctx context.Context, batch []eventlog.Append) []eventlog.Result {
	began := time.Now()
	a.mu.Lock()
	a.next++
	id := a.next
	a.began[id] = began
	a.mu.Unlock()
	results := a.log.Append(ctx, batch)
	took, away := time.Since(began), unanswered(results)
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.began, id)
	if away {
		a.failed++
		return results
	}
	a.took[place(took)]++
	return results
}

// unanswered reports whether the log has stored none of it for a reason of its
// own: a server that refuses connections does that quickly. That it is full is
// an answer, and another signal's business.
func unanswered(results []eventlog.Result) bool {
	for i := range results {
		if err := results[i].Err; err == nil || !errors.Is(err, eventlog.ErrUnavailable) || errors.Is(err, eventlog.ErrFull) {
			return false
		}
	}
	return len(results) > 0
}

func place(took time.Duration) int {
	for i, b := range bounds {
		if took <= b {
			return i
		}
	}
	return len(bounds)
}

// AppendLatency is how long nearly all appends took since the last reading, or
// how long one is under way already, if that is longer.
func AppendLatency(a *Appends) governor.Signal {
	s := own(AppendLatencyName, func(context.Context) (governor.Reading, error) { return a.read(time.Now()) })
	s.Unit = "seconds"
	s.Help = "How long the log takes to store what is published, for 95 of 100 requests in the last seconds, or how long one has been waiting already. " +
		"Redis is busy (SLOWLOG GET, INFO commandstats), its disk is slow (appendfsync always), its replicas are late (durability), or the way to it is narrow."
	s.Threshold, s.Wall, s.Levers = 0.5, 2.5, []string{governor.Publish}
	return s
}

func (a *Appends) read(now time.Time) (governor.Reading, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	took, failed := a.took, a.failed
	a.took, a.failed = [len(bounds) + 1]int{}, 0
	longest := time.Duration(0)
	for _, began := range a.began {
		longest = max(longest, now.Sub(began))
	}
	value, of := nearlyAll(took)
	r := governor.Reading{Value: max(value, longest).Seconds(), Detail: fmt.Sprintf("%d appends since the last reading, %d are under way", of, len(a.began))}
	switch {
	case failed > 0 && of == 0:
		return governor.Reading{}, fmt.Errorf("the log has stored nothing: %d appends failed since the last reading, and none succeeded", failed)
	case failed > 0:
		r.Partial = fmt.Sprintf("%d appends failed since the last reading", failed)
	}
	return r, nil
}

// nearlyAll is the upper end of what 95 of 100 took, and how many there were.
func nearlyAll(took [len(bounds) + 1]int) (time.Duration, int) {
	all := 0
	for _, n := range took {
		all += n
	}
	need := int(math.Ceil(0.95 * float64(all)))
	for i, n := range took {
		if need -= n; need <= 0 && all > 0 {
			return bounds[min(i, len(bounds)-1)], all
		}
	}
	return 0, 0
}

var _ eventlog.Appender = (*Appends)(nil)
