package revoked

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const shards = 4

// A source is the lists of a log, whose faults a test chooses.
type source struct {
	mu     sync.Mutex
	last   event.ID
	lists  [shards]stored
	away   bool
	looks  int // reads of all versions
	reads  int // of one list
	orders int
}

type stored struct {
	version eventlog.ListVersion
	devices map[string]eventlog.Revocation
}

func newSource() *source {
	s := &source{last: event.ID{Ms: 1000}}
	for i := range s.lists {
		s.lists[i].devices = map[string]eventlog.Revocation{}
	}
	return s
}

func (s *source) Control(_ context.Context, shard int, order eventlog.Control) (eventlog.Receipt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return eventlog.Receipt{}, eventlog.ErrUnavailable
	}
	l := &s.lists[shard]
	known, listed := l.devices[order.Device]
	if listed == (order.Kind == eventlog.Revoke) {
		return eventlog.Receipt{ID: known.ID}, nil
	}
	s.orders++
	s.last = s.last.Next()
	if order.Kind == eventlog.Revoke {
		l.devices[order.Device] = eventlog.Revocation{Device: order.Device, ID: s.last, Reason: order.Reason}
	} else {
		delete(l.devices, order.Device)
	}
	if l.version.Changes == 0 {
		l.version.Born = s.last
	}
	l.version.Changes++
	l.version.Last = s.last
	return eventlog.Receipt{ID: s.last, Changed: true}, nil
}

func (s *source) Revoked(_ context.Context, shard int) (eventlog.Revoked, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return eventlog.Revoked{}, eventlog.ErrUnavailable
	}
	s.reads++
	return eventlog.Revoked{Version: s.versionLocked(shard), List: slices.Collect(maps.Values(s.lists[shard].devices))}, nil
}

func (s *source) RevokedVersions(context.Context) ([]eventlog.ListVersion, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return nil, eventlog.ErrUnavailable
	}
	s.looks++
	versions := make([]eventlog.ListVersion, shards)
	for i := range versions {
		versions[i] = s.versionLocked(i)
	}
	return versions, nil
}

func (s *source) versionLocked(shard int) eventlog.ListVersion {
	v := s.lists[shard].version
	v.Devices = len(s.lists[shard].devices)
	return v
}

// order gives an order as a gateway elsewhere would; news of it may get lost.
func (s *source) order(t interface{ Fatal(...any) }, kind eventlog.ControlKind, device string) {
	if _, err := s.Control(context.Background(), event.Shard(device, shards), eventlog.Control{Kind: kind, Device: device, Reason: "why " + device}); err != nil {
		t.Fatal(err)
	}
}

func (s *source) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// snapshot returns what puts the lists back to how they are now.
func (s *source) snapshot() (restore func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var before [shards]stored
	for i := range s.lists {
		before[i].version, before[i].devices = s.lists[i].version, maps.Clone(s.lists[i].devices)
	}
	return func() {
		s.set(func() {
			for i := range s.lists {
				s.lists[i].version, s.lists[i].devices = before[i].version, maps.Clone(before[i].devices)
			}
		})
	}
}

// A copy is a running Set and what it cut.
type copied struct {
	*Set
	mu   sync.Mutex
	cuts []string
}

func start(t *testing.T, s *source) *copied {
	t.Helper()
	c := &copied{}
	c.Set = New(s, Options{Shards: shards, Metrics: NewMetrics(nil), Logger: slog.New(slog.DiscardHandler), Cut: func(device string) {
		if !c.Has(device) {
			t.Errorf("%s is cut before it is kept out", device)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.cuts = append(c.cuts, device)
	}})
	if err := c.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = c.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return c
}

// cut lists who was cut since it was last asked.
func (c *copied) cut() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	cuts := c.cuts
	c.cuts = nil
	slices.Sort(cuts)
	return cuts
}

func (c *copied) want(t *testing.T, when string, devices ...string) {
	t.Helper()
	var got []string
	for i := range 10 {
		if d := fmt.Sprint("d", i); c.Has(d) {
			got = append(got, d)
		}
	}
	if diff := cmp.Diff(devices, got); diff != "" {
		t.Errorf("%s, revoked are (-want +got):\n%s", when, diff)
	}
}

// after lets virtual time pass and everything settle.
func after(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // virtual time
	synctest.Wait()
}

func TestNewsIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		s.order(t, eventlog.Revoke, "d1")
		c := start(t, s)
		c.want(t, "at the start", "d1")
		after(time.Second)
		s.order(t, eventlog.Revoke, "d2")
		c.Changed()
		synctest.Wait() // at once
		c.want(t, "with the news", "d1", "d2")
		if diff := cmp.Diff([]string{"d2"}, c.cut()); diff != "" {
			t.Error(diff)
		}
		if n := testutil.ToFloat64(c.opts.Metrics.devices); n != 2 {
			t.Errorf("the gauge says %v", n)
		}
		s.order(t, eventlog.Restore, "d1")
		s.order(t, eventlog.Revoke, "d2")
		c.Changed()
		after(time.Second)
		c.want(t, "restored", "d2")
		if cuts := c.cut(); len(cuts) > 0 {
			t.Errorf("cut %v again", cuts)
		}
	})
}

