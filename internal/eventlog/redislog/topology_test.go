package redislog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/testkit"
)

// A pursuit appends to shard 0 all the time, two at once, and reads it as a tail does:
// whenever a read fails, it asks before it goes on.
type pursuit struct {
	testing.TB
	*Log
	cancel  context.CancelFunc
	hush    sync.Mutex // held: nothing is appended
	running sync.WaitGroup

	mu       sync.Mutex
	appended []event.ID // in order
	failed   []error
	read     []event.ID
	worst    time.Duration // between two entries that were read
	reasons  []event.Reason
}

const shardAt = 0

func startPursuit(tb testing.TB, l *Log) *pursuit {
	ctx, cancel := context.WithCancel(context.Background())
	p := &pursuit{TB: tb, Log: l, cancel: cancel}
	group := l.byShard[shardAt].group
	number := slices.Index(l.groups, group)
	start := make([]event.ID, len(group.shards))
	in := p.ask(ctx, number, start)
	for i := range in {
		start[i] = in[i].State.Head
	}
	p.running.Go(func() { p.append(ctx) })
	p.running.Go(func() { p.follow(ctx, number, start) })
	tb.Cleanup(p.stop)
	return p
}

func (p *pursuit) stop() {
	p.cancel()
	p.running.Wait()
}

// ask inspects until it is answered.
func (p *pursuit) ask(ctx context.Context, group int, at []event.ID) []eventlog.Inspection {
	for ctx.Err() == nil {
		if in, err := p.Inspect(ctx, group, at); err == nil {
			return in
		}
		pause(ctx)
	}
	return nil
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Millisecond):
	}
}

func (p *pursuit) append(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		p.hush.Lock()
		bounded, cancel := context.WithTimeout(ctx, 3*time.Second)
		one := eventlog.Append{Shard: shardAt, Events: []event.Event{{Target: "a", Type: "t", Payload: fmt.Sprint(i)}}}
		results := p.Append(bounded, []eventlog.Append{one, one})
		cancel()
		p.hush.Unlock()
		p.mu.Lock()
		for _, res := range results {
			if res.Err == nil {
				p.appended = append(p.appended, res.IDs[0])
			} else if ctx.Err() == nil {
				p.failed = append(p.failed, res.Err)
			}
		}
		p.mu.Unlock()
		pause(ctx)
	}
}

func (p *pursuit) follow(ctx context.Context, group int, at []event.ID) {
	last := time.Now()
	for ctx.Err() == nil {
		batches, err := p.Read(ctx, group, at)
		if err != nil {
			for i, in := range p.ask(ctx, group, at) {
				if in.Reason == "" {
					continue
				}
				p.mu.Lock()
				p.reasons = append(p.reasons, in.Reason)
				p.mu.Unlock()
				at[i] = in.State.Head
			}
			pause(ctx)
			continue
		}
		p.mu.Lock()
		for _, b := range batches {
			place := p.byShard[b.Shard].place
			for _, e := range b.Entries {
				at[place] = e.ID
				if b.Shard == shardAt {
					p.read = append(p.read, e.ID)
				}
			}
			p.worst, last = max(p.worst, time.Since(last)), time.Now()
		}
		p.mu.Unlock()
	}
}

// further waits until so many more entries were read.
func (p *pursuit) further(n int) {
	p.Helper()
	p.mu.Lock()
	want := len(p.read) + n
	p.mu.Unlock()
	testkit.Eventually(p.TB, "further entries are read", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.read) >= want
	})
}

// whole ends the pursuit: everything that was appended has been read, once and
// in order.
func (p *pursuit) whole() {
	p.Helper()
	p.mu.Lock()
	last := p.appended[len(p.appended)-1]
	p.mu.Unlock()
	testkit.Eventually(p.TB, "the last entry is read", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.read) > 0 && !p.read[len(p.read)-1].Less(last)
	})
	p.stop()
	p.Logf("%d appended, %d failed, worst gap %v, resyncs %v", len(p.appended), len(p.failed), p.worst, p.reasons)
	for _, id := range p.appended {
		if !slices.Contains(p.read, id) && !last.Less(id) {
			p.Errorf("%s was acknowledged and not read", id)
		}
	}
	for i := 1; i < len(p.read); i++ {
		if !p.read[i-1].Less(p.read[i]) {
			p.Errorf("%s was read after %s", p.read[i], p.read[i-1])
		}
	}
}

