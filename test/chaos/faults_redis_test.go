package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"downlink/internal/event"
	"downlink/internal/testkit"
)

// serverFaults strike a server that has a copy of everything on disk: none of
// them justifies a resync.
func serverFaults(servers func() []*testkit.Redis) []kind {
	pick := func(rng *rand.Rand) *testkit.Redis { return servers()[rng.IntN(len(servers()))] }
	return []kind{
		{name: "Redis killed", weight: 4, on: onLog, strike: func(_ *run, rng *rand.Rand) (time.Duration, func()) {
			s := pick(rng)
			s.Kill9()
			return between(rng, 0, 4*time.Second), s.Start
		}},
		{name: "Redis restarted", weight: 2, on: onLog, strike: func(_ *run, rng *rand.Rand) (time.Duration, func()) {
			pick(rng).Restart()
			return 0, nil
		}},
		{name: "Redis frozen", weight: 4, on: onLog, strike: func(_ *run, rng *rand.Rand) (time.Duration, func()) {
			s := pick(rng)
			s.Stop()
			return between(rng, 300*time.Millisecond, 6*time.Second), s.Cont
		}},
	}
}

// sharedLinkFaults strike the link of all gateways to one server.
func sharedLinkFaults(links []*testkit.Proxy) []kind {
	pick := func(rng *rand.Rand) *testkit.Proxy { return links[rng.IntN(len(links))] }
	return []kind{
		{name: "all links to a server held up", weight: 3, on: onLog, strike: func(_ *run, rng *rand.Rand) (time.Duration, func()) {
			l := pick(rng)
			l.Stall()
			return between(rng, 500*time.Millisecond, 6*time.Second), l.Resume
		}},
		{name: "all links to a server reset", weight: 2, on: onLog, strike: func(_ *run, rng *rand.Rand) (time.Duration, func()) {
			pick(rng).Reset()
			return 0, nil
		}},
	}
}

// handFaults are what somebody does to one shard by hand.
func handFaults() []kind {
	return []kind{
		{name: "stream deleted", weight: 2, on: onLog, strike: byHand("", true, event.LogRewound)},
		// Who is connected is told that another log stands there, who comes back
		// that nobody knows what was removed.
		{name: "record deleted", weight: 1, on: onLog, strike: byHand(":sweep", false, event.LogRewound, event.WindowExpired)},
		{name: "notes deleted", weight: 1, on: onLog, strike: byHand(":gone", false, event.WindowExpired)},
		{name: "stream trimmed by hand", weight: 1, on: onLog, strike: trim},
		{name: "entries deleted by hand", weight: 1, on: onLog, strike: deleteEntries},
	}
}

// byHand deletes a key of a shard: its stream, or one that is named after it.
func byHand(suffix string, loses bool, reasons ...event.Reason) func(*run, *rand.Rand) (time.Duration, func()) {
	return func(r *run, rng *rand.Rand) (time.Duration, func()) {
		r.command(rng, loses, reasons, func(_ *testkit.Redis, key string) []string { return []string{"DEL", key + suffix} })
		return 0, nil
	}
}

// trim does what a producer does that trims by itself.
func trim(r *run, rng *rand.Rand) (time.Duration, func()) {
	r.command(rng, true, []event.Reason{event.WindowExpired}, func(_ *testkit.Redis, key string) []string {
		return []string{"XTRIM", key, "MAXLEN", itoa(rng.IntN(10))}
	})
	return 0, nil
}

// deleteEntries takes some of the latest entries out of a stream.
func deleteEntries(r *run, rng *rand.Rand) (time.Duration, func()) {
	r.command(rng, true, []event.Reason{event.WindowExpired}, func(server *testkit.Redis, key string) []string {
		command := []string{"XDEL", key, "0-1"}
		for _, e := range server.Do("XREVRANGE", key, "+", "-", "COUNT", itoa(1+rng.IntN(8))).([]any) {
			command = append(command, fmt.Sprint(e.([]any)[0]))
		}
		return command
	})
	return 0, nil
}

// command sends one about a shard, and notes what may follow from it.
func (r *run) command(rng *rand.Rand, loses bool, reasons []event.Reason, of func(server *testkit.Redis, key string) []string) {
	shard := rng.IntN(shards)
	server := r.store.server(shard)
	if server == nil {
		return
	}
	i := r.chronicle.open(&incident{kind: "a command by hand", shard: shard, loses: loses, reasons: reasons}, r.now())
	server.Do(of(server, r.store.key(shard))...)
	r.chronicle.close(i, r.now())
}

