package shard

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// device is a client that commits what it has handled, and moves between
// gateways with its cursor.
type device struct {
	name    string
	log     *memlog
	cursor  event.ID // zero until it has got one
	on      *gateway
	sub     *listener
	member  *Member
	counted int // resyncs seen
}

func (d *device) mine(target string) bool { return target == d.name || target == event.Broadcast }

func (d *device) attach(g *gateway, room int) error {
	start := Start{Cursor: d.cursor}
	if d.cursor.IsZero() {
		start = Start{Reason: event.NoCursor}
	}
	d.on, d.sub, d.counted = g, &listener{room: room}, 0
	var err error
	d.member, err = g.Attach(d.sub, d.name, nil, start)
	return err
}

func (d *device) leave() {
	if d.member != nil {
		d.member.Detach()
		d.member, d.sub, d.on = nil, nil, nil
	}
}

// take handles up to n pending frames and holds each against the history.
func (d *device) take(n int) error {
	if err := d.takeResync(); err != nil {
		return err
	}
	for ; n > 0 && len(d.sub.pending) > 0; n-- {
		m := d.sub.pending[0]
		d.sub.pending = d.sub.pending[1:]
		if err := d.mayGet(m); err != nil {
			return err
		}
		d.cursor = m.ID
	}
	d.member.Resume()
	return d.takeResync()
}

func (d *device) takeResync() error {
	for ; d.counted < len(d.sub.resyncs); d.counted++ {
		r := d.sub.resyncs[d.counted]
		missed, any := d.next(d.log.state.Swept)
		switch {
		case r.reason == event.NoCursor:
		case r.reason != event.WindowExpired:
			return fmt.Errorf("%s at %v: unjustified resync %v", d.name, d.cursor, r.reason)
		case !any:
			return fmt.Errorf("%s at %v: %v although nothing for it was removed (swept %v)", d.name, d.cursor, r.reason, d.log.state.Swept)
		case r.at.Less(missed):
			return fmt.Errorf("%s: resync at %v doesn't pass what was removed, %v", d.name, r.at, missed)
		}
		d.cursor = r.at
	}
	return nil
}

// mayGet holds the next frame against the history: it is for the device, comes
// after its cursor, and leaves out nothing but what a newer event of the same key
// has made needless, which isn't left out either.
func (d *device) mayGet(m *Message) error {
	i := slices.IndexFunc(d.log.history, func(e eventlog.Entry) bool { return e.ID == m.ID })
	if i < 0 || !d.mine(m.Target) || d.log.history[i].Event.Target != m.Target || !d.cursor.Less(m.ID) {
		return fmt.Errorf("%s at %v got %v, for %s", d.name, d.cursor, m.ID, m.Target)
	}
	if missed, any := d.needed(m.ID); any && missed.Less(m.ID) {
		return fmt.Errorf("%s at %v got %v, the history has %v next", d.name, d.cursor, m.ID, missed)
	}
	return nil
}

// next is the first event for the device after its cursor, up to a bound, in
// all of history.
func (d *device) next(upTo event.ID) (event.ID, bool) {
	return d.first(upTo, func(int) bool { return true })
}

// needed is the first that no newer event of its key makes needless.
func (d *device) needed(upTo event.ID) (event.ID, bool) {
	return d.first(upTo, func(i int) bool { return !d.log.superseded(i) })
}

func (d *device) first(upTo event.ID, which func(i int) bool) (event.ID, bool) {
	for i, e := range d.log.history {
		if d.cursor.Less(e.ID) && e.ID.Compare(upTo) <= 0 && d.mine(e.Event.Target) && which(i) {
			return e.ID, true
		}
	}
	return event.ID{}, false
}

// keepAlive takes the position that a quiet session is told.
func (d *device) keepAlive() error {
	position, ok := d.member.Position()
	if !ok || len(d.sub.pending) > 0 || d.counted < len(d.sub.resyncs) || !d.cursor.Less(position) {
		return nil
	}
	if missed, any := d.needed(position); any {
		return fmt.Errorf("%s at %v was told position %v, but %v lies before it", d.name, d.cursor, position, missed)
	}
	d.cursor = position
	return nil
}

