package tail

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/eventlog/redislog"
	"downlink/internal/testkit"
)

// A standing is what a gateway has of the log: its own link, tail and devices.
type standing struct {
	t     *testing.T
	proxy *testkit.Proxy
	log   *redislog.Log
	tail  *Tail

	mu     sync.Mutex
	seen   []string // payloads of shard 0, and the reasons of its resets
	others []event.Reason
	head   event.ID
}

func (s *standing) Start(int, event.ID) {}

func (s *standing) Dispatch(shard int, entries []eventlog.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range entries {
		s.seen = append(s.seen, e.Event.Payload)
	}
}

func (s *standing) Reset(shard int, at event.ID, reason event.Reason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if shard == 0 {
		s.seen, s.head = append(s.seen, string(reason)), at
	} else {
		s.others = append(s.others, reason)
	}
}

func (s *standing) Overtaken(context.Context, int) (event.ID, error) {
	s.t.Error("the window is an hour: nothing can have been swept")
	return event.ID{}, eventlog.ErrUnavailable
}

func (s *standing) has(word string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.seen, word)
}

func (s *standing) publish(payload string) (id event.ID) {
	s.t.Helper()
	testkit.Eventually(s.t, payload+" is acknowledged", func() bool {
		res := s.log.Append(s.t.Context(), []eventlog.Append{{Events: []event.Event{{Target: "a", Type: "t", Payload: payload}}}})[0]
		id = res.IDs[0]
		return res.Err == nil
	})
	return id
}

func (s *standing) judge(cursor event.ID) event.Reason {
	s.t.Helper()
	var reason event.Reason
	testkit.Eventually(s.t, "a verdict", func() bool {
		reasons, _, err := s.log.Judge(s.t.Context(), 0, []eventlog.Question{{Cursor: cursor, Targets: []string{"a", event.Broadcast}}})
		if err == nil {
			reason = reasons[0]
		}
		return err == nil
	})
	return reason
}

// A pairing is a primary with a replica, and gateways that are led to either.
type pairing struct {
	t                *testing.T
	primary, replica *testkit.Redis
	failover         redislog.Failover
}

func newPairing(t *testing.T, failover redislog.Failover) *pairing {
	p := &pairing{t: t, primary: testkit.StartRedis(t), replica: testkit.StartRedis(t), failover: failover}
	p.replica.Follow(p.primary)
	return p
}

// gateway is one whose watchdog gives a deaf reader a second or so, before it has it
// fetch what it misses on another way.
func (p *pairing) gateway(at *testkit.Redis) *standing { return p.watchful(at, 500*time.Millisecond) }

// watchful is a gateway with a watchdog of a rhythm of its own.
func (p *pairing) watchful(at *testkit.Redis, watch time.Duration) *standing {
	s := &standing{t: p.t, proxy: testkit.StartProxy(p.t, at.Addr())}
	log, err := redislog.Open(p.t.Context(), redislog.Options{
		URL: "redis://" + s.proxy.Addr(), Shards: 2, Window: time.Hour, SweepStep: time.Millisecond, Failover: p.failover,
		BlockTime: 500 * time.Millisecond, CallTimeout: 15 * time.Second,
		Logger: discard(), Metrics: redislog.NewMetrics(prometheus.NewRegistry()),
	})
	if err != nil {
		p.t.Fatal(err)
	}
	s.log = log
	p.t.Cleanup(func() {
		if p.t.Failed() {
			s.mu.Lock()
			defer s.mu.Unlock()
			p.t.Logf("by way of %s: %v; other shards: %v", s.proxy.Addr(), s.seen, s.others)
		}
	})
	s.tail = New(log, s, Options{Window: time.Hour, Watch: watch, Metrics: NewMetrics(nil), Logger: discard()})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.tail.Run(ctx) }()
	p.t.Cleanup(func() { cancel(); <-done; _ = log.Close() })
	testkit.Eventually(p.t, "the tail has begun", s.tail.Ready)
	return s
}

// deafen holds up a gateway's blocking read, and nothing else of it; also another one
// that its watchdog may begin meanwhile.
func (p *pairing) deafen(s *standing) {
	p.t.Helper()
	s.proxy.StallSaying("BLOCK")
	testkit.Eventually(p.t, "the tail's connection is held up", func() bool { return s.proxy.StallThose("BLOCK") > 0 })
}

// replicated waits until the replica has everything.
func (p *pairing) replicated() {
	p.t.Helper()
	testkit.Eventually(p.t, "the replica has everything", func() bool {
		return p.replica.Info("replication", "slave_repl_offset") == p.primary.Info("replication", "master_repl_offset")
	})
}

