package session

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/frame"
	"downlink/internal/limits"
	"downlink/internal/shard"
)

// wakes counts what a driver would be told.
type wakes int

func (w *wakes) Wake() { *w++ }

func (*wakes) Peer() (address, protocol string) { return "192.0.2.1:4711", "HTTP/1.1" }

// silent is a log that is never asked in these tests.
type silent struct{}

func (silent) Range(context.Context, int, event.ID, event.ID, int) (eventlog.Page, error) {
	return eventlog.Page{}, eventlog.ErrUnavailable
}

func (silent) Judge(context.Context, int, []eventlog.Question) ([]event.Reason, eventlog.State, error) {
	return nil, eventlog.State{}, eventlog.ErrUnavailable
}

type rig struct {
	t      *testing.T
	shards *shard.Set
	s      *Session
	woken  wakes
	last   event.ID
}

// newRig has a session attached live at position 1000-0.
func newRig(t *testing.T, o Options) *rig {
	t.Helper()
	r := &rig{t: t, last: event.ID{Ms: 1000}}
	r.shards = shard.NewSet(silent{}, shard.Options{
		Shards: 1, HotBytes: limits.Always(1 << 20), MaxLaps: 1, Pacer: shard.NewPacer(0), Metrics: shard.NewMetrics(nil),
	})
	r.shards.Start(0, r.last)
	if o.Goodbye == nil {
		o.Goodbye = func() time.Duration { return 1500 * time.Millisecond }
	}
	r.s = New("a", &r.woken, &o)
	if err := r.s.Attach(r.shards.Of("a"), nil, shard.Start{Cursor: r.last}); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) dispatch(e event.Event, fault eventlog.Fault) event.ID {
	r.last = r.last.Next()
	r.shards.Dispatch(0, []eventlog.Entry{{ID: r.last, Event: e, Fault: fault}})
	return r.last
}

func (r *rig) event(payload string) event.ID {
	return r.dispatch(event.Event{Target: "a", Type: "t", Payload: payload}, "")
}

func (r *rig) next(maxBytes int) string {
	return string(bytes.Join(r.s.Next(nil, maxBytes), nil))
}

var roomy = Options{MaxPending: limits.Always(100), MaxBytes: limits.Always(1 << 20)}

func TestNextGivesFramesInOrderAndWakes(t *testing.T) {
	r := newRig(t, roomy)
	r.event("one")
	r.event("two")
	if r.woken != 2 {
		t.Errorf("woken %d times", r.woken)
	}
	want := "id: 1000-1\nevent: t\ndata: one\n\nid: 1000-2\nevent: t\ndata: two\n\n"
	if diff := cmp.Diff(want, r.next(1<<20)); diff != "" {
		t.Error(diff)
	}
	if r.next(1<<20) != "" || r.s.Cursor() != r.last {
		t.Errorf("cursor %v", r.s.Cursor())
	}
}

func TestNextStopsNearItsLimit(t *testing.T) {
	r := newRig(t, roomy)
	for range 3 {
		r.event(strings.Repeat("x", 100))
	}
	if n := strings.Count(r.next(150), "data:"); n != 2 {
		t.Errorf("%d frames for a limit that the second one passes", n)
	}
	if n := strings.Count(r.next(1), "data:"); n != 1 {
		t.Errorf("%d frames: at least one must come, or nothing ever would", n)
	}
}

func TestFullSessionGoesOnFromTheWindow(t *testing.T) {
	r := newRig(t, Options{MaxPending: limits.Always(4), MaxBytes: limits.Always(1 << 20)})
	var want []string
	for i := range 20 {
		want = append(want, fmt.Sprintf("data: %d\n", i))
		r.event(fmt.Sprint(i))
	}
	got := ""
	for range 20 {
		got += r.next(1)
		if len(r.s.pending) > 4 {
			t.Fatalf("%d messages pending", len(r.s.pending))
		}
	}
	var lines []string
	for line := range strings.Lines(got) {
		if strings.HasPrefix(line, "data:") {
			lines = append(lines, line)
		}
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Error(diff)
	}
}

func TestPendingIsBoundedInBytes(t *testing.T) {
	r := newRig(t, Options{MaxPending: limits.Always(100), MaxBytes: limits.Always(1000)})
	large := strings.Repeat("x", 100_000)
	r.event(large) // alone it may be larger than the bound
	r.event("small")
	if len(r.s.pending) != 1 {
		t.Errorf("%d pending", len(r.s.pending))
	}
	if got := r.next(1) + r.next(1); !strings.Contains(got, large) || !strings.Contains(got, "data: small\n") {
		t.Errorf("%d bytes came", len(got))
	}
}