// lossy is what a failover may cost with the gateways' settings.
type lossy struct{ args []string }

func (l lossy) incident(kind string) *incident {
	i := &incident{kind: kind, shard: -1, loses: true, keeps: slices.Contains(l.args, "replicas:1"), reasons: []event.Reason{event.LogRewound}}
	if slices.Contains(l.args, "cautious") {
		i.reasons = append(i.reasons, event.LogUncertain)
	}
	return i
}

// pairFaults strike a pair with Sentinels.
type pairFaults struct {
	lossy
	pair *testkit.Pair
}

func (p *pairFaults) kinds() []kind {
	return []kind{
		{name: "failover by hand", weight: 3, on: onLog, strike: p.manual},
		{name: "primary killed", weight: 3, on: onLog, strike: p.kill(false)},
		{name: "primary killed, its last seconds lost", weight: 3, on: onLog, strike: p.kill(true)},
		{name: "primary frozen until it is replaced", weight: 3, on: onLog, strike: p.freeze},
		{name: "replica killed", weight: 2, on: onLog, strike: p.killReplica},
	}
}

func (p *pairFaults) manual(r *run, _ *rand.Rand) (time.Duration, func()) {
	old, next := p.well()
	i := r.chronicle.open(p.incident("failover by hand"), r.now())
	testkit.Eventually(r.tb, "a Sentinel begins the failover", func() bool {
		_, err := p.pair.Sentinels[0].Try("SENTINEL", "FAILOVER", testkit.MasterSet)
		return err == nil
	})
	return time.Second, func() {
		p.pair.Promote(next)
		p.demoted(r, old)
		r.chronicle.close(i, r.now())
	}
}

// well waits until a failover is possible.
func (p *pairFaults) well() (primary, replica *testkit.Redis) {
	p.pair.AwaitWell()
	return p.pair.Primary(), p.pair.Replica()
}

// leads reports whether a server is the primary, by its own word and the Sentinels'.
func (p *pairFaults) leads(r *testkit.Redis) bool {
	return r.Role() == "master" && named(p.pair) == r.Addr()
}

// rejoin lets a server that was started follow the primary, which the Sentinels
// see to by themselves, but late: it is no fault if they were faster, or if a
// busy machine has had another failover meanwhile.
func (p *pairFaults) rejoin(server, primary *testkit.Redis) {
	if p.leads(primary) {
		host, port := primary.HostPort()
		_, _ = server.Try("REPLICAOF", host, port)
	}
}

func (p *pairFaults) demoted(r *run, old *testkit.Redis) {
	testkit.Eventually(r.tb, "the old primary is demoted", func() bool { return old.Role() == "slave" })
}

// kill kills the primary, and starts it again when the replica has its place.
// What the primary took last is lost if its replica was cut off before.
func (p *pairFaults) kill(cut bool) func(*run, *rand.Rand) (time.Duration, func()) {
	return func(r *run, rng *rand.Rand) (time.Duration, func()) {
		old, next := p.well()
		i := r.chronicle.open(p.incident("primary killed"), r.now())
		if cut {
			old.CutReplicas(next)
			<-time.After(between(rng, 200*time.Millisecond, 1200*time.Millisecond))
		}
		old.Kill9()
		return between(rng, 0, 5*time.Second), func() {
			p.pair.AwaitPrimary(next)
			old.Start() // with all that it had
			spared := r.nothingLost(i, old, next)
			p.rejoin(old, next)
			if spared != nil && p.leads(next) {
				r.chronicle.spare(i, spared)
			}
			r.chronicle.close(i, r.now())
		}
	}
}

// freeze freezes the primary until its replica has its place: it wakes up as
// one that takes writes still.
func (p *pairFaults) freeze(r *run, rng *rand.Rand) (time.Duration, func()) {
	old, next := p.well()
	i := r.chronicle.open(p.incident("primary frozen"), r.now())
	old.Stop()
	return between(rng, 0, 6*time.Second), func() {
		p.pair.AwaitPrimary(next)
		old.Cont()
		p.demoted(r, old)
		r.chronicle.close(i, r.now())
	}
}

func (p *pairFaults) killReplica(_ *run, rng *rand.Rand) (time.Duration, func()) {
	primary, replica := p.well()
	replica.Kill9()
	return between(rng, 0, 3*time.Second), func() {
		replica.Start()
		p.rejoin(replica, primary)
	}
}

