package lobby

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"downlink/internal/peer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func is(n int) func() int { return func() int { return n } }

func open(o Options) *Lobby {
	o.Metrics = NewMetrics(nil, "device").Of("device")
	if o.Retry == 0 {
		o.Retry = time.Second
	}
	if o.Waiting == nil {
		o.Waiting = is(1000)
	}
	return New(o)
}

// A client is a connection as a listener has it.
type client struct {
	guest  *Guest
	closed bool
}

func (c *client) Close() error {
	c.close()
	return nil
}

func (c *client) close() {
	c.closed = true
	c.guest.Leave()
}

func arrive(l *Lobby, from string) *client {
	g := l.Arrive(netip.MustParseAddr(from))
	if g == nil {
		return nil
	}
	c := &client{guest: g}
	g.Sit(c)
	return c
}

// admit begins a visit and admits it.
func (c *client) admit() (*Visit, Reason) {
	v := c.guest.Visit(netip.Addr{})
	why, _ := v.Admit(false)
	return v, why
}

func counts(t testing.TB, l *Lobby, waiting, streams int) {
	t.Helper()
	if w, s, _ := l.Count(); w != waiting || s != streams {
		t.Errorf("%d wait and there are %d streams, want %d and %d", w, s, waiting, streams)
	}
	if w, s := testutil.ToFloat64(l.opts.Metrics.waiting), testutil.ToFloat64(l.opts.Metrics.admitted); int(w) != waiting || int(s) != streams {
		t.Errorf("the metrics say %v and %v, want %d and %d", w, s, waiting, streams)
	}
}

func TestAConnectionLeavesTheLobbyForItsStreams(t *testing.T) {
	l := open(Options{})
	c := arrive(l, "192.0.2.1")
	counts(t, l, 1, 0)
	first, _ := c.admit()
	counts(t, l, 0, 1)
	second, _ := c.admit() // as HTTP/2 does
	counts(t, l, 0, 2)
	first.End()
	first.End()
	counts(t, l, 0, 1)
	second.End()
	counts(t, l, 1, 0)
	again, _ := c.admit() // as polls do
	counts(t, l, 0, 1)
	c.close()
	counts(t, l, 0, 1) // its handler hasn't returned
	again.End()
	counts(t, l, 0, 0)
}

// What was taken over lives on after its request, and ends once.
func TestTaken(t *testing.T) {
	l := open(Options{})
	c := arrive(l, "192.0.2.1")
	v, _ := c.admit()
	end := c.guest.Take()
	v.End() // the handler returns
	counts(t, l, 0, 1)
	end()
	end()
	counts(t, l, 0, 0)
}

func TestKeptOnceAdmitted(t *testing.T) {
	l := open(Options{Keep: true, Streams: is(1)})
	c := arrive(l, "192.0.2.1")
	for range 3 {
		v, why := c.admit()
		if why != "" {
			t.Fatal(why)
		}
		v.End()
		counts(t, l, 0, 1)
	}
	if _, why := arrive(l, "192.0.2.2").admit(); why != Full {
		t.Errorf("a second one: %q", why)
	}
	c.close()
	counts(t, l, 1, 0)
}

func TestTheOldestIsCut(t *testing.T) {
	l := open(Options{Waiting: is(3)})
	var in []*client
	for i := range 5 {
		in = append(in, arrive(l, fmt.Sprint("192.0.2.", i)))
	}
	for i, c := range in {
		if c.closed != (i < 2) {
			t.Errorf("number %d: closed %v", i, c.closed)
		}
	}
	counts(t, l, 3, 0)
	if n := testutil.ToFloat64(l.opts.Metrics.cut); n != 2 {
		t.Errorf("%v were counted", n)
	}
	if _, why := in[0].admit(); why == "" {
		t.Error("who was cut is admitted")
	}
	counts(t, l, 3, 0)
}