// TestLostNewsIsNoticed: within the rhythm of looking, also what an operator
// did by hand.
func TestLostNewsIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		c := start(t, s)
		s.order(t, eventlog.Revoke, "d1")
		s.order(t, eventlog.Revoke, "d2")
		after(40 * time.Second)
		c.want(t, "without news", "d1", "d2")
		s.set(func() { delete(s.lists[event.Shard("d1", shards)].devices, "d1") })
		after(40 * time.Second)
		c.want(t, "taken off by hand", "d2")
		reads := s.reads
		after(10 * time.Minute)
		if s.reads != reads {
			t.Errorf("%d reads of lists that had not changed", s.reads-reads)
		}
	})
}

func TestWhileTheLogIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		s.order(t, eventlog.Revoke, "d1")
		c := start(t, s)
		s.order(t, eventlog.Revoke, "d2")
		s.set(func() { s.away = true })
		c.Changed()
		after(10 * time.Minute)
		c.want(t, "with the log away", "d1")
		if n := testutil.ToFloat64(c.opts.Metrics.failures); n < 10 {
			t.Errorf("%v failures are counted", n)
		}
		s.set(func() { s.away = false })
		after(2 * time.Second)
		c.want(t, "with the log back", "d1", "d2")

		s.set(func() { s.away = true })
		fresh := New(s, Options{Shards: shards, Metrics: NewMetrics(nil)})
		if err := fresh.Load(t.Context()); !errors.Is(err, eventlog.ErrUnavailable) {
			t.Errorf("loading without a log: %v", err)
		}
	})
}

// TestWhatTheLogLostIsGivenAgain: nobody is let in because Redis forgot.
func TestWhatTheLogLostIsGivenAgain(t *testing.T) {
	for name, lose := range map[string]func(*source){
		"everything": func(s *source) {
			s.set(func() { s.lists = newSource().lists })
		},
		"everything, and a new order came": func(s *source) {
			s.set(func() { s.lists = newSource().lists })
			s.order(panics{}, eventlog.Revoke, "d4")
			s.order(panics{}, eventlog.Restore, "d4")
			s.order(panics{}, eventlog.Revoke, "d4")
			s.order(panics{}, eventlog.Restore, "d4")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSource()
				c := start(t, s)
				for _, d := range []string{"d1", "d2", "d3"} {
					s.order(t, eventlog.Revoke, d)
				}
				c.Changed()
				after(time.Second)
				lose(s)
				c.Changed()
				after(3 * time.Second)
				c.want(t, "after the loss", "d1", "d2", "d3")
				fresh := start(t, s)
				fresh.want(t, "for a gateway that knew nothing", "d1", "d2", "d3")
				if r := s.lists[event.Shard("d1", shards)].devices["d1"]; r.Reason != "why d1" {
					t.Errorf("given again as %+v", r)
				}
				s.order(t, eventlog.Restore, "d1")
				c.Changed()
				after(2 * time.Second)
				c.want(t, "restored after the loss", "d2", "d3")
			})
		})
	}
}

type panics struct{}

func (panics) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

// TestThousandsOfOrders: they are read in few rounds, each soon enough.
func TestThousandsOfOrders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		c := start(t, s)
		looks := s.looks
		for i := range 3_000 {
			s.order(t, eventlog.Revoke, fmt.Sprint("till-", i))
			c.Changed()
			after(time.Millisecond)
		}
		after(time.Second)
		if n := s.looks - looks; n > 3_000/int(restLeast.Milliseconds())+2 {
			t.Errorf("%d rounds for 3,000 orders in 3 s", n)
		}
		if n := len(c.cut()); n != 3_000 {
			t.Errorf("%d devices were cut", n)
		}
	})
}

// TestModel holds a gateway's copy against a plain set, whatever happens in
// between: orders with news and without, a log that is put back to an older
// state, gateways that start.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSource()
		var c *Set
		begin := func() {
			c = New(s, Options{Shards: shards, Metrics: NewMetrics(nil), Logger: slog.New(slog.DiscardHandler)})
			if err := c.Load(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		begin()
		want, wantThen := map[string]bool{}, map[string]bool{}
		older := s.snapshot()
		order := func(kind eventlog.ControlKind) {
			d := fmt.Sprint("d", rapid.IntRange(0, 5).Draw(t, "device"))
			s.order(t, kind, d)
			want[d] = kind == eventlog.Revoke
		}
		settle := func() {
			for range 3 { // one that finds a loss, one that reads what was given again, and one for nothing
				if err := c.round(t.Context(), func(string) {}); err != nil {
					t.Fatal(err)
				}
			}
			for i := range 6 {
				d := fmt.Sprint("d", i)
				if c.Has(d) != want[d] || want[d] && s.lists[event.Shard(d, shards)].devices[d].Device != d {
					t.Fatalf("%s is revoked: %v, want %v", d, c.Has(d), want[d])
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"revoke":  func(*rapid.T) { order(eventlog.Revoke) },
			"restore": func(*rapid.T) { order(eventlog.Restore) },
			"settle":  func(*rapid.T) { settle() },
			"keep":    func(*rapid.T) { older, wantThen = s.snapshot(), maps.Clone(want) },
			"lose": func(*rapid.T) { // what was known counts, and so does what is listed again
				settle()
				older()
				for d, revoked := range wantThen {
					want[d] = want[d] || revoked
				}
				settle()
			},
			"restart": func(*rapid.T) {
				settle()
				begin()
				settle()
			},
		})
	})
}
