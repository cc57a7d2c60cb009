package lease

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

const modelTTL = 15 * time.Second

// A step of the model: what happens to which member, and how much time passes
// after it.
type step struct {
	What string
	Who  int
	Pass time.Duration
}

func steps(what ...string) *rapid.Generator[[]step] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			What: rapid.SampledFrom(what).Draw(t, "what"),
			Who:  rapid.IntRange(0, 4).Draw(t, "who"),
			Pass: rapid.SampledFrom([]time.Duration{0, 400 * time.Millisecond, 3 * time.Second, 7 * time.Second, modelTTL, 3 * modelTTL}).Draw(t, "pass"),
		}
	}), 1, 20)
}

// A world is members on one keeper. It looks for two that may write to one
// shard.
type world struct {
	t      *testing.T
	keeper *memory
	seats  [5]*gateway
	dead   []*gateway
	foul   time.Time // until when somebody's tampering may show
	fails  []string
}

const modelShards = 8

// TestAtMostOneWrites: whatever happens to members and to what they say to the
// keeper, no two may write to a shard at any time, generations rise, and when
// all is well again everybody has what the ring proposes.
func TestAtMostOneWrites(t *testing.T) {
	model(t, "come", "come", "leave", "crash", "cut", "deaf", "heal", "slow", "wait")
}

// TestTampering: where somebody deletes leases, gives them away or loses all of
// them, two may hold one for a while; their generations differ, so that a device
// knows whom to refuse, and it is over within the TTL.
func TestTampering(t *testing.T) {
	model(t, "come", "come", "leave", "crash", "cut", "heal", "delete", "give", "flush", "rewind", "wait")
}

func model(t *testing.T, what ...string) {
	rapid.Check(t, func(rt *rapid.T) {
		all := steps(what...).Draw(rt, "steps")
		var fails []string
		synctest.Test(t, func(t *testing.T) {
			w := &world{t: t, keeper: newMemory(modelShards)}
			for _, s := range all {
				w.do(s)
			}
			w.end()
			fails = w.fails
		})
		if len(fails) > 0 {
			rt.Fatalf("%d failures; the first: %s", len(fails), fails[0])
		}
	})
}

func (w *world) fail(format string, args ...any) {
	w.fails = append(w.fails, fmt.Sprintf(format, args...))
}

func (w *world) do(s step) {
	g := w.seats[s.Who]
	shard := (s.Who * 3) % modelShards
	switch {
	case s.What == "come" && g == nil:
		w.seats[s.Who] = start(w.t, w.keeper, fmt.Sprintf("gateway-%d", s.Who), modelShards, nil)
	case s.What == "flush":
		w.tamper(func() { clear(w.keeper.leases); clear(w.keeper.members) })
	case s.What == "delete":
		w.tamper(func() { delete(w.keeper.leases, shard) })
	case s.What == "give":
		w.tamper(func() { w.keeper.leases[shard] = memoryLease{owner: fmt.Sprintf("gateway-%d", (s.Who+1)%len(w.seats))} })
	case s.What == "rewind": // to a server that had an older state
		w.tamper(func() {
			delete(w.keeper.leases, shard)
			r := w.keeper.records[shard]
			w.keeper.records[shard] = memoryRecord{generation: r.generation / 2, nonce: "another", ttl: r.ttl}
		})
	case g == nil:
	case s.What == "leave":
		w.seats[s.Who] = nil
		w.dead = append(w.dead, g)
		g.stop()
		for !g.gone() {
			w.pass(100 * time.Millisecond)
		}
	case s.What == "crash":
		w.seats[s.Who] = nil
		w.dead = append(w.dead, g)
		w.set(g, true, false)
		g.stop()
	case s.What == "cut":
		w.set(g, true, false)
	case s.What == "deaf":
		w.set(g, false, true)
	case s.What == "heal":
		w.set(g, false, false)
	case s.What == "slow":
		g.mu.Lock()
		g.hold = 2 * modelTTL
		g.mu.Unlock()
	}
	w.pass(s.Pass)
}

func (w *world) tamper(f func()) {
	w.keeper.change(f)
	w.foul = time.Now().Add(modelTTL)
}

func (w *world) set(g *gateway, cut, deaf bool) {
	w.keeper.change(func() { w.keeper.cut[g.who.Nonce], w.keeper.deaf[g.who.Nonce] = cut, deaf })
}

// pass lets time go by and looks at what everybody may do.
func (w *world) pass(d time.Duration) {
	const look = 100 * time.Millisecond
	for ; d >= 0; d -= look {
		synctest.Wait()
		w.look()
		if d > 0 {
			pass(min(d, look))
		}
	}
}