// A flood from one address displaces itself.
func TestAFloodSparesTheSlow(t *testing.T) {
	l := open(Options{Waiting: is(100)})
	var slow []*client
	for i := range looked - 1 {
		slow = append(slow, arrive(l, fmt.Sprint("192.0.2.", i)))
	}
	for range 10_000 {
		arrive(l, "198.51.100.1")
	}
	for i, c := range slow {
		if c.closed {
			t.Errorf("the slow one %d was cut", i)
		}
	}
}

// A flood that stops at one stage displaces itself: neither who is before it nor
// who is past it is cut, though they are older and come from its address.
func TestAFloodAtOneStageSparesTheOthers(t *testing.T) {
	for flood := range Stage(stages) {
		l := open(Options{Waiting: is(100)})
		var spared []*client
		for s := range Stage(stages) {
			if s != flood {
				c := arrive(l, "192.0.2.1")
				c.guest.Reach(s)
				spared = append(spared, c)
			}
		}
		for range 1000 {
			c := arrive(l, "192.0.2.1")
			c.guest.Reach(flood)
			c.guest.Reach(flood - 1) // nobody goes back
		}
		for _, c := range spared {
			if c.closed {
				t.Errorf("a flood at stage %d cut one at stage %d", flood, c.guest.stage)
			}
		}
		counts(t, l, 100, 0)
	}
}

// What is done again gains nothing: who came to a stage first is cut first.
func TestAStageIsReachedOnce(t *testing.T) {
	l := open(Options{Waiting: is(2)})
	first, second := arrive(l, "192.0.2.1"), arrive(l, "192.0.2.1")
	for _, c := range []*client{first, second, first} {
		c.guest.Reach(Greeted)
	}
	arrive(l, "192.0.2.1")
	if !first.closed || second.closed {
		t.Errorf("the first: closed %v, the second: %v", first.closed, second.closed)
	}
}

// Who has a stream isn't cut, and neither is who can't be; then nobody gets in.
func TestNoRoom(t *testing.T) {
	l := open(Options{Waiting: is(2)})
	streaming := arrive(l, "192.0.2.1")
	streaming.admit()
	a, b := l.Arrive(netip.MustParseAddr("192.0.2.2")), l.Arrive(netip.MustParseAddr("192.0.2.3")) // nobody said how to cut them
	if l.Arrive(netip.MustParseAddr("192.0.2.4")) != nil {
		t.Error("there is room for a third")
	}
	if n := testutil.ToFloat64(l.opts.Metrics.away); n != 1 || l.CutOne() {
		t.Errorf("%v were turned away, or somebody was cut", n)
	}
	a.Leave()
	if l.Arrive(netip.MustParseAddr("192.0.2.4")) == nil {
		t.Error("there is no room again")
	}
	b.Leave()
	if streaming.closed {
		t.Error("a stream was cut")
	}
}

// A lowered bound cuts those above it with the next arrival.
func TestALowerBound(t *testing.T) {
	bound := 100
	l := open(Options{Waiting: func() int { return bound }})
	for range 100 {
		arrive(l, "192.0.2.1")
	}
	bound = 10
	arrive(l, "192.0.2.1")
	counts(t, l, 10, 0)
}

func TestLimitsOfStreams(t *testing.T) {
	most, each := 3, 2
	short := false
	l := open(Options{
		Streams: func() int { return most }, StreamsPerAddress: func() int { return each },
		Short: func() bool { return short },
	})
	expect := func(from string, want Reason) *Visit {
		t.Helper()
		v, why := arrive(l, from).admit()
		if why != want {
			t.Errorf("from %s: %q, want %q", from, why, want)
		}
		if again, _ := v.Admit(false); want == "" && again != "" {
			t.Errorf("admitted twice: %q", again)
		}
		return v
	}
	first := expect("2001:db8::1", "")
	expect("2001:db8::2", "")
	expect("2001:db8::3", AddressFull) // the same /64
	expect("2001:db8:0:1::1", "")
	expect("192.0.2.1", Full)
	most = 1 // ends nobody
	counts(t, l, 2, 3)
	most = 10
	short = true
	expect("192.0.2.1", NoDescriptors)
	short = false
	first.End()
	expect("2001:db8::3", "")
	each = 0
	expect("2001:db8::4", "")
}