// promote makes the replica the primary, and leads the gateways there.
func (p *pairing) promote(all ...*standing) {
	p.t.Helper()
	p.replica.Do("REPLICAOF", "NO", "ONE")
	p.primary.Kill9()
	for _, s := range all {
		s.proxy.Retarget(p.replica.Addr()) // first: what is held up must never come
		s.proxy.Resume()
	}
}

const shard0 = "pos-ev:0"

// wantLost asserts that something was lost: the new primary hasn't got it.
func (p *pairing) wantLost(id event.ID) {
	p.t.Helper()
	if found := p.replica.Do("XRANGE", shard0, id.String(), id.String()).([]any); len(found) != 0 {
		p.t.Fatal("nothing was lost: the new primary holds the entry")
	}
}

func raw(t *testing.T, r *testkit.Redis, payload string) event.ID {
	t.Helper()
	id, err := event.ParseID(r.Do("XADD", shard0, "*", "dev", "a", "type", "t", "payload", payload).(string))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestToldBeforeItGoesOn: one gateway reports a loss, and another one, which knew
// nothing of it, tells its devices before they get anything from after the break.
// With such an ID for a cursor nobody else would tell them.
func TestToldBeforeItGoesOn(t *testing.T) {
	t.Parallel()
	for _, failover := range []redislog.Failover{redislog.Cautious, redislog.Evidence} {
		t.Run(string(failover), func(t *testing.T) {
			t.Parallel()
			p := newPairing(t, failover)
			a, b := p.watchful(p.primary, time.Hour), p.watchful(p.primary, time.Hour)
			kept := a.publish("kept")
			testkit.Eventually(t, "the other has read what is kept", func() bool { return b.has("kept") })
			if _, err := a.log.Suspect(t.Context(), 0, kept.Next()); err != nil {
				t.Fatal(err)
			}
			a.publish("after")
			testkit.Eventually(t, "the other one tells its devices", func() bool { return b.has(string(event.LogRewound)) })
			if b.has("after") {
				b.mu.Lock()
				defer b.mu.Unlock()
				if slices.Index(b.seen, "after") < slices.Index(b.seen, string(event.LogRewound)) {
					t.Errorf("it handed over first what came after the break: %v", b.seen)
				}
			}
		})
	}
}

// TestLossyFailover: what was lost in a failover is never passed over in
// silence, whoever knew of it: a gateway that had read it, one that had only
// acknowledged it, or nobody.
func TestLossyFailover(t *testing.T) {
	for _, failover := range []redislog.Failover{redislog.Cautious, redislog.Evidence} {
		for _, known := range []string{"read", "acknowledged", "raw"} {
			t.Run(fmt.Sprint(failover, "/", known), func(t *testing.T) {
				t.Parallel()
				loseAndTell(t, failover, known)
			})
		}
	}
}

func loseAndTell(t *testing.T, failover redislog.Failover, known string) {
	p := newPairing(t, failover)
	a, b := p.gateway(p.primary), p.gateway(p.primary)
	kept := a.publish("kept")
	for _, s := range []*standing{a, b} {
		testkit.Eventually(t, "both have read what is kept", func() bool { return s.has("kept") })
	}
	p.replicated()
	p.primary.CutReplicas(p.replica)
	p.deafen(b)
	if known != "read" {
		p.deafen(a)
	}
	var lost event.ID
	if known == "raw" {
		lost = raw(t, p.primary, "lost")
	} else {
		lost = a.publish("lost")
	}
	if known == "read" {
		testkit.Eventually(t, "the gateway has read it", func() bool { return a.has("lost") })
	} else if a.has("lost") {
		t.Fatal("the gateway has read what it should only have acknowledged")
	}
	p.promote(a, b)
	p.wantLost(lost)
	for i := range 5 { // the log goes on, past the lost ID
		b.publish(fmt.Sprint("later ", i))
	}

	want := event.LogRewound
	switch {
	case known == "raw" && failover == redislog.Evidence:
		want = ""
	case known == "raw":
		want = event.LogUncertain
	}
	for name, s := range map[string]*standing{"the one": a, "the other": b} {
		p.wantTold(name, s, want)
	}
	if got := b.judge(kept); got != want && (want == "" || got == "") {
		t.Errorf("a cursor from before the loss is judged %q, want %q", got, want)
	}
	p.wantNeverServed(lost, a, b)
}

// TestGatewaysThatLeaveOneAfterTheOther: what a replaced server went on storing
// is told to those who had left it before, once more, and then there is peace.
func TestGatewaysThatLeaveOneAfterTheOther(t *testing.T) {
	t.Parallel()
	p := newPairing(t, redislog.Evidence)
	a, b := p.gateway(p.primary), p.gateway(p.primary)
	a.publish("kept")
	p.replicated()
	p.primary.CutReplicas(p.replica)
	lost := a.publish("lost")
	for _, s := range []*standing{a, b} {
		testkit.Eventually(t, "both have read it", func() bool { return s.has("lost") })
	}
	p.deafen(a)
	late := b.publish("late")
	testkit.Eventually(t, "one has read what came late", func() bool { return b.has("late") })
	p.replica.Do("REPLICAOF", "NO", "ONE")
	p.wantLost(lost)
	p.wantLost(late)
	a.proxy.Retarget(p.replica.Addr())
	a.proxy.Resume()
	testkit.Eventually(t, "the first is told", func() bool { return a.told() > 0 })
	p.primary.Kill9()
	b.proxy.Retarget(p.replica.Addr())
	testkit.Eventually(t, "both are told of what came late", func() bool { return a.told() > 1 && b.told() > 0 })
	for i := range 20 {
		after := fmt.Sprint("after ", i)
		a.publish(after)
		for _, s := range []*standing{a, b} {
			testkit.Eventually(t, "both go on", func() bool { return s.has(after) })
		}
	}
	if a.told() != 2 || b.told() != 1 {
		t.Errorf("the first is told %d times, the other %d; want 2 and 1", a.told(), b.told())
	}
}

// told is how often devices were told that the log went back.
func (s *standing) told() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, word := range s.seen {
		if word == string(event.LogRewound) {
			n++
		}
	}
	return n
}

