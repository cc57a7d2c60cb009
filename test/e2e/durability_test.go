package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"downlink/internal/testkit"
)

// What docs/operate/durability.md says of failovers, cell by cell: on servers
// that fail in turn stand three logs, of gateways with different settings.
// Each test of a loss first makes sure that something is lost.

// An onlooker is a gateway with a log of its own, by its prefix, and the device
// "demo" that is connected to it.
type onlooker struct {
	prefix string
	g      *testkit.Gateway
	stream *testkit.Stream
	probes int
}

func startOnlooker(t *testing.T, url, prefix string, more ...string) *onlooker {
	t.Helper()
	all := args("--log", url, "--prefix", prefix, "--publish-timeout", "2s")
	w := &onlooker{prefix: prefix, g: program.StartGateway(t, append(all, more...)...)}
	w.stream = testkit.Open(t, w.g.Device+"/events?device=demo", "")
	w.stream.Until(resync)
	return w
}

// try publishes for the device; the payload is the idempotency key, too.
func (w *onlooker) try(t *testing.T, payload string) (status int, answer string) {
	t.Helper()
	return testkit.Post(t, w.g.Backend+"/v1/events", "application/json",
		fmt.Sprintf(`{"device":"demo","type":"t","text":%q,"idem":%q}`, payload, payload))
}

// published repeats until it is accepted, as publishers do.
func (w *onlooker) published(t *testing.T, payload string) (id string) {
	t.Helper()
	testkit.Eventually(t, payload+" is accepted", func() bool {
		status, answer := w.try(t, payload)
		if status == 200 {
			id = idIn(t, answer)
		}
		return status == 200
	})
	return id
}

// refused publishes and gets the problem. On a machine that is busy the time for
// publishing may run out first, so it is repeated; it is never accepted.
func (w *onlooker) refused(t *testing.T, payload, problem string) {
	t.Helper()
	testkit.Eventually(t, payload+" is refused as "+problem, func() bool {
		status, answer := w.try(t, payload)
		if status != 503 {
			t.Fatalf("log %s: publishing %q: %d %s, want %s", w.prefix, payload, status, answer, problem)
		}
		return strings.Contains(answer, problem)
	})
}

func idIn(t *testing.T, answer string) string {
	t.Helper()
	var a struct{ ID string }
	if err := json.Unmarshal([]byte(answer), &a); err != nil || a.ID == "" {
		t.Fatalf("no ID in %q: %v", answer, err)
	}
	return a.ID
}

// hears waits for an event; nothing may be told before it.
func (w *onlooker) hears(t *testing.T, payload string) (before string) {
	t.Helper()
	got := w.stream.Until("data: " + payload)
	if strings.Contains(got, resync) {
		t.Errorf("log %s: before %q the device was told: %s", w.prefix, payload, got)
	}
	return got
}

// told waits for a resync with this reason.
func (w *onlooker) told(t *testing.T, reason string) {
	t.Helper()
	if got := w.stream.Until(resync); !strings.Contains(got, `"reason":"`+reason+`"`) {
		t.Errorf("log %s: the device was told %q, want %s", w.prefix, got, reason)
	}
}

// arrives connects once more with a cursor: with a reason it is told that,
// without it goes on.
func (w *onlooker) arrives(t *testing.T, cursor, reason string) {
	t.Helper()
	s := testkit.Open(t, w.g.Device+"/events?device=demo", cursor)
	defer s.Close()
	got := ""
	if reason != "" {
		got = s.Until(resync)
	} else {
		w.probes++
		probe := fmt.Sprint("probe ", w.probes)
		w.published(t, probe)
		got = s.Until("data: " + probe)
	}
	if told := strings.Contains(got, resync); told != (reason != "") || !strings.Contains(got, reason) {
		t.Errorf("log %s: with the cursor %s a device was told %q, want %q", w.prefix, cursor, got, reason)
	}
}