func TestSlotMovesUnderFire(t *testing.T) {
	t.Parallel()
	c := testkit.StartCluster(t, 3, 1)
	opts := optionsAt(t, c.URL())
	opts.Groups, opts.Shards = 1, 4
	l := open(t, opts)
	p := startPursuit(t, l)
	p.further(20)
	slot := slotOf(l.byShard[shardAt].stream)
	from := c.MasterOf(slot)
	to := c.Servers[slices.IndexFunc(c.Servers[:3], func(r *testkit.Redis) bool { return r != from })]
	c.BeginMigration(slot, to)
	p.further(20)
	for c.MoveKeys(slot, from, to, 1) > 0 { // one by one: the shards are split meanwhile
		p.further(3)
	}
	c.EndMigration(slot, from, to)
	p.further(20)
	if at := l.byShard[shardAt].home.node().addr; at != to.Addr() {
		t.Errorf("the shard's home is %s, want %s", at, to.Addr())
	}
	p.whole()
	if len(p.failed) > 0 {
		t.Errorf("%d appends failed, such as %v", len(p.failed), p.failed[0])
	}
	if len(p.reasons) > 0 {
		t.Errorf("a slot that moves costs a resync: %v", p.reasons)
	}
}

// A failover tells cautious gateways that something may be lost, and those that
// ask for evidence nothing, as nothing is.
func TestFailoverUnderFire(t *testing.T) {
	type servers struct {
		url      string
		primary  func() *testkit.Redis
		failover func()
	}
	for name, start := range map[string]func(*testing.T) servers{
		"sentinel": func(t *testing.T) servers {
			p := testkit.StartPair(t)
			return servers{p.URL(), p.Primary, p.Failover}
		},
		"cluster": func(t *testing.T) servers {
			c := testkit.StartCluster(t, 3, 1)
			primary := func() *testkit.Redis { return c.MasterOf(slotOf("{" + tagsOf(1)[0] + "}")) }
			return servers{c.URL(), primary, func() { c.Failover(c.ReplicaOf(primary())) }}
		},
	} {
		for how, fault := range map[string]func(servers){
			"manual": func(s servers) { s.failover() },
			"killed": func(s servers) { s.primary().Kill9() },
			"frozen": func(s servers) { s.primary().Stop() },
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				t.Parallel()
				at := start(t)
				opts := optionsAt(t, at.url)
				opts.Groups, opts.Shards, opts.Failover = 1, 4, Evidence
				opts.BlockTime, opts.CallTimeout = 2*time.Second, 3*time.Second
				l := open(t, opts)
				p := startPursuit(t, l)
				p.further(20)
				old := at.primary().Addr()
				if name+how != "clustermanual" { // the others may lose what is on its way to the replica
					p.hush.Lock()
					at.primary().AwaitReplica()
				}
				fault(at)
				if name+how != "clustermanual" {
					p.hush.Unlock()
				}
				testkit.Eventually(t, "the shards are elsewhere", func() bool { return l.byShard[shardAt].home.node().addr != old })
				p.further(20)
				p.whole()
				if len(p.reasons) > 0 {
					t.Errorf("nothing was lost, but a resync says %v", p.reasons)
				}
			})
		}
	}
}

// A list that isn't the one that the log was made with is refused, and both are
// named.
func TestListGuard(t *testing.T) {
	t.Parallel()
	var urls []string
	for range 3 {
		urls = append(urls, testkit.StartRedis(t).URL())
	}
	at := func(urls ...string) error {
		l, err := Open(t.Context(), optionsAt(t, strings.Join(urls, ",")))
		if err == nil {
			_ = l.Close()
		}
		return err
	}
	a, b, c := urls[0], urls[1], urls[2]
	if err := at(a, b); err != nil {
		t.Fatal(err)
	}
	host := func(url string) string { return strings.TrimPrefix(url, "redis://") }
	for name, other := range map[string][]string{"reordered": {b, a}, "longer": {a, b, c}, "another": {a, c}, "one": {a}} {
		err := at(other...)
		if mismatch := new(eventlog.MismatchError); !errors.As(err, &mismatch) || !strings.Contains(mismatch.Stored, host(a)+","+host(b)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := at(a, b); err != nil {
		t.Errorf("the same again: %v", err)
	}
}

func TestClusterGuard(t *testing.T) {
	t.Parallel()
	c := testkit.StartCluster(t, 3, 0)
	opts := optionsAt(t, c.URL())
	opts.Shards, opts.Groups = 8, 4
	open(t, opts)
	opts.Groups = 2
	_, err := Open(t.Context(), opts)
	if mismatch := new(eventlog.MismatchError); !errors.As(err, &mismatch) || mismatch.Setting != "groups" || mismatch.Stored != "4" || mismatch.Configured != "2" {
		t.Errorf("another number of groups: %v", err)
	}
	if _, err := Open(t.Context(), optionsAt(t, c.Servers[0].URL())); err == nil || !strings.Contains(err.Error(), "redis+cluster://") {
		t.Errorf("a member by itself: %v", err)
	}
	alone := testkit.StartRedis(t)
	if _, err := Open(t.Context(), optionsAt(t, "redis+cluster://"+alone.Addr())); err == nil {
		t.Error("a server without a cluster is taken for one")
	}
}
