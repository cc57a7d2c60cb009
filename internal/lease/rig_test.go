package lease

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"downlink/internal/eventlog"
	"downlink/internal/ring"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
)

// TestMain lets more tests run at a time than there are processors: most of
// them wait for a TTL.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// pass lets time go by in a bubble.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // only ever called in a synctest bubble
	synctest.Wait()
}

// A gateway is a member that only notes what it is told.
type gateway struct {
	*Member
	name string
	real bool // the clock is: an answer may come when its lease has run out
	stop context.CancelFunc
	done chan struct{}
	err  error // after done

	mu    sync.Mutex
	ours  map[int]uint64 // shard → generation, between Took and the end of Let
	going map[int]Loss   // shards whose Let is running
	lets  []Loss
	took  []Lease
	hold  time.Duration // how long Let takes
	wrong []string
}

func start(tb testing.TB, keeper eventlog.LeaseKeeper, name string, shards int, change func(*Options)) *gateway {
	tb.Helper()
	g := &gateway{name: name, done: make(chan struct{}), ours: map[int]uint64{}, going: map[int]Loss{}}
	o := Options{
		Keeper: keeper, Name: name, Shards: shards, Owners: ring.Owners, Took: g.begin, Let: g.end,
		Metrics: NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&o)
	}
	m, err := New(o)
	if err != nil {
		tb.Fatal(err)
	}
	g.Member, g.real = m, o.TTL == fastTTL
	ctx, cancel := context.WithCancel(context.Background())
	g.stop = cancel
	go func() {
		defer close(g.done)
		g.err = m.Run(ctx)
	}()
	return g
}

// leave ends the member in order.
func (g *gateway) leave() {
	g.stop()
	<-g.done
}

func (g *gateway) begin(l Lease) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.Lease(l.Shard); ok && g.ours[l.Shard] == 0 {
		g.wrong = append(g.wrong, fmt.Sprintf("%s could write to shard %d before it took it", g.name, l.Shard))
	}
	if why, going := g.going[l.Shard]; going {
		g.wrong = append(g.wrong, fmt.Sprintf("%s took shard %d while it let go of it (%s)", g.name, l.Shard, why))
	}
	if l.Generation <= g.ours[l.Shard] || !g.real && !l.Live(time.Now()) || l.Owner != g.name {
		g.wrong = append(g.wrong, fmt.Sprintf("%s took %+v after generation %d", g.name, l, g.ours[l.Shard]))
	}
	g.ours[l.Shard] = l.Generation
	g.took = append(g.took, l)
}

func (g *gateway) end(ctx context.Context, shard int, why Loss) {
	g.mu.Lock()
	if _, ok := g.Lease(shard); ok {
		g.wrong = append(g.wrong, fmt.Sprintf("%s let go of shard %d with a lease for it", g.name, shard))
	}
	if g.ours[shard] == 0 {
		g.wrong = append(g.wrong, fmt.Sprintf("%s let go of shard %d, which it never took", g.name, shard))
	}
	g.going[shard] = why
	hold := g.hold
	g.mu.Unlock()
	if hold > 0 {
		select {
		case <-time.After(hold):
		case <-ctx.Done():
		}
	}
	g.mu.Lock()
	delete(g.going, shard)
	delete(g.ours, shard)
	g.lets = append(g.lets, why)
	g.mu.Unlock()
}

// live is the shards that the gateway may write to now.
func (g *gateway) live() []int {
	var out []int
	for i := range g.shards {
		if l, ok := g.Lease(i); ok && l.Live(time.Now()) {
			out = append(out, i)
		}
	}
	return out
}

// check reports what the gateway found wrong.
func (g *gateway) check(tb testing.TB) {
	tb.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.wrong {
		tb.Error(w)
	}
}

// note is a copy of what happened so far.
func (g *gateway) note() (took []Lease, lets []Loss) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.took), slices.Clone(g.lets)
}