// A stage is the servers of one shard's log, of which one can take the other's
// place.
type stage struct {
	key      func(prefix string) string // of demo's stream
	primary  func() *testkit.Redis
	replica  func(of *testkit.Redis) *testkit.Redis
	failover func(next *testkit.Redis)      // by hand
	promoted func(next *testkit.Redis)      // waits until everybody takes it for the primary
	follows  func(old, next *testkit.Redis) // makes old a whole replica again

	cautious, evidence, replicated *onlooker
}

// servedBy are the options of servers with a user for gateways: the default
// user is for those of their kind.
var servedBy = testkit.RedisUser("gateway", "s3cret", "~* +@all") //nolint:gochecknoglobals // a constant

func (s *stage) enter(t *testing.T, url string) {
	s.cautious = startOnlooker(t, url, "c")
	s.evidence = startOnlooker(t, url, "e", "--failover", "evidence")
	s.replicated = startOnlooker(t, url, "r", "--failover", "evidence", "--durability", "replicas:1")
}

func (s *stage) all() []*onlooker { return []*onlooker{s.cautious, s.evidence, s.replicated} }

// pair is the present primary and its replica, which has everything.
func (s *stage) pair() (old, next *testkit.Redis) {
	old = s.primary()
	old.AwaitReplica()
	return old, s.replica(old)
}

// goOn: every log works, and nobody is told anything.
func (s *stage) goOn(t *testing.T, payload string) {
	t.Helper()
	for _, w := range s.all() {
		w.published(t, payload)
		w.hears(t, payload)
	}
}

// play plays acts in turn, up to the first that fails.
func play(t *testing.T, acts []act) {
	for _, a := range acts {
		if !t.Run(a.name, a.play) {
			return
		}
	}
}

type act struct {
	name string
	play func(*testing.T)
}

// TestDurabilityOfAPair: a primary and its replica, with Sentinels.
func TestDurabilityOfAPair(t *testing.T) {
	onlyOnce(t)
	t.Parallel()
	p := testkit.StartPair(t, servedBy)
	s := &stage{
		key:      func(prefix string) string { return prefix + ":32" },
		primary:  p.Primary,
		replica:  p.Other,
		promoted: p.AwaitPrimary,
		follows:  func(old, next *testkit.Redis) { old.Follow(next) }, // Sentinels take ten seconds for that
	}
	s.failover = func(next *testkit.Redis) {
		p.Sentinels[0].Do("SENTINEL", "FAILOVER", testkit.MasterSet)
		p.AwaitPrimary(next)
	}
	s.enter(t, p.URL())
	play(t, []act{{"cut", s.cut}, {"hand", s.byHand}, {"lagging", s.lagging}, {"stale", s.stale}})
}

// TestDurabilityOfACluster is the same with a Cluster.
func TestDurabilityOfACluster(t *testing.T) {
	onlyOnce(t)
	t.Parallel()
	c := testkit.StartCluster(t, 3, 1, servedBy)
	slot := c.SlotOf("{18}") // of demo's group
	s := &stage{
		key:      func(prefix string) string { return prefix + ":{18}:32" },
		primary:  func() *testkit.Redis { return c.MasterOf(slot) },
		replica:  c.ReplicaOf,
		failover: c.Failover,
		promoted: func(next *testkit.Redis) {
			testkit.Eventually(t, "the replica takes over", func() bool { return next.Role() == "master" })
		},
		follows: func(old, _ *testkit.Redis) {
			testkit.Eventually(t, "the old master follows", func() bool { return old.Role() == "slave" })
			old.AwaitLink("up")
			c.AwaitWell()
		},
	}
	s.enter(t, c.URL())
	minority := func(t *testing.T) { s.minority(t, c) }
	play(t, []act{{"cut", s.cut}, {"hand", s.byHand}, {"lagging", s.lagging}, {"stale", s.stale}, {"minority", minority}})
}