// weight is what the window holds: each topic as long as its newest event is there.
func (h *hot) weight() (bytes int) {
	newest := make(map[topicName]*topic)
	for _, m := range h.window() {
		bytes += m.Size()
		if m.topic != nil {
			newest[m.topic.topicName] = m.topic
		}
	}
	for _, t := range newest {
		bytes += t.size()
	}
	if len(newest) != len(h.topics) {
		return -1
	}
	return bytes
}

// TestPromise states what a shard is for: for every interleaving of appends,
// dispatch, sweeps, moves between gateways, slow sinks and laps, a device gets
// exactly what is for it, in order, once; or is told, and then only if
// something for it is really gone.
func TestPromise(t *testing.T) {
	for range 20 { // times rapid's own 100
		rapid.Check(t, func(t *rapid.T) { promise(t, "") })
	}
}

// TestPromiseWithKeys: of events with a key a device may get only the newest, and
// does get it.
func TestPromiseWithKeys(t *testing.T) {
	for range 20 {
		rapid.Check(t, func(t *rapid.T) { promise(t, "", "k", "l") })
	}
}

func promise(t *rapid.T, keys ...string) {
	log := newMemlog()
	gateways := []*gateway{newGateway(log, 2000), newGateway(log, 4000)}
	for _, g := range gateways {
		g.Start(log.state.Head)
	}
	devices := []*device{{name: "a", log: log}, {name: "b", log: log}, {name: "c", log: log}}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	actions := map[string]func(*rapid.T){
		"append": func(t *rapid.T) {
			for range rapid.IntRange(1, 6).Draw(t, "n") {
				to := rapid.SampledFrom([]string{"a", "b", "c", "*", "x"}).Draw(t, "to")
				log.append(event.Event{Target: to, Type: "t", Key: rapid.SampledFrom(keys).Draw(t, "key")})
			}
		},
		"dispatch": func(t *rapid.T) {
			rapid.SampledFrom(gateways).Draw(t, "gateway").follow(rapid.IntRange(1, 5).Draw(t, "n"))
		},
		"sweep": func(t *rapid.T) { log.sweep(rapid.IntRange(1, 4).Draw(t, "n")) },
		"connect": func(t *rapid.T) {
			d := rapid.SampledFrom(devices).Draw(t, "device")
			d.leave()
			must(d.attach(rapid.SampledFrom(gateways).Draw(t, "gateway"), rapid.IntRange(1, 4).Draw(t, "room")))
		},
		"take": func(t *rapid.T) {
			if d := rapid.SampledFrom(devices).Draw(t, "device"); d.sub != nil {
				must(d.take(rapid.IntRange(0, 4).Draw(t, "n")))
			}
		},
		"keep-alive": func(t *rapid.T) {
			if d := rapid.SampledFrom(devices).Draw(t, "device"); d.sub != nil {
				must(d.takeResync())
				must(d.keepAlive())
			}
		},
		"lap": func(t *rapid.T) { must(rapid.SampledFrom(gateways).Draw(t, "gateway").laps()) },
	}
	log.between = func() {
		name := rapid.SampledFrom([]string{"nothing", "append", "dispatch", "sweep", "connect", "take", "keep-alive"}).Draw(t, "meanwhile")
		if act := actions[name]; act != nil {
			act(t)
		}
	}
	t.Repeat(actions)
	log.between = nil
	settle(t, gateways, devices)
}

// settle lets everything catch up; then nobody may lack anything.
func settle(t *rapid.T, gateways []*gateway, devices []*device) {
	for range 200 {
		for _, g := range gateways {
			g.follow(1000)
			if err := g.laps(); err != nil {
				t.Fatal(err)
			}
		}
		for _, d := range devices {
			if d.sub != nil {
				if err := d.take(1000); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for _, d := range devices {
		if d.sub == nil {
			continue
		}
		if missed, any := d.needed(event.MaxID); any {
			t.Fatalf("%s stands at %v for ever and never gets %v", d.name, d.cursor, missed)
		}
		if _, ok := d.member.Position(); !ok {
			t.Fatalf("%s never becomes live", d.name)
		}
	}
	for _, g := range gateways {
		if g.hot.bytes < 0 || !slices.IsSortedFunc(g.hot.window(), func(a, b *Message) int { return a.ID.Compare(b.ID) }) {
			t.Fatalf("the hot window is in disorder: %d bytes", g.hot.bytes)
		}
		if bytes := g.hot.weight(); bytes != g.hot.bytes {
			t.Fatalf("the hot window holds %d bytes and counts %d", bytes, g.hot.bytes)
		}
	}
}
