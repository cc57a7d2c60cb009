package lease

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"downlink/internal/eventlog/redislog"
	"downlink/internal/testkit"
)

// fastTTL leaves room for a machine that is busy: a tick is 100 ms.
const fastTTL = 1500 * time.Millisecond

// A fleet is members on a real Redis, each with connections of its own, and
// somebody who looks all the time whether two may write to one shard.
type fleet struct {
	testing.TB
	all []*gateway

	mu      sync.Mutex
	looks   int
	doubles []string
	excused time.Time // until when somebody's tampering may show
}

func newFleet(tb testing.TB) *fleet {
	f := &fleet{TB: tb}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				f.look()
			}
		}
	}()
	tb.Cleanup(func() {
		close(stop)
		<-stopped
		f.part()
	})
	return f
}

func (f *fleet) look() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks++
	for shard := range modelShards {
		f.lookAt(shard)
	}
}

// lookAt looks who may write to a shard. It may be held up between two members, and
// the shard change hands meanwhile: so it asks the first one again after the second.
func (f *fleet) lookAt(shard int) {
	var first *gateway
	var held Lease
	for _, g := range f.all {
		l, ok := g.writes(shard)
		switch {
		case !ok:
		case first == nil:
			first, held = g, l
		default:
			still, ok := first.writes(shard)
			if ok && still.Generation == held.Generation && (time.Now().After(f.excused) || held.Generation == l.Generation) {
				f.doubles = append(f.doubles, fmt.Sprintf("%+v and %+v", still, l))
			}
		}
	}
}

// writes is the lease by which a gateway may write to a shard.
func (g *gateway) writes(shard int) (Lease, bool) {
	l, ok := g.Lease(shard)
	return l, ok && l.Live(time.Now())
}

func (f *fleet) part() {
	for _, g := range f.all {
		g.check(f)
	}
	if len(f.doubles) > 0 || f.looks == 0 {
		f.Errorf("in %d looks, two could write %d times; first %v", f.looks, len(f.doubles), f.doubles)
	}
}