// wantTold waits until a gateway's devices have been told, and have what comes
// then; and asserts that nothing was told twice, or came twice.
func (p *pairing) wantTold(name string, s *standing, want event.Reason) {
	p.t.Helper()
	if want != "" {
		testkit.Eventually(p.t, name+": the devices are told", func() bool {
			return s.has(string(event.LogRewound)) || s.has(string(event.LogUncertain))
		})
	}
	// Who is told once more, since another gateway knows of more, goes on at the
	// head of then.
	tries := 0
	testkit.Eventually(p.t, name+" goes on", func() bool {
		last := fmt.Sprintf("last of %s, %d", name, tries/10)
		if tries++; tries%10 == 1 {
			s.publish(last)
		}
		return s.has(last)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	told := 0
	for i, word := range s.seen {
		if strings.HasPrefix(word, "log-") {
			told++
		} else if slices.Contains(s.seen[:i], word) {
			p.t.Errorf("%s: %q came twice: %v", name, word, s.seen)
		}
		if want == "" && strings.HasPrefix(word, "log-") || word == string(event.WindowExpired) {
			p.t.Errorf("%s: told without a reason: %v", name, s.seen)
		}
	}
	if told == 0 && want != "" {
		p.t.Errorf("%s: nobody was told of the loss: %v", name, s.seen)
	}
	if p.failover == redislog.Evidence && len(s.others) != 0 {
		p.t.Errorf("%s: shards that lost nothing are told %v", name, s.others)
	}
}

// wantNeverServed: a cursor of the lost branch comes later, at a gateway that
// knows nothing of it, and again when the window has passed. here are all that read
// the new primary.
func (p *pairing) wantNeverServed(lost event.ID, here ...*standing) {
	p.t.Helper()
	for _, s := range here {
		if got := s.judge(lost); got == "" {
			p.t.Errorf("a cursor of the lost branch is served")
		}
	}
	late := p.gateway(p.replica)
	if got := late.judge(lost); got == "" {
		p.t.Errorf("a cursor of the lost branch is served by a gateway that came later")
	}
	last := late.publish("swept")
	for _, s := range append(here, late) { // for them nothing is swept unread
		testkit.Eventually(p.t, "what will be swept was read", func() bool { return s.has("swept") })
	}
	p.replica.Do("HSET", shard0+":sweep", "marks", "1:"+last.String())
	if report, err := late.log.Sweep(p.t.Context(), 0, nil); err != nil || report.Removed == 0 {
		p.t.Fatalf("%+v, %v", report, err)
	}
	late.publish("after the window")
	if got := late.judge(lost); got == "" {
		p.t.Errorf("a cursor of the lost branch is served after the window")
	}
}

// TestCleanFailover: everything was replicated. With evidence nobody is told
// anything; every entry comes, once.
func TestCleanFailover(t *testing.T) {
	for _, failover := range []redislog.Failover{redislog.Cautious, redislog.Evidence} {
		t.Run(string(failover), func(t *testing.T) {
			t.Parallel()
			p := newPairing(t, failover)
			a, b := p.gateway(p.primary), p.gateway(p.primary)
			a.publish("before")
			testkit.Eventually(t, "it is read", func() bool { return a.has("before") && b.has("before") })
			p.deafen(b)
			acked := a.publish("unread by one")
			p.replicated()
			p.promote(a, b)
			want := event.Reason("")
			if failover == redislog.Cautious {
				want = event.LogUncertain
			}
			for name, s := range map[string]*standing{"the one": a, "the other": b} {
				p.wantTold(name, s, want)
				if failover == redislog.Evidence && !s.has("unread by one") {
					t.Errorf("%s has never got what was replicated: %v", name, s.seen)
				}
				if s.has(string(event.LogRewound)) {
					t.Errorf("%s: nothing was lost, and it says so: %v", name, s.seen)
				}
			}
			if got := b.judge(acked); failover == redislog.Evidence && got != "" {
				t.Errorf("a cursor of before is judged %q", got)
			}
		})
	}
}

// TestLossWhileNobodyWatches: no gateway runs at the time of the failover. The
// record that came along with the stream tells.
func TestLossWhileNobodyWatches(t *testing.T) {
	for failover, want := range map[redislog.Failover]event.Reason{
		redislog.Cautious: event.LogUncertain, redislog.Evidence: "",
	} {
		t.Run(string(failover), func(t *testing.T) {
			t.Parallel()
			p := newPairing(t, failover)
			a := p.gateway(p.primary)
			kept := a.publish("kept")
			p.replicated()
			p.primary.CutReplicas(p.replica)
			lost := a.publish("lost")
			a.proxy.Stall() // it is never heard of again
			p.promote()
			p.wantLost(lost)
			for i := range 5 {
				raw(t, p.replica, fmt.Sprint("later ", i))
			}
			b := p.gateway(p.replica)
			if got := b.judge(kept); got != want {
				t.Errorf("a cursor from before is judged %q, want %q", got, want)
			}
			p.wantNeverServed(lost, b)
			a.proxy.Resume()
		})
	}
}

// TestABreakThatWasPassed: another gateway says that something is lost when
// this one has read on past it.
func TestABreakThatWasPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		s.run(t)
		after(10 * time.Millisecond)
		s.append(1)
		after(100 * time.Millisecond)
		s.do(func() { s.state.Head = event.ID{Ms: 1001} }) // the new head, which no device can have
		s.append(1)
		after(10 * time.Millisecond)
		s.do(func() {
			s.state.AddBreak(eventlog.Break{Boundary: event.ID{Ms: 1001}, Reach: event.ID{Ms: 1001}, Reason: event.LogRewound})
		})
		after(time.Hour)
		s.append(1)
		after(time.Hour)
		calls := []string{"start 1000-0", "entry 1000-1", "entry 1001-1", "reset 1001-1 log-rewound", "entry 1001-2"}
		if diff := cmp.Diff(calls, s.seen()); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
	})
}