// The clients behind a proxy are counted, not the proxy.
func TestProxied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in no time: one second's rate counts
		l := open(Options{
			StreamsPerAddress: is(1), RatePerAddress: is(1),
			Proxies: peer.Proxies{netip.MustParsePrefix("10.0.0.0/8")},
		})
		c := arrive(l, "10.0.0.1")
		if !c.guest.Proxied() || arrive(l, "11.0.0.1").guest.Proxied() {
			t.Error("who is a proxy isn't known")
		}
		for i, from := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.1"} {
			v := c.guest.Visit(netip.MustParseAddr(from))
			knock, _ := v.Knock()
			admit, _ := v.Admit(false)
			if refused := i == 2; (knock == AddressTooFast) != refused || (admit == AddressFull) != refused {
				t.Errorf("%s: %q, %q", from, knock, admit)
			}
		}
	})
}

// TestRates: one second's worth at once, and then one after the other.
func TestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(Options{Rate: is(100), RatePerAddress: is(10)})
		try := func(from string) Reason {
			c := arrive(l, from)
			defer c.close()
			v := c.guest.Visit(netip.Addr{})
			defer v.End()
			why, _ := v.Knock()
			if why == "" {
				why, _ = v.Admit(false)
			}
			return why
		}
		welcome := func(n int, from func(i int) string) map[Reason]int {
			got := make(map[Reason]int)
			for i := range n {
				got[try(from(i))]++
			}
			return got
		}
		one := func(int) string { return "192.0.2.1" }
		many := func(i int) string { return fmt.Sprint("198.51.100.", i) }
		if got := welcome(20, one); got[""] != 10 || got[AddressTooFast] != 10 {
			t.Errorf("from one address: %v", got)
		}
		if got := welcome(200, many); got[""] != 90 || got[TooFast] != 110 {
			t.Errorf("from many: %v", got)
		}
		time.Sleep(500 * time.Millisecond) //nolint:forbidigo // in a bubble
		if got := welcome(20, one); got[""] != 5 {
			t.Errorf("from one address, half a second later: %v", got)
		}
		if got := welcome(200, many); got[""] != 45 {
			t.Errorf("from many, half a second later: %v", got)
		}
	})
}

// TestACrowdComesBackInTurns: everybody tries at once, and then when told to.
func TestACrowdComesBackInTurns(t *testing.T) {
	const crowd, rate = 20_000, 500
	for name, o := range map[string]Options{
		"by rate": {Rate: is(rate)},
		"by room": {Streams: is(rate * crowdReturns)}, // which is full, see below
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o.Waiting = is(crowd * 3)
				l := open(o)
				for range limit(o.Streams) {
					arrive(l, "192.0.2.1").admit()
				}
				perSecond := make(map[time.Duration]int)
				last := time.Duration(0)
				for range crowd {
					why, retry := arrive(l, "192.0.2.2").guest.Visit(netip.Addr{}).Admit(false)
					if why != "" {
						perSecond[retry.Truncate(time.Second)]++
						last = max(last, retry)
					}
				}
				if want := time.Duration(crowd/rate) * time.Second; last > want+3*time.Second || last < want-3*time.Second {
					t.Errorf("the last one comes back after %v, want about %v", last, want)
				}
				for at, n := range perSecond {
					if n > rate*13/10 && at > 2*time.Second { // who comes first is spread by jitter alone
						t.Errorf("%d come back in the second after %v", n, at)
					}
				}
			})
		})
	}
}