// come adds a member that is connected by the URL.
func (f *fleet) come(name, url string, change func(*redislog.Options)) *gateway {
	f.Helper()
	g := start(f, connect(f, url, change), name, modelShards, func(o *Options) {
		o.TTL, o.Leave, o.Moves = fastTTL, 2*time.Second, modelShards
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, g)
	f.Cleanup(g.leave) // before its log is closed
	return g
}

// tamper does what nobody should: two may hold a shard until the TTL has passed.
func (f *fleet) tamper(do func()) {
	f.excuse(time.Hour)
	do()
	f.excuse(fastTTL)
}

func (f *fleet) excuse(lasts time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.excused = time.Now().Add(lasts)
}

// await waits until these have everything, in equal shares.
func (f *fleet) await(what string, of ...*gateway) {
	f.Helper()
	testkit.Eventually(f, what, func() bool {
		var shards []int
		for _, g := range of {
			live := g.live()
			if len(live) < modelShards/len(of) {
				return false
			}
			shards = append(shards, live...)
		}
		slices.Sort(shards)
		return slices.Equal(shards, all(modelShards))
	})
}

// settled waits for some members to have everything, and returns what they have
// taken and let go of so far.
func (f *fleet) settled(what string, of ...*gateway) (took, lets int) {
	f.Helper()
	f.await(what, of...)
	for _, g := range of {
		t, l := g.note()
		took, lets = took+len(t), lets+len(l)
	}
	return took, lets
}

func through(p *testkit.Proxy) string { return (&url.URL{Scheme: "redis", Host: p.Addr()}).String() }

// TestComeAndGo: shards move to who comes, and back from who goes.
func TestComeAndGo(t *testing.T) {
	t.Parallel()
	r := testkit.StartRedis(t)
	f := newFleet(t)
	a := f.come("a", r.URL(), nil)
	f.await("one has all", a)
	b := f.come("b", r.URL(), nil)
	f.await("two have a half each", a, b)
	c := f.come("c", r.URL(), nil)
	f.await("three have a third each", a, b, c)
	b.leave()
	f.await("two have a half again", a, c)
	testkit.Eventually(t, "shard 0 is a's or c's for Redis too", func() bool {
		n := r.Do("GET", "pos-ev:own:0")
		return n == "a" || n == "c"
	})
	took, _ := b.note()
	shards := map[int]bool{} // some perhaps taken again, if the machine stood still
	for _, l := range took {
		shards[l.Shard] = true
	}
	if n := len(shards); n < modelShards/3 || n > modelShards/2 {
		t.Errorf("b took %v", took)
	}
}

// TestFrozenOnRedis: who can't reach Redis for twice the TTL writes nothing past
// its deadline, keeps its connections until it learns that others have its
// shards, and then lets go of them at once.
func TestFrozenOnRedis(t *testing.T) {
	t.Parallel()
	r := testkit.StartRedis(t)
	p := testkit.StartProxy(t, r.Addr())
	f := newFleet(t)
	a := f.come("a", through(p), nil)
	f.await("one has all", a)
	b := f.come("b", r.URL(), nil)
	f.await("two have a half each", a, b)
	p.Stall()
	f.await("the other one has all", b)
	if len(a.live()) > 0 {
		t.Errorf("a may still write to %v", a.live())
	}
	if _, lets := a.note(); !slices.Equal(lets, slices.Repeat([]Loss{LossMoved}, modelShards/2)) {
		t.Errorf("a has let go of shards while it was cut off: %v", lets)
	}
	p.Resume()
	f.await("both have a half again", a, b)
	if _, lets := a.note(); !slices.Contains(lets, LossTaken) {
		t.Errorf("a let go of %v", lets)
	}
}

// TestAwayAndBack: while Redis is away for everybody nobody lets go of anything,
// and when it is back all go on with what they had.
func TestAwayAndBack(t *testing.T) {
	t.Parallel()
	r := testkit.StartRedis(t)
	f := newFleet(t)
	a, b := f.come("a", r.URL(), nil), f.come("b", r.URL(), nil)
	_, before := f.settled("two have a half each", a, b)
	r.Stop()
	testkit.Eventually(t, "nobody may write", func() bool { return len(a.live())+len(b.live()) == 0 })
	r.Cont()
	if _, after := f.settled("all go on", a, b); after != before {
		t.Errorf("%d shards were let go of, %d before", after, before)
	}
}

// TestTamperingOnRedis: deleted leases are taken again at once, flushed scripts
// and data are made up for, and what is given to somebody else is let go of.
func TestTamperingOnRedis(t *testing.T) {
	t.Parallel()
	r := testkit.StartRedis(t)
	f := newFleet(t)
	a, b := f.come("a", r.URL(), nil), f.come("b", r.URL(), nil)
	took, lets := f.settled("two have a half each", a, b)
	f.tamper(func() {
		r.Do("SCRIPT", "FLUSH")
		for i := range modelShards {
			r.Do("DEL", "pos-ev:own:"+strconv.Itoa(i))
		}
	})
	testkit.Eventually(t, "deleted leases are taken again", func() bool {
		now, _ := f.settled("all go on", a, b)
		return now >= took+modelShards // or more, if some have run out as well
	})
	f.tamper(func() { r.Do("FLUSHALL") })
	testkit.Eventually(t, "flushed leases are taken again", func() bool {
		now, _ := f.settled("all go on", a, b)
		return now >= took+2*modelShards
	})
	if _, now := f.settled("all go on", a, b); now != lets {
		t.Errorf("%d shards were let go of, %d before", now, lets)
	}
	taken, _ := a.note()
	mine := taken[len(taken)-1].Shard
	f.tamper(func() { r.Do("SET", "pos-ev:own:"+strconv.Itoa(mine), "somebody") })
	testkit.Eventually(t, "a shard that was given away is let go of", func() bool {
		_, lets := a.note()
		return slices.Contains(lets, LossTaken)
	})
	f.await("it comes back, though it had no expiry", a, b)
}

// TestClusterMoves: the slots of leases move to another master, and a master is
// replaced, while nobody lets go of anything.
func TestClusterMoves(t *testing.T) {
	t.Parallel()
	c := testkit.StartCluster(t, 2, 1)
	f := newFleet(t)
	a, b := f.come("a", c.URL(), nil), f.come("b", c.URL(), nil)
	_, lets := f.settled("two have a half each", a, b)
	var keys []any
	testkit.Eventually(t, "half of the leases are at one of two masters", func() bool {
		keys = c.Servers[0].Do("KEYS", "pos-ev:*:own:*").([]any)
		return len(keys) == modelShards/2
	})
	slot := c.SlotOf(keys[0].(string))
	c.Migrate(slot, c.Servers[1])
	if c.SlotOf(keys[0].(string)) != slot || c.MasterOf(slot) != c.Servers[1] {
		t.Fatal("the slot hasn't moved")
	}
	c.Failover(c.ReplicaOf(c.Servers[1]))
	took, _ := f.settled("all go on", a, b)
	r := c.MasterOf(slot)
	r.Do("DEL", keys[0].(string))
	testkit.Eventually(t, "the new master is asked", func() bool { now, _ := f.settled("all go on", a, b); return now > took })
	if _, now := f.settled("all go on", a, b); now != lets {
		t.Errorf("%d shards were let go of, %d before", now, lets)
	}
}

// TestCleanFailover: a promotion that loses nothing changes nothing.
func TestCleanFailover(t *testing.T) {
	t.Parallel()
	p := testkit.StartPair(t)
	f := newFleet(t)
	a, b := f.come("a", p.URL(), nil), f.come("b", p.URL(), nil)
	_, lets := f.settled("two have a half each", a, b)
	primary, replica := p.Primary(), p.Replica()
	primary.AwaitReplica()
	primary.Kill9()
	p.AwaitPrimary(replica)
	if _, now := f.settled("all go on", a, b); now != lets {
		t.Errorf("%d shards were let go of, %d before", now, lets)
	}
}

// TestLossyFailover: the new primary doesn't know that one has left and the other
// has everything. The generations rise nevertheless, and all is put right.
func TestLossyFailover(t *testing.T) {
	t.Parallel()
	p := testkit.StartPair(t)
	f := newFleet(t)
	a, b := f.come("a", p.URL(), nil), f.come("b", p.URL(), nil)
	f.await("two have a half each", a, b)
	primary, replica := p.Primary(), p.Replica()
	primary.CutReplicas(replica)
	b.leave()
	f.await("a has all", a)
	before := make([]Lease, modelShards)
	for i := range before {
		before[i], _ = a.Lease(i)
	}
	f.tamper(func() {
		primary.Kill9()
		p.AwaitPrimary(replica)
	})
	f.await("a has all again, or still", a)
	testkit.Eventually(t, "the new primary agrees", func() bool {
		for i := range modelShards {
			if replica.Do("GET", "pos-ev:own:"+strconv.Itoa(i)) != "a" {
				return false
			}
		}
		return true
	})
	for i, l := range before {
		if now, ok := a.Lease(i); ok && now.Generation < l.Generation {
			t.Errorf("the generation of shard %d fell from %d to %d", i, l.Generation, now.Generation)
		}
	}
}

// TestListMissesAServer: with one server of a list away, the shards of the
// others move to who comes and from who is gone, and go on.
func TestListMissesAServer(t *testing.T) {
	t.Parallel()
	servers, urls := list(t, 2)
	f := newFleet(t)
	a, b := f.come("a", urls, nil), f.come("b", urls, nil)
	f.await("two have a half each", a, b)
	servers[0].Stop()
	testkit.Eventually(t, "only the other server's shards go on", func() bool {
		now := slices.Concat(a.live(), b.live())
		slices.Sort(now)
		return slices.Equal(now, []int{1, 3, 5, 7})
	})
	b.leave()
	testkit.Eventually(t, "a takes what it can", func() bool { return slices.Equal(a.live(), []int{1, 3, 5, 7}) })
	servers[0].Cont()
	f.await("a has all", a)
}