// cut: the primary has no link to its replica for a while, and stays the primary.
func (s *stage) cut(t *testing.T) {
	old, next := s.pair()
	old.CutReplicas(next)
	for _, w := range []*onlooker{s.cautious, s.evidence} {
		w.published(t, "cut")
		w.hears(t, "cut")
	}
	s.replicated.refused(t, "cut", "not-replicated")
	s.replicated.hears(t, "cut") // it may be delivered all the same
	old.Do("CONFIG", "SET", "min-replicas-to-write", "1")
	s.evidence.refused(t, "held back", "log-unavailable")
	old.Do("CONFIG", "SET", "min-replicas-to-write", "0")
	old.AllowReplicas()
	next.AwaitLink("up")
	s.replicated.published(t, "cut")
	s.replicated.published(t, "healed")
	if got := s.replicated.hears(t, "healed"); strings.Contains(got, "data: cut") {
		t.Errorf("what was repeated under its key has come twice: %q", got)
	}
	s.goOn(t, "healed as well")
}

// byHand: the replica has everything and is promoted by an operator.
func (s *stage) byHand(t *testing.T) {
	old, next := s.pair()
	s.failover(next)
	s.cautious.told(t, "log-uncertain")
	s.follows(old, next)
	s.goOn(t, "after a failover by hand")
}

// lagging: the replica lacks what came last, and the primary dies.
func (s *stage) lagging(t *testing.T) {
	kept, lost := map[*onlooker]string{}, map[*onlooker]string{}
	for _, w := range s.all() {
		kept[w] = w.published(t, "kept")
		w.hears(t, "kept")
	}
	old, next := s.pair()
	old.CutReplicas(next)
	for _, w := range []*onlooker{s.cautious, s.evidence} {
		lost[w] = w.published(t, "lost")
		w.hears(t, "lost")
	}
	s.replicated.refused(t, "lost", "not-replicated")
	s.replicated.hears(t, "lost")
	old.Kill9()
	if status, answer := s.evidence.try(t, "meanwhile"); status != 200 && !strings.Contains(answer, "log-unavailable") ||
		status == 200 && next.Role() != "master" {
		t.Errorf("publishing with the primary gone: %d %s", status, answer)
	}
	s.promoted(next)
	for w, id := range lost {
		if next.Holds(s.key(w.prefix), id) {
			t.Fatalf("log %s: nothing was lost, this proves nothing", w.prefix)
		}
	}
	for w, id := range kept {
		if !next.Holds(s.key(w.prefix), id) {
			t.Fatalf("log %s: what the replica had is lost", w.prefix)
		}
		w.told(t, "log-rewound")
	}
	s.cautious.arrives(t, lost[s.cautious], "log-rewound")
	s.cautious.arrives(t, kept[s.cautious], "log-rewound")
	s.evidence.arrives(t, lost[s.evidence], "log-rewound")
	s.evidence.arrives(t, kept[s.evidence], "log-rewound")
	old.Start()
	s.follows(old, next)
	// It was never accepted: the publisher repeats it, and it comes.
	s.replicated.published(t, "lost")
	s.replicated.hears(t, "lost")
	s.goOn(t, "after a loss")
}

// stale: the primary is frozen, the replica takes its place, and the old one
// wakes up and takes what comes to it, until it is told.
func (s *stage) stale(t *testing.T) {
	old, next := s.pair()
	producer := old.Dial() // writes to the log itself, and stays connected
	key := s.key(s.evidence.prefix)
	old.Stop()
	producer.Send("XADD", key, "*", "dev", "demo", "type", "t", "payload", "taken by a stale primary")
	producer.Send("WAIT", "1", "100")
	s.promoted(next)
	s.cautious.told(t, "log-uncertain")
	s.evidence.published(t, "meanwhile elsewhere")
	s.evidence.hears(t, "meanwhile elsewhere")
	old.Cont()
	reply, err := producer.Reply()
	replicas, _ := producer.Reply()
	id, taken := reply.(string)
	switch {
	case !taken:
		t.Logf("the stale primary has refused it: %v", err)
	case next.Holds(key, id):
		t.Fatal("nothing was lost, this proves nothing")
	case replicas != int64(0) && replicas != nil: // nil: it was told meanwhile, and ended the waiting
		t.Errorf("WAIT answers %v for an event that no replica has", replicas)
	}
	s.follows(old, next)
	if taken && (old.Holds(key, id) || next.Holds(key, id)) {
		t.Error("what a stale primary took is there")
	}
	s.goOn(t, "after a stale primary")
}