func (w *world) look() {
	writers := map[int]*gateway{}
	for _, g := range w.seats {
		if g == nil {
			continue
		}
		for _, shard := range g.live() {
			other := writers[shard]
			writers[shard] = g
			if other == nil {
				continue
			}
			a, _ := other.Lease(shard)
			b, _ := g.Lease(shard)
			if a.Generation == b.Generation {
				w.fail("%s and %s hold shard %d with one generation", a.Owner, b.Owner, shard)
			}
			if !time.Now().Before(w.foul) {
				w.fail("%s and %s may both write to shard %d: %+v, %+v", a.Owner, b.Owner, shard, a, b)
			}
		}
	}
}

// end makes everything well, and looks whether it becomes so.
func (w *world) end() {
	for _, g := range w.seats {
		if g != nil {
			w.set(g, false, false)
		}
	}
	w.pass(6 * modelTTL)
	var writers []*gateway
	shards := []int{}
	for _, g := range w.seats {
		if g != nil && !g.gone() {
			writers = append(writers, g)
			shards = append(shards, g.live()...)
		}
	}
	slices.Sort(shards)
	if len(writers) > 0 && !slices.Equal(shards, all(modelShards)) {
		w.fail("in the end %v may be written to: %+v", shards, writers[0].Status())
	}
	for _, g := range writers {
		if n := len(g.live()); n < modelShards/len(writers) || n > (modelShards+len(writers)-1)/len(writers) {
			w.fail("in the end %s has %d of %d shards, with %d members", g.name, n, modelShards, len(writers))
		}
	}
	w.part()
}

// gone reports whether a member has ended.
func (g *gateway) gone() bool {
	select {
	case <-g.done:
		return true
	default:
		return false
	}
}

// part has everybody leave, and looks at what they saw.
func (w *world) part() {
	for _, g := range w.seats {
		if g != nil {
			g.leave()
			w.dead = append(w.dead, g)
		}
	}
	highest := map[int]uint64{}
	for _, g := range w.dead {
		<-g.done
		g.mu.Lock()
		w.fails = append(w.fails, g.wrong...)
		if len(g.ours)+len(g.going) > 0 {
			w.fail("%s has left and holds %v, lets go of %v", g.name, g.ours, g.going)
		}
		for _, l := range g.took {
			highest[l.Shard] = max(highest[l.Shard], l.Generation)
		}
		g.mu.Unlock()
	}
	w.keeper.change(func() {
		for shard, generation := range highest {
			if now := w.keeper.records[shard].generation; now < generation && w.foul.IsZero() {
				w.fail("the generation of shard %d has fallen from %d to %d", shard, generation, now)
			}
		}
	})
}

// TestOutageForAll: whenever the keeper goes away for everybody, for however long,
// and in whatever order members reach it again, nobody lets go of anything.
func TestOutageForAll(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		members := rapid.IntRange(1, 5).Draw(rt, "members")
		before := time.Duration(rapid.IntRange(0, int(modelTTL)).Draw(rt, "before"))
		late := rapid.IntRange(0, members-1).Draw(rt, "late") // so many come back later than the others
		frozen := rapid.Bool().Draw(rt, "frozen")             // it doesn't answer; otherwise it refuses
		outage := time.Duration(rapid.IntRange(0, int(4*modelTTL)).Draw(rt, "outage"))
		var fails []string
		synctest.Test(t, func(t *testing.T) {
			w := &world{t: t, keeper: newMemory(modelShards)}
			for i := range members {
				w.do(step{What: "come", Who: i})
			}
			w.pass(4 * modelTTL)
			lets := w.lets()
			pass(before)
			for _, g := range w.seats[:members] {
				w.away(g, true, frozen)
			}
			w.pass(outage)
			for _, g := range w.seats[late:members] {
				w.away(g, false, frozen)
			}
			if !frozen { // whose calls hang comes back late enough
				w.pass(modelTTL * 2 / 5)
			}
			for _, g := range w.seats[:late] {
				w.away(g, false, frozen)
			}
			w.pass(3 * modelTTL)
			if now := w.lets(); now != lets {
				w.fail("%d shards were let go of, %d before", now, lets)
			}
			w.end()
			fails = w.fails
		})
		if len(fails) > 0 {
			rt.Fatalf("%d failures; the first: %s", len(fails), fails[0])
		}
	})
}

func (w *world) away(g *gateway, away, frozen bool) {
	w.keeper.change(func() {
		if frozen {
			w.keeper.cut[g.who.Nonce] = away
		} else {
			w.keeper.refused[g.who.Nonce] = away
		}
	})
}

// lets is how many shards were let go of so far.
func (w *world) lets() (n int) {
	for _, g := range w.seats {
		if g != nil {
			_, lets := g.note()
			n += len(lets)
		}
	}
	return n
}