// TestWhatCameWithTheNewsOfABreak: what is dispatched while the question is
// under way that finds the break isn't sent again.
func TestWhatCameWithTheNewsOfABreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		s.run(t)
		after(10 * time.Millisecond)
		s.append(1)
		after(100 * time.Millisecond)
		s.do(func() {
			s.state.AddBreak(eventlog.Break{Boundary: s.state.Head, Reach: s.state.Head, Reason: event.LogRewound})
			s.late = 10 * time.Second
		})
		after(5 * time.Second)
		s.append(1)
		after(time.Second)
		s.do(func() { s.late = 0 })
		after(time.Hour)
		s.append(1)
		after(time.Hour)
		calls := []string{"start 1000-0", "entry 1000-1", "entry 1000-2", "reset 1000-2 log-rewound", "entry 1000-3"}
		if diff := cmp.Diff(calls, s.seen()); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
	})
}

// TestAnAnswerThatWasOvertakenTellsNobody: while the watchdog's question is under
// way, the reader comes upon the break by itself, and everybody is told. What the
// answer then says of the position of before was said.
func TestAnAnswerThatWasOvertakenTellsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		s.run(t)
		after(10 * time.Millisecond)
		s.append(1)
		after(100 * time.Millisecond)
		s.do(func() {
			s.state.AddBreak(eventlog.Break{Boundary: event.ID{Ms: 1001}, Reach: event.ID{Ms: 1001}, Reason: event.LogRewound})
			s.state.Head = event.ID{Ms: 1001}
			s.late = 5 * time.Second
		})
		after(2 * time.Second) // the watchdog has asked
		s.do(func() {
			s.late = 0
			s.state.Head = s.state.Head.Next()
			s.entries = append(s.entries, eventlog.Entry{ID: s.state.Head, Event: event.Event{Target: event.ControlTarget, Type: "look"}})
		})
		after(time.Hour)
		s.append(1)
		after(time.Second)
		calls := []string{"start 1000-0", "entry 1000-1", "reset 1001-1 log-rewound", "entry 1001-2"}
		if diff := cmp.Diff(calls, s.seen()); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
	})
}
