package plan_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"downlink/internal/eventlog"
	"downlink/internal/eventlog/redislog"
	"downlink/internal/lease"
	"downlink/internal/plan"
	"downlink/internal/ring"
	"downlink/internal/testkit"

	"github.com/prometheus/client_golang/prometheus"
)

// TestTwentyMembersBecomeTwentyOne, with leases on a real Redis: the devices
// whose owner is another one then are just as many as the plan says.
func TestTwentyMembersBecomeTwentyOne(t *testing.T) {
	t.Parallel()
	ask := change()
	p, err := plan.Ring(ask)
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{shards: make([]ring.Shard, ask.Shards)}
	for n := range ask.Members {
		f.resize(n + 1)
	}
	log := openLog(t, ask.Shards)
	remember(t, log, f)

	party := newParty(t, log, ask.Shards)
	party.size.Store(int64(ask.Members))
	for _, name := range f.names {
		party.join(name)
	}
	party.await(f.holders())
	before := f.holders()

	f.resize(ask.Members + 1)
	party.size.Store(int64(ask.Members) + 1)
	party.join(f.names[ask.Members])
	takes := party.await(f.holders())
	for shard, owner := range f.holders() {
		if owner == before[shard] && takes[shard] > 0 {
			t.Errorf("shard %d changed hands though its owner stays", shard)
		}
	}
	moved := simulate(ask.Devices, ownerIn(before), f.owner())
	hash := simulate(ask.Devices, hashed(20), hashed(21))
	compare(t, "the ring", p.Ring, moved)
	compare(t, "hash % members", p.Hash, hash)
	t.Logf("of %d devices the ring moved %d (%.1f %%), and hash %% members would %d (%.1f %%)", ask.Devices,
		moved.moved, 100*float64(moved.moved)/float64(ask.Devices), hash.moved, 100*float64(hash.moved)/float64(ask.Devices))
}

func openLog(t *testing.T, shards int) *redislog.Log {
	t.Helper()
	log, err := redislog.Open(t.Context(), redislog.Options{
		URL: testkit.StartRedis(t).URL(), Shards: shards, AllowEviction: true,
		Logger: slog.New(slog.DiscardHandler), Metrics: redislog.NewMetrics(prometheus.NewRegistry()),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	return log
}

// remember lets each member of a fleet have held its shards once, as if the
// whole fleet had been stopped.
func remember(t *testing.T, keeper eventlog.LeaseKeeper, f *fleet) {
	t.Helper()
	for _, group := range keeper.Groups() {
		for _, shard := range group {
			who := eventlog.Claimant{Name: f.shards[shard].Owner, Nonce: "before", TTL: time.Minute}
			for _, want := range []eventlog.LeaseWant{eventlog.LeaseTake, eventlog.LeaseDrop} {
				a := eventlog.LeaseAsk{Shard: shard, Want: want}
				if want == eventlog.LeaseDrop {
					a.Held = held(t, keeper, who, shard)
				}
				if _, err := keeper.Leases(t.Context(), who, []eventlog.LeaseAsk{a}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

func held(t *testing.T, keeper eventlog.LeaseKeeper, who eventlog.Claimant, shard int) uint64 {
	t.Helper()
	states, err := keeper.Leases(t.Context(), who, []eventlog.LeaseAsk{{Shard: shard, Want: eventlog.LeaseLook}})
	if err != nil || !states[0].Mine {
		t.Fatalf("%+v %v", states, err)
	}
	return states[0].Generation
}

// A party is members in one process, and what each has taken.
type party struct {
	t      *testing.T
	log    *redislog.Log
	shards int
	ctx    context.Context
	runs   sync.WaitGroup
	size   atomic.Int64 // when it is complete

	mu    sync.Mutex
	owner []string // by shard; empty: nobody
	last  []string // the same, but for those that nobody has
	takes []int    // by another member than the last, since the last await
}

func newParty(t *testing.T, log *redislog.Log, shards int) *party {
	ctx, leave := context.WithCancel(context.Background())
	p := &party{t: t, log: log, shards: shards, ctx: ctx, owner: make([]string, shards), last: make([]string, shards), takes: make([]int, shards)}
	t.Cleanup(func() {
		leave()
		p.runs.Wait()
	})
	return p
}

// join starts a member, which leaves when the test ends.
func (p *party) join(name string) {
	p.t.Helper()
	m, err := lease.New(lease.Options{
		Keeper: p.log, Name: name, Shards: p.shards, Owners: p.owners,
		TTL: 5 * time.Second, Settle: 500 * time.Millisecond, Moves: 64,
		Took: func(l lease.Lease) { p.note(l.Shard, name) },
		Let: func(_ context.Context, shard int, _ lease.Loss) {
			p.note(shard, "")
		},
		Metrics: lease.NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.runs.Go(func() {
		if err := m.Run(p.ctx); err != nil {
			p.t.Errorf("%s: %v", name, err)
		}
	})
}

// owners are the ring's as soon as everybody is there: who comes first and is alone
// for as long as a proposal must stand would take everything.
func (p *party) owners(members []string, shards []ring.Shard) []string {
	if len(members) < int(p.size.Load()) {
		return make([]string, len(shards))
	}
	return ring.Owners(members, shards)
}

// note has each change of hands in its order: who takes a shard can't have it
// before the other has let go of it.
func (p *party) note(shard int, owner string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.owner[shard] = owner
	if owner != "" && owner != p.last[shard] {
		p.takes[shard]++
		p.last[shard] = owner
	}
}

// await waits until the shards have these owners, and says which changed hands
// on the way.
func (p *party) await(want []string) []int {
	p.t.Helper()
	testkit.Eventually(p.t, "each shard has the owner of the plan", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return slices.Equal(p.owner, want)
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	takes := p.takes
	p.takes = make([]int, p.shards)
	return takes
}
