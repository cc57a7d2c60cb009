package rebalance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"downlink/internal/ageing"
	"downlink/internal/backoff"
	"downlink/internal/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const baseRetry = 3 * time.Second

// board keeps words for a while, in memory: a bubble's clock is no Redis's. What
// stands on Redis is tested there.
type board struct {
	mu    sync.Mutex
	words map[string]string
	until map[string]time.Time
	away  bool
}

func (b *board) Post(_ context.Context, name, word string, ttl time.Duration) (map[string]string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.away {
		return nil, errors.New("away")
	}
	if b.words == nil {
		b.words, b.until = map[string]string{}, map[string]time.Time{}
	}
	b.words[name], b.until[name] = word, time.Now().Add(ttl)
	maps.DeleteFunc(b.words, func(name, _ string) bool { return !time.Now().Before(b.until[name]) })
	return maps.Clone(b.words), nil
}

func (b *board) setAway(away bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.away = away
}

// A gateway is one of the fleet, without anything that a device would notice.
type gateway struct {
	*Balancer
	name   string
	roster *session.Roster
	ages   *ageing.Book
	stop   context.CancelFunc
	ended  sync.WaitGroup

	mu     sync.Mutex
	absent bool // it takes no devices
}

func (g *gateway) taking() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.absent
}

func (g *gateway) setAbsent(absent bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.absent = absent
}

// A world is gateways behind a load balancer, and their devices. In a bubble only.
type world struct {
	t      testing.TB
	board  board
	choose func(from *gateway, all []*gateway) *gateway

	mu      sync.Mutex
	rate    int
	after   time.Duration
	most    int
	slow    time.Duration // until a device has taken its last word
	fleet   []*gateway
	opts    session.Options
	devices []*device
	ends    []end
}

// An end is one stream that was let go.
type end struct {
	at    time.Duration
	from  *gateway
	under bool // that gateway was below the mean
}

type device struct {
	world *world
	name  string

	// Guarded by the world's mutex.
	at      *gateway
	session *session.Session
	moves   int
}

// Wake is the end: no events come in this world. It is called with the session
// locked.
func (d *device) Wake() {
	time.AfterFunc(0, d.leave)
}

func (d *device) Peer() (address, protocol string) { return "", "" }

var worldBegan = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // of every bubble

func (d *device) leave() {
	w := d.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if d.at == nil {
		return
	}
	if d.session.Ended() == session.Rebalanced {
		d.moves++
		// Those of the last seconds are on their way, and in no gateway's word yet.
		known := float64(len(w.devices) - 9*w.rate)
		under := float64(d.at.roster.Len()-1) < known/float64(len(w.fleet))-1
		w.ends = append(w.ends, end{time.Since(worldBegan), d.at, under})
	}
	from, gone := d.at, d.session
	time.AfterFunc(w.slow, func() { from.roster.Remove(gone) })
	d.at = nil
	time.AfterFunc(backoff.Jitter(baseRetry, 0.5), func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		d.joinLocked(w.choose(from, w.fleet))
	})
}

func (d *device) joinLocked(g *gateway) {
	d.at, d.session = g, session.New(d.name, d, &d.world.opts)
	d.session.Know(session.Facts{Since: time.Now()})
	g.roster.Add(d.session, nil)
}

// atRandom and least are what load balancers do; sticky what they shouldn't.
func atRandom(_ *gateway, all []*gateway) *gateway { return all[rand.IntN(len(all))] }

func least(_ *gateway, all []*gateway) *gateway {
	return slices.MinFunc(all, func(a, b *gateway) int { return a.roster.Len() - b.roster.Len() })
}

func sticky(from *gateway, _ []*gateway) *gateway { return from }

// newWorld has gateways with so many devices each, which are old enough to move.
func newWorld(t testing.TB, rate int, after time.Duration, choose func(*gateway, []*gateway) *gateway, counts ...int) *world {
	w := &world{t: t, rate: rate, after: after, most: 1_000_000, choose: choose}
	w.opts.Goodbye = func() time.Duration { return backoff.Jitter(baseRetry, 0.5) }
	for _, n := range counts {
		g := w.launch()
		w.crowd(g, n)
	}
	t.Cleanup(w.end)
	return w
}

// crowd has n devices come to a gateway.
func (w *world) crowd(g *gateway, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for range n {
		d := &device{world: w, name: fmt.Sprint(len(w.devices))}
		w.devices = append(w.devices, d)
		d.joinLocked(g)
	}
}

// launch starts one more gateway.
func (w *world) launch() *gateway {
	w.mu.Lock()
	defer w.mu.Unlock()
	g := &gateway{name: fmt.Sprint("gateway-", len(w.fleet), "-", time.Now()), roster: new(session.Roster), ages: ageing.New()}
	value := func(v *int) func() int {
		return func() int {
			w.mu.Lock()
			defer w.mu.Unlock()
			return *v
		}
	}
	g.Balancer = New(Options{
		Name: g.name, Rate: value(&w.rate), Threshold: func() int { return 20 }, After: w.after, Most: value(&w.most), Retry: baseRetry,
		Roster: g.roster, Ages: g.ages, Metrics: NewMetrics(nil), Logger: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(context.Background())
	g.stop = cancel
	g.ended.Go(func() { _ = g.ages.Run(ctx) })
	g.ended.Go(func() { _ = g.Run(ctx, &w.board, g.taking) })
	w.fleet = append(w.fleet, g)
	return g
}

// crash ends a gateway: its devices come back elsewhere.
func (w *world) crash(i int) {
	w.mu.Lock()
	g := w.fleet[i]
	w.fleet = slices.Delete(w.fleet, i, i+1)
	w.mu.Unlock()
	g.stop()
	g.ended.Wait()
	for _, s := range g.roster.Close() {
		s.End(session.Failed)
	}
}

func (w *world) end() {
	for _, g := range w.fleet {
		g.stop()
	}
	for _, g := range w.fleet {
		g.ended.Wait()
	}
}

// pass lets time pass.
func (w *world) pass(while time.Duration) { time.Sleep(while) } //nolint:forbidigo // in a bubble

// set changes a value under the lock.
func (w *world) set(v *int, to int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*v = to
}

// counts are the streams of each gateway.
func (w *world) counts() (all []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, g := range w.fleet {
		all = append(all, g.roster.Len())
	}
	return all
}

func (w *world) gone() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.ends)
}

// moves is how often the device was let go that was most often.
func (w *world) moves() (most int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range w.devices {
		most = max(most, d.moves)
	}
	return most
}

// fastest is how many streams were let go within a while, at most.
func (w *world) fastest(while time.Duration) (most int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.SortFunc(w.ends, func(a, b end) int { return int(a.at - b.at) })
	first := 0
	for i, e := range w.ends {
		for w.ends[first].at < e.at-while {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// uneven says which gateway holds more than it may; empty if none does.
func (w *world) uneven() string {
	counts := w.counts()
	total := 0
	for _, n := range counts {
		total += n
	}
	p := picture{mean: float64(total) / float64(len(counts))}
	if n := slices.Max(counts); n > p.allowed(20) {
		return fmt.Sprintf("%v: allowed are %d", counts, p.allowed(20))
	}
	return ""
}
