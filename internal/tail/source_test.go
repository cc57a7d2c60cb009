package tail

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// source is a log of one shard whose faults a test chooses.
type source struct {
	mu      sync.Mutex
	state   eventlog.State
	entries []eventlog.Entry
	added   uint64        // entries, ever
	changed chan struct{} // closed when something was appended
	away    bool
	deaf    bool          // Read never sees what is appended
	full    bool          // Read has no room left to look
	demoted bool          // reads are answered, inspections are not
	refuse  error         // of every inspection
	slow    time.Duration // how long a Read's answer takes to arrive
	late    time.Duration // that an answer of Inspect takes
	asked   []event.ID    // positions of the reads
	orders  Orders
	follow  eventlog.Follower
	calls   []string // Inspect, Suspect, and what the dispatcher saw
}

func newSource() *source {
	start := event.ID{Ms: 1000}
	return &source{
		state:   eventlog.State{Head: start, Swept: start, Since: start, Founded: start},
		changed: make(chan struct{}),
	}
}

func (s *source) note(format string, args ...any) {
	s.calls = append(s.calls, fmt.Sprintf(format, args...))
}

func (s *source) do(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *source) append(n int) {
	s.do(func() {
		for range n {
			s.state.Head = s.state.Head.Next()
			s.added++
			s.entries = append(s.entries, eventlog.Entry{ID: s.state.Head, Event: event.Event{Target: "a", Type: "t"}})
		}
	})
}

// sweep removes everything up to an ID, without anybody noticing.
func (s *source) sweep(upTo event.ID) {
	s.do(func() {
		s.entries = slices.DeleteFunc(s.entries, func(e eventlog.Entry) bool { return e.ID.Compare(upTo) <= 0 })
		s.state.Swept = upTo
	})
}

func (s *source) Groups() [][]int { return [][]int{{0}} }

func (s *source) Follow(_ int, f eventlog.Follower) { s.follow = f }

func (s *source) Read(ctx context.Context, _ int, after []event.ID) ([]eventlog.Batch, error) {
	block := time.After(2 * time.Second)
	s.mu.Lock()
	s.asked = append(s.asked, after[0])
	s.mu.Unlock()
	for {
		s.mu.Lock()
		found, changed, away, slow, full := s.after(after[0]), s.changed, s.away, s.slow, s.full
		if s.deaf {
			found = nil
		}
		s.mu.Unlock()
		if away {
			return nil, eventlog.ErrUnavailable
		}
		if full {
			return []eventlog.Batch{{}}, nil
		}
		if len(found) > 0 {
			time.Sleep(slow) //nolint:forbidigo // virtual time
			return []eventlog.Batch{{Entries: found, Drained: true}}, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-block:
			return nil, nil
		case <-changed:
		}
	}
}

func (s *source) after(id event.ID) []eventlog.Entry {
	var found []eventlog.Entry
	for _, e := range s.entries {
		if id.Less(e.ID) {
			found = append(found, e)
		}
	}
	return found
}

func (s *source) Inspect(_ context.Context, _ int, positions []event.ID) ([]eventlog.Inspection, error) {
	s.mu.Lock()
	defer func() {
		late := s.late
		s.mu.Unlock()
		time.Sleep(late) //nolint:forbidigo // virtual time
	}()
	if s.refuse != nil {
		return nil, s.refuse
	}
	if s.away || s.demoted {
		return nil, eventlog.ErrUnavailable
	}
	held := slices.ContainsFunc(s.entries, func(e eventlog.Entry) bool { return e.ID == positions[0] })
	reason := s.state.Judge(positions[0], held, event.ID{})
	return []eventlog.Inspection{{State: s.state, Reason: reason, Lost: reason == event.LogRewound && !held, Added: s.added}}, nil
}

func (s *source) Suspect(_ context.Context, _ int, reach event.ID) (eventlog.State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note("suspect %v", reach)
	s.state.AddBreak(eventlog.Break{Boundary: s.state.Head, Reach: reach, Reason: event.LogRewound})
	return s.state, nil
}

func (s *source) Range(_ context.Context, _ int, after, upTo event.ID, _ int) (eventlog.Page, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	page := eventlog.Page{Through: upTo}
	for _, e := range s.after(after) {
		if e.ID.Compare(upTo) <= 0 {
			page.Entries = append(page.Entries, e)
		}
	}
	return page, nil
}

// The source takes what the tail dispatches too, so that calls have one order.

func (s *source) Start(_ int, at event.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note("start %v", at)
}

func (s *source) Dispatch(_ int, entries []eventlog.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range entries {
		s.note("entry %v", e.ID)
	}
}

func (s *source) Reset(_ int, at event.ID, reason event.Reason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note("reset %v %s", at, reason)
}

func (s *source) Overtaken(context.Context, int) (event.ID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note("overtaken %v", s.state.Swept)
	return s.state.Swept, nil
}

func (s *source) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// run starts a tail on the source and stops it when the test is over.
func (s *source) run(t *testing.T) *Tail {
	t.Helper()
	tail := New(s, s, Options{
		Window: 10 * time.Second, Watch: time.Second, Orders: s.orders,
		Metrics: NewMetrics(nil), Logger: discard(),
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = tail.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return tail
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// reachable is what the gauge says of the log.
func reachable(t *Tail) bool {
	return testutil.ToFloat64(t.readers[0].opts.Metrics.available.WithLabelValues("0")) == 1
}