func TestKeepAliveMovesTheCursorOnlyWhenNothingIsPending(t *testing.T) {
	r := newRig(t, roomy)
	if got := string(r.s.KeepAlive()); got != frame.Ping {
		t.Errorf("the shard hasn't moved: %q", got)
	}
	passed := r.dispatch(event.Event{Target: "other", Type: "t"}, "")
	if got := string(r.s.KeepAlive()); got != fmt.Sprintf("id: %v\n\n", passed) {
		t.Errorf("the shard has moved: %q", got)
	}
	r.event("mine")
	if got := string(r.s.KeepAlive()); got != frame.Ping {
		t.Errorf("an event is pending: %q", got)
	}
	r.next(1)
	r.shards.Reset(0, event.ID{Ms: 3}, event.LogRewound)
	if got := string(r.s.KeepAlive()); got != frame.Ping {
		t.Errorf("a resync is pending: %q", got)
	}
}

func TestKeepAliveOfASessionThatIsBehind(t *testing.T) {
	r := newRig(t, Options{MaxPending: limits.Always(1), MaxBytes: limits.Always(1 << 20)})
	r.event("1")
	r.event("2")
	r.s.take(nil, 1) // without the resume that Next does
	if got := string(r.s.KeepAlive()); got != frame.Ping {
		t.Errorf("told a position past an event that it hasn't got: %q", got)
	}
}

func TestResyncReplacesWhatIsPending(t *testing.T) {
	r := newRig(t, roomy)
	r.event("of the lost branch")
	r.shards.Reset(0, event.ID{Ms: 500}, event.LogRewound)
	want := "id: 500-0\nevent: resync\ndata: {\"reason\":\"log-rewound\",\"after_ms\":0}\n\n"
	if diff := cmp.Diff(want, r.next(1<<20)); diff != "" {
		t.Error(diff)
	}
}

func TestEventTooLargeBecomesAResyncInItsPlace(t *testing.T) {
	r := newRig(t, roomy)
	r.event("before")
	r.dispatch(event.Event{Target: "a", Type: "t"}, eventlog.FaultTooLarge)
	r.event("after")
	want := "id: 1000-1\nevent: t\ndata: before\n\n" +
		"id: 1000-2\nevent: resync\ndata: {\"reason\":\"event-too-large\",\"after_ms\":0}\n\n" +
		"id: 1000-3\nevent: t\ndata: after\n\n"
	if diff := cmp.Diff(want, r.next(1<<20)); diff != "" {
		t.Error(diff)
	}
}

func TestEndKeepsItsFirstReason(t *testing.T) {
	r := newRig(t, roomy)
	r.s.End(Lifetime)
	r.s.End(ClientGone)
	if r.s.Ended() != Lifetime || r.woken != 1 {
		t.Errorf("%v, woken %d times", r.s.Ended(), r.woken)
	}
	if got := string(r.s.Goodbye()); got != "retry: 1500\n\n" {
		t.Errorf("%q", got)
	}
}

func TestDetachedSessionHoldsNothing(t *testing.T) {
	r := newRig(t, roomy)
	r.event("x")
	r.s.Detach()
	r.s.Detach()
	r.event("y")
	if r.shards.Members() != 0 || r.next(1<<20) != "" {
		t.Error("something is left")
	}
	New("b", &r.woken, &roomy).Detach() // never attached
}

// A limit that is lowered below what is pending takes nothing back: what is
// there is delivered, and what comes meanwhile afterwards.
func TestALowerLimitOfWhatIsPendingLosesNothing(t *testing.T) {
	most := 10
	r := newRig(t, Options{MaxPending: func() int { return most }, MaxBytes: limits.Always(1 << 20)})
	want := ""
	for i := range 30 {
		if i == 8 {
			most = 1
		}
		if i == 20 {
			most = 5
		}
		r.event(fmt.Sprint(i))
		want += fmt.Sprintf("data: %d\n", i)
		if i > 8 && len(r.s.pending) > 8 {
			t.Fatalf("%d messages pending", len(r.s.pending))
		}
	}
	got := ""
	for range 40 {
		for line := range strings.Lines(r.next(1)) {
			if strings.HasPrefix(line, "data:") {
				got += line
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestTell: when to come back is told before everything that waits, once, and
// only where it is an event stream.
func TestTell(t *testing.T) {
	r := newRig(t, roomy)
	r.event("one")
	r.s.Tell(42 * time.Second)
	if got, want := r.next(1<<20), "retry: 42000\n\nid: 1000-1\nevent: t\ndata: one\n\n"; got != want || r.woken != 2 {
		t.Errorf("%q, woken %d times", got, r.woken)
	}
	r.s.Tell(time.Second)
	r.s.Tell(2 * time.Second)
	if got := r.next(1 << 20); got != "retry: 2000\n\n" || r.next(1<<20) != "" {
		t.Errorf("%q", got)
	}
	r.s.EndWith(Draining, 7*time.Second)
	if got := string(r.s.Goodbye()); got != "retry: 7000\n\n" {
		t.Errorf("%q", got)
	}
	o := roomy
	o.JSON = true
	poll := newRig(t, o)
	poll.s.Tell(time.Second)
	if got := poll.next(1 << 20); got != "" || poll.woken != 0 {
		t.Errorf("a poll was told %q", got)
	}
}