// TestTheLineIsBounded: however many are refused, nobody stays away for longer,
// and the line gets shorter by itself.
func TestTheLineIsBounded(t *testing.T) {
	for name, by := range map[string]struct {
		limits  Options
		longest time.Duration
	}{
		"by rate": {Options{Rate: is(1)}, longestByRate},
		"by room": {Options{Streams: is(1)}, longestForRoom},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := open(by.limits)
				refuse := func() time.Duration {
					_, retry := arrive(l, "192.0.2.1").guest.Visit(netip.Addr{}).Admit(false)
					return retry
				}
				l.opts.Waiting = is(10_000)
				for range 5000 {
					if retry := refuse(); retry > by.longest+time.Second {
						t.Fatalf("told to stay away for %v", retry)
					}
				}
				time.Sleep(by.longest + 2*time.Second) //nolint:forbidigo // in a bubble
				refuse()                               // is admitted, by rate
				if retry := refuse(); retry > 3*time.Second {
					t.Errorf("the line is still %v long", retry)
				}
			})
		})
	}
}

// TestSitesAreForgotten: what is remembered of addresses is bounded, and goes
// when it doesn't matter any more.
func TestSitesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(Options{RatePerAddress: is(1)})
		for i := range 2 * maxIdle {
			c := arrive(l, netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}).String())
			c.guest.Visit(netip.Addr{}).Knock()
			c.guest.Take()() // ends both
		}
		if _, _, n := l.Count(); n > maxIdle+1 {
			t.Errorf("%d addresses are remembered", n)
		}
		time.Sleep(2 * time.Second) //nolint:forbidigo // in a bubble
		c := arrive(l, "192.0.2.1")
		if _, _, n := l.Count(); n != 1 {
			t.Errorf("%d addresses are remembered later", n)
		}
		c.close()
		if _, _, n := l.Count(); n != 0 {
			t.Errorf("%d addresses are remembered at last", n)
		}
	})
}

// TestNothingIsLost: whatever happens in whatever order, the counts are those of
// a model, nobody with a stream is cut, and at the end nothing is left.
func TestNothingIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bound := 4
		l := open(Options{
			Waiting: func() int { return bound }, Streams: is(5), StreamsPerAddress: is(3),
			Keep: rapid.Bool().Draw(t, "keep"),
		})
		w := &world{lobby: l, keep: l.opts.Keep}
		t.Repeat(map[string]func(*rapid.T){
			"":       func(t *rapid.T) { w.check(t) },
			"arrive": func(t *rapid.T) { w.arrive(t, rapid.IntRange(1, 3).Draw(t, "from"), bound) },
			"bound":  func(t *rapid.T) { bound = rapid.IntRange(1, 6).Draw(t, "bound") },
			"cut":    func(*rapid.T) { l.CutOne() },
			"visit":  func(t *rapid.T) { w.one(t).visit(t) },
			"end":    func(t *rapid.T) { w.one(t).end(t) },
			"close":  func(t *rapid.T) { w.one(t).leave() },
			"take":   func(t *rapid.T) { w.one(t).take() },
			"reach":  func(t *rapid.T) { w.one(t).guest.Reach(Stage(rapid.IntRange(0, stages-1).Draw(t, "stage"))) },
		})
		for _, g := range w.guests {
			g.leave()
			for len(g.visits) > 0 {
				g.end(t)
			}
		}
		if waiting, streams, sites := l.Count(); waiting+streams != 0 || sites != l.sites.idle {
			t.Fatalf("%d and %d are left, and %d addresses, of which nobody is at %d", waiting, streams, sites, l.sites.idle)
		}
	})
}

// TestAStreamIsCheap: what a stream costs here, when it comes and goes.
func TestAStreamIsCheap(t *testing.T) {
	l := open(Options{StreamsPerAddress: is(10), Rate: is(1e9), RatePerAddress: is(1e9)})
	from := netip.MustParseAddr("192.0.2.1")
	arrive(l, "192.0.2.1") // keeps the address known
	if n := testing.AllocsPerRun(1000, func() { comeAndGo(l, from) }); n > 2 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkComeAndGo(b *testing.B) {
	l := open(Options{})
	from := netip.MustParseAddr("192.0.2.1")
	b.ReportAllocs()
	for b.Loop() {
		comeAndGo(l, from)
	}
}

func comeAndGo(l *Lobby, from netip.Addr) {
	g := l.Arrive(from)
	v := g.Visit(netip.Addr{})
	_, _ = v.Knock()
	_, _ = v.Admit(false)
	g.Take()()
}
