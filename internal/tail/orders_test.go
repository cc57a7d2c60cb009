package tail

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// obeying notes orders among the source's calls.
type obeying struct{ *source }

func (o obeying) Order(_ int, order eventlog.Control) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.note("%s %s", order.Kind, order.Device)
}

func (o obeying) Doubt(int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.note("doubt")
}

func (s *source) order(order eventlog.Control) {
	s.do(func() {
		s.state.Head = s.state.Head.Next()
		s.entries = append(s.entries, eventlog.Entry{ID: s.state.Head, Event: order.Event()})
	})
}

// obeyed runs a tail whose orders are noted, and returns what was noted since
// it began.
func obeyed(t *testing.T, s *source) func() []string {
	s.orders = obeying{s}
	s.run(t)
	after(time.Second)
	want(t, s, "start 1000-0", "doubt")
	return func() []string { return s.seen()[2:] }
}

func TestOrdersAreHeardInTheirPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		seen := obeyed(t, s)
		s.order(eventlog.Control{Kind: eventlog.Revoke, Device: "a"})
		after(time.Second)
		s.append(1)
		after(time.Second)
		s.order(eventlog.Control{Kind: eventlog.Restore, Device: "a"})
		after(time.Minute)
		if diff := cmp.Diff([]string{"entry 1000-1", "revoke a", "entry 1000-2", "entry 1000-3", "restore a"}, seen()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestWhereOrdersMayBeMissedItIsSaid(t *testing.T) {
	for name, c := range map[string]struct {
		fault func(*source)
		want  []string
	}{
		"the log was lost": {
			fault: func(s *source) {
				s.do(func() {
					s.state.Head, s.state.Founded, s.state.Since = event.ID{Ms: 2000}, event.ID{Ms: 2000}, event.ID{Ms: 2000}
				})
			},
			want: []string{"suspect 1000-0", "reset 2000-0 log-rewound", "doubt"},
		},
		"the sweep was faster": {
			fault: func(s *source) {
				s.do(func() { s.deaf = true })
				s.append(2)
				s.sweep(s.state.Head)
			},
			want: []string{"overtaken 1000-2", "doubt"},
		},
		"the log was away": {
			fault: func(s *source) {
				s.do(func() { s.away = true })
				after(5 * time.Second)
				s.do(func() { s.away = false })
				after(5 * time.Second)
			},
			want: []string{"doubt"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSource()
				seen := obeyed(t, s)
				c.fault(s)
				after(3 * time.Second)
				if diff := cmp.Diff(c.want, seen()); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// TestExamine: an order that can't be read or is in a shard that isn't its
// device's is passed over as any such entry.
func TestExamine(t *testing.T) {
	const shards = 4
	r := newReader(newSource(), newSource(), Options{Metrics: NewMetrics(nil), Logger: discard()}, 0, shards, []int{0, 1, 2, 3})
	device := "pos-1"
	home := event.Shard(device, shards)
	order := eventlog.Control{Kind: eventlog.Disconnect, Device: device}
	broken := order.Event()
	broken.Type = "destroy"
	b := eventlog.Batch{Shard: home, Entries: []eventlog.Entry{
		{Event: event.Event{Target: device, Type: "t"}}, {Event: order.Event()}, {Event: broken},
		{Event: event.Event{Target: event.Broadcast, Type: "t"}}, {Fault: eventlog.FaultDevice},
	}}
	faults := func() (list []eventlog.Fault) {
		for _, e := range b.Entries {
			list = append(list, e.Fault)
		}
		return list
	}
	if diff := cmp.Diff([]eventlog.Control{order}, r.examine(b)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]eventlog.Fault{"", "", eventlog.FaultControl, "", eventlog.FaultDevice}, faults()); diff != "" {
		t.Error(diff)
	}
	b.Shard = (home + 1) % shards
	if got := r.examine(b); len(got) > 0 {
		t.Errorf("orders of another shard's device: %v", got)
	}
	if diff := cmp.Diff([]eventlog.Fault{eventlog.FaultShard, eventlog.FaultShard, eventlog.FaultControl, "", eventlog.FaultDevice}, faults()); diff != "" {
		t.Error(diff)
	}
}