// minority: first the others are frozen, then the master is, which is what a
// partition looks like from either side.
func (s *stage) minority(t *testing.T, c *testkit.Cluster) {
	old, next := s.pair()
	old.CutReplicas(next)
	others := func(act func(*testkit.Redis)) {
		for _, r := range c.Servers {
			if r != old {
				act(r)
			}
		}
	}
	others((*testkit.Redis).Stop)
	// It has time for what it takes, however busy the machine is.
	old.Do("CONFIG", "SET", "cluster-node-timeout", "60000")
	lost := s.evidence.published(t, "taken by a minority")
	s.evidence.hears(t, "taken by a minority")
	s.replicated.refused(t, "not taken", "not-replicated")
	old.Do("CONFIG", "SET", "cluster-node-timeout", "2000")
	testkit.Eventually(t, "a master without a majority refuses", func() bool {
		status, answer := s.evidence.try(t, "too late")
		return status == 503 && strings.Contains(answer, "log-unavailable")
	})
	old.Stop()
	others((*testkit.Redis).Cont)
	s.promoted(next)
	if next.Holds(s.key("e"), lost) {
		t.Fatal("nothing was lost, this proves nothing")
	}
	s.evidence.told(t, "log-rewound")
	s.evidence.arrives(t, lost, "log-rewound")
	old.Cont()
	s.follows(old, next)
	if old.Holds(s.key("e"), lost) {
		t.Error("what the minority took is there")
	}
}

// TestPartitionedPair: the primary, a gateway and its publisher are on one side;
// the replica, the Sentinels and another gateway on the other. Both go on.
func TestPartitionedPair(t *testing.T) {
	onlyOnce(t)
	t.Parallel()
	p := testkit.StartPair(t, servedBy)
	url := p.URL()
	var proxies []*testkit.Proxy
	for _, s := range p.Sentinels {
		proxy := testkit.StartProxy(t, s.Addr())
		proxies, url = append(proxies, proxy), strings.Replace(url, s.Addr(), proxy.Addr(), 1)
	}
	near := startOnlooker(t, url, "e", "--failover", "evidence")
	far := startOnlooker(t, p.URL(), "e", "--failover", "evidence")
	replicated := startOnlooker(t, url, "r", "--failover", "evidence", "--durability", "replicas:1")
	replicated.published(t, "before")
	replicated.hears(t, "before")
	old, next := p.Primary(), p.Replica()
	old.AwaitReplica()
	for _, proxy := range proxies {
		proxy.Stall()
	}
	old.Isolate()
	p.AwaitPrimary(next)

	far.published(t, "over there")
	far.hears(t, "over there")
	lost := near.published(t, "over here")
	near.hears(t, "over here")
	if next.Holds("e:32", lost) || !old.Holds("e:32", lost) {
		t.Fatal("nothing is going to be lost, this proves nothing")
	}
	replicated.refused(t, "not over here", "not-replicated")
	old.Do("CONFIG", "SET", "min-replicas-to-write", "1")
	near.refused(t, "held back", "log-unavailable")

	old.Rejoin()
	for _, proxy := range proxies {
		proxy.Resume()
	}
	near.told(t, "log-rewound")
	far.told(t, "log-rewound")
	far.arrives(t, lost, "log-rewound")
	far.published(t, "together")
	far.hears(t, "together")
	near.hears(t, "together")
	old.Follow(next)
	replicated.told(t, "log-rewound") // it has got the entry that wasn't confirmed
	replicated.published(t, "not over here")
	replicated.hears(t, "not over here")
	if old.Holds("e:32", lost) {
		t.Error("what the smaller side took is there")
	}
}