// nothingLost compares what a server had with what its successor has, and says
// of which shards nothing is missing there; nil if one of them doesn't say.
func (r *run) nothingLost(i *incident, old, next *testkit.Redis) func(shard int) bool {
	lossless := make(map[int]bool)
	for shard := range shards {
		had, err := idsOf(old, r.store.key(shard))
		has, failed := idsOf(next, r.store.key(shard))
		if err != nil || failed != nil {
			return nil
		}
		lossless[shard] = true
		for id := range had {
			lossless[shard] = lossless[shard] && (has[id] || r.swept(id))
		}
		for _, id := range r.chronicle.heldSince(shard, i.from-time.Second) {
			lossless[shard] = lossless[shard] && (has[id.String()] || r.swept(id.String()))
		}
	}
	return func(shard int) bool { return lossless[shard] }
}

func idsOf(server *testkit.Redis, key string) (map[string]bool, error) {
	reply, err := server.Try("XRANGE", key, "-", "+")
	entries, ok := reply.([]any)
	if err != nil || !ok {
		return nil, fmt.Errorf("reading %s: %v, %w", key, reply, err)
	}
	ids := make(map[string]bool, len(entries))
	for _, e := range entries {
		ids[fmt.Sprint(e.([]any)[0])] = true
	}
	return ids, nil
}

// swept reports whether an entry is so old that it may have left the window.
func (r *run) swept(id string) bool {
	at, err := event.ParseID(id)
	return err == nil && time.Since(time.UnixMilli(int64(at.Ms))) > r.window-time.Second
}

// clusterFaults strike a Cluster.
type clusterFaults struct {
	lossy
	cluster *testkit.Cluster
}

func (f *clusterFaults) kinds() []kind {
	return []kind{
		{name: "slots moved", weight: 5, on: onLog, strike: f.move},
		{name: "failover by hand", weight: 3, on: onLog, strike: f.manual},
		{name: "master killed", weight: 2, on: onLog, strike: f.kill(false)},
		{name: "master killed, its last seconds lost", weight: 2, on: onLog, strike: f.kill(true)},
		{name: "master frozen until it is replaced", weight: 2, on: onLog, strike: f.freeze},
	}
}

func (f *clusterFaults) slot(shard int) int {
	tags := clusterTags()
	return f.cluster.SlotOf(fmt.Sprintf("{%d}", tags[shard%len(tags)]))
}

// move moves the slots of some groups of shards.
func (f *clusterFaults) move(_ *run, rng *rand.Rand) (time.Duration, func()) {
	for range 1 + rng.IntN(3) {
		slot := f.slot(rng.IntN(shards))
		from := f.cluster.MasterOf(slot)
		for {
			if to := f.cluster.MasterOf(rng.IntN(16384)); to != from {
				f.cluster.Migrate(slot, to)
				break
			}
		}
	}
	return 0, nil
}

// well waits until every master has a replica, and draws one that serves a shard.
func (f *clusterFaults) well(rng *rand.Rand) (master, replica *testkit.Redis) {
	f.cluster.AwaitWell()
	master = f.cluster.MasterOf(f.slot(rng.IntN(shards)))
	f.cluster.AwaitFollower(master)
	return master, f.cluster.ReplicaOf(master)
}

func (f *clusterFaults) manual(r *run, rng *rand.Rand) (time.Duration, func()) {
	_, next := f.well(rng)
	i := r.chronicle.open(f.incident("failover by hand"), r.now())
	f.cluster.Failover(next)
	r.chronicle.close(i, r.now())
	return 0, nil
}

func (f *clusterFaults) kill(cut bool) func(*run, *rand.Rand) (time.Duration, func()) {
	return func(r *run, rng *rand.Rand) (time.Duration, func()) {
		master, next := f.well(rng)
		i := r.chronicle.open(f.incident("master killed"), r.now())
		if cut {
			master.CutReplicas(next)
			<-time.After(between(rng, 200*time.Millisecond, 1200*time.Millisecond))
		}
		master.Kill9()
		return between(rng, 0, 5*time.Second), func() {
			f.cluster.AwaitMaster(next)
			master.Start()
			r.chronicle.close(i, r.now())
		}
	}
}

func (f *clusterFaults) freeze(r *run, rng *rand.Rand) (time.Duration, func()) {
	master, next := f.well(rng)
	i := r.chronicle.open(f.incident("master frozen"), r.now())
	master.Stop()
	return between(rng, 0, 6*time.Second), func() {
		testkit.Eventually(r.tb, "the replica has taken over", func() bool { return next.Role() == "master" })
		master.Cont()
		f.cluster.AwaitMaster(next)
		r.chronicle.close(i, r.now())
	}
}
