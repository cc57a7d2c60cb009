package lease

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"downlink/internal/eventlog"
	"downlink/internal/eventlog/redislog"
	"downlink/internal/testkit"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
)

// connect opens the log at a URL as a gateway does, with 8 shards.
func connect(tb testing.TB, url string, change func(*redislog.Options)) *redislog.Log {
	tb.Helper()
	o := redislog.Options{
		URL: url, Shards: modelShards, Groups: 4,
		Metrics: redislog.NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	var l *redislog.Log
	testkit.Eventually(tb, "the log can be opened", func() bool {
		var err error
		l, err = redislog.Open(ctx, o)
		return err == nil
	})
	tb.Cleanup(func() { _ = l.Close() })
	return l
}

func list(tb testing.TB, n int) ([]*testkit.Redis, string) {
	tb.Helper()
	var servers []*testkit.Redis
	var urls []string
	for range n {
		r := testkit.StartRedis(tb)
		servers, urls = append(servers, r), append(urls, r.URL())
	}
	return servers, strings.Join(urls, ",")
}

// TestKeepers holds Redis, in each form, to what the rest of the tests believe
// of it, and what they use in its place as well.
func TestKeepers(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(testing.TB) eventlog.LeaseKeeper{
		"memory": func(testing.TB) eventlog.LeaseKeeper { return newMemory(modelShards) },
		"one":    func(tb testing.TB) eventlog.LeaseKeeper { return connect(tb, testkit.StartRedis(tb).URL(), nil) },
		"least user": func(tb testing.TB) eventlog.LeaseKeeper {
			page, err := os.ReadFile("../../docs/operate/redis.md")
			if err != nil || !strings.Contains(string(page), "| `downlink dial --owner ring` | `+pexpire` `+pttl` |") {
				tb.Errorf("docs/operate/redis.md doesn't say what leases need: %v", err)
			}
			return connect(tb, testkit.StartRedis(tb, testkit.RedisUser("gateway", "s3cr3t", leastRules)).URL(), nil)
		},
		"list": func(tb testing.TB) eventlog.LeaseKeeper {
			_, urls := list(tb, 2)
			return connect(tb, urls, nil)
		},
		"cluster": func(tb testing.TB) eventlog.LeaseKeeper {
			return connect(tb, testkit.StartCluster(tb, 2, 0).URL(), nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := &keeping{TB: t, LeaseKeeper: open(t)}
			k.leases()
			k.expiry()
			k.members()
		})
	}
}

// leastRules are what docs/operate/redis.md gives a gateway that dials in a ring.
const leastRules = "resetkeys resetchannels ~pos-ev:* -@all +hello +ping +select +info +time +exists +unlink " +
	"+xadd +xread +xrange +xtrim +xdel +xinfo|stream +multi +exec " +
	"+hset +hget +hgetall +hlen +hmget +hscan +hdel +get +set +eval +evalsha +script|load +pexpire +pttl"

// keeping asks a keeper as several processes.
type keeping struct {
	testing.TB
	eventlog.LeaseKeeper
}

const shortTTL = 150 * time.Millisecond

func claimant(name, nonce string) eventlog.Claimant {
	return eventlog.Claimant{Name: name, Nonce: nonce, TTL: time.Minute}
}

func (k *keeping) ask(who eventlog.Claimant, want eventlog.LeaseWant, held, floor uint64) eventlog.LeaseState {
	k.Helper()
	states, err := k.Leases(context.Background(), who, []eventlog.LeaseAsk{{Shard: 1, Want: want, Held: held, Floor: floor}})
	if err != nil || states[0].Err != nil {
		k.Fatalf("%s of %v: %v, %v", want, who, err, states)
	}
	return states[0]
}

// want compares but for the generation.
func (k *keeping) want(what string, got eventlog.LeaseState, owner string, mine bool) {
	k.Helper()
	want := eventlog.LeaseState{Owner: owner, Mine: mine}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(eventlog.LeaseState{}, "Generation", "Last", "Was", "Since")); diff != "" {
		k.Errorf("%s:\n%s", what, diff)
	}
}

func (k *keeping) leases() {
	a, b, second := claimant("a", "1"), claimant("b", "2"), claimant("a", "3")
	now := uint64(time.Now().Add(-time.Minute).UnixMilli())
	k.want("nobody's", k.ask(a, eventlog.LeaseLook, 0, 0), "", false)
	first := k.ask(a, eventlog.LeaseTake, 0, 0)
	k.want("taken", first, "a", true)
	if first.Generation < now {
		k.Errorf("the first generation is %d, before %d", first.Generation, now)
	}
	k.want("held by another", k.ask(b, eventlog.LeaseTake, 0, 0), "a", false)
	k.want("kept by another", k.ask(b, eventlog.LeaseKeep, first.Generation, 0), "a", false)
	k.want("held by a namesake", k.ask(second, eventlog.LeaseTake, 0, 0), "a", false)
	k.want("dropped by a namesake", k.ask(second, eventlog.LeaseDrop, first.Generation, 0), "a", false)
	if kept := k.ask(a, eventlog.LeaseKeep, first.Generation, first.Generation); !kept.Mine || kept.Generation != first.Generation {
		k.Errorf("kept: %+v", kept)
	}
	raised := k.ask(a, eventlog.LeaseKeep, first.Generation, first.Generation+70_000)
	if !raised.Mine || raised.Generation <= first.Generation+70_000 {
		k.Errorf("raised over %d: %+v", first.Generation+70_000, raised)
	}
	again := k.ask(a, eventlog.LeaseTake, 0, 0) // its answer was lost
	if !again.Mine || again.Generation <= raised.Generation {
		k.Errorf("taken again: %+v after %+v", again, raised)
	}
	k.want("dropped with an old generation", k.ask(a, eventlog.LeaseDrop, raised.Generation, 0), "a", true)
	k.want("dropped", k.ask(a, eventlog.LeaseDrop, again.Generation, 0), "", false)
	other := k.ask(b, eventlog.LeaseTake, 0, 0)
	if !other.Mine || other.Generation <= again.Generation || other.Last != "b" || other.Was != "a" || other.Since != other.Generation {
		k.Errorf("the next owner's: %+v after %+v", other, again)
	}
	k.want("kept by who had it", k.ask(a, eventlog.LeaseKeep, again.Generation, again.Generation), "b", false)
	k.want("dropped", k.ask(b, eventlog.LeaseDrop, other.Generation, 0), "", false)
	gone := k.ask(b, eventlog.LeaseKeep, other.Generation, other.Generation)
	if !gone.Mine || gone.Generation <= other.Generation || gone.Was != "a" || gone.Since != other.Since {
		k.Errorf("kept though it was gone: %+v after %+v", gone, other)
	}
	k.ask(b, eventlog.LeaseDrop, gone.Generation, 0)
}

func (k *keeping) expiry() {
	a, b := claimant("a", "1"), claimant("b", "2")
	a.TTL = shortTTL
	began := time.Now()
	taken := k.ask(a, eventlog.LeaseTake, 0, 0)
	k.want("taken", taken, "a", true)
	var next eventlog.LeaseState
	testkit.Eventually(k, "the lease runs out", func() bool {
		next = k.ask(b, eventlog.LeaseTake, 0, 0)
		return next.Mine
	})
	if waited := time.Since(began); waited < shortTTL/2 || next.Generation <= taken.Generation {
		k.Errorf("after %v of %v the lease was %+v; before %+v", waited, shortTTL, next, taken)
	}
	k.ask(b, eventlog.LeaseDrop, next.Generation, 0)
}

func (k *keeping) say(who eventlog.Claimant, says eventlog.Presence) eventlog.Membership {
	k.Helper()
	m, err := k.Members(context.Background(), who, says)
	if err != nil {
		k.Fatalf("%v says %s: %v", who, says, err)
	}
	return m
}

func (k *keeping) members() {
	a, b, second := claimant("a", "1"), claimant("b", "2"), claimant("a", "3")
	same := cmpopts.SortSlices(func(x, y eventlog.MemberState) bool { return x.Name < y.Name })
	want := func(what string, got eventlog.Membership, taken, known bool, members ...eventlog.MemberState) {
		k.Helper()
		if diff := cmp.Diff(eventlog.Membership{Taken: taken, Known: known, Members: members}, got, same, cmpopts.EquateEmpty()); diff != "" {
			k.Errorf("%s:\n%s", what, diff)
		}
	}
	isA, isB := eventlog.MemberState{Name: "a"}, eventlog.MemberState{Name: "b"}
	want("nobody yet", k.say(a, eventlog.PresenceLook), false, false)
	want("the first", k.say(a, eventlog.PresenceStay), false, true, isA)
	want("the second", k.say(b, eventlog.PresenceStay), false, true, isA, isB)
	want("a namesake", k.say(second, eventlog.PresenceStay), true, false, isA, isB)
	want("a namesake goes", k.say(second, eventlog.PresenceGone), true, false, isA, isB)
	b.TTL = shortTTL
	k.say(b, eventlog.PresenceStay)
	testkit.Eventually(k, "the second runs out", func() bool { return len(k.say(a, eventlog.PresenceLook).Members) == 1 })
	want("leaving", k.say(a, eventlog.PresenceLeaving), false, true, eventlog.MemberState{Name: "a", Leaving: true})
	want("gone", k.say(a, eventlog.PresenceGone), false, false)
	want("nobody again", k.say(a, eventlog.PresenceLook), false, false)
}

// TestRubbish: what others have put where leases are neither stops the shards
// beside it nor lasts.
func TestRubbish(t *testing.T) {
	t.Parallel()
	r := testkit.StartRedis(t)
	k := &keeping{TB: t, LeaseKeeper: connect(t, r.URL(), nil)}
	a := claimant("a", "1")
	a.TTL = shortTTL
	for what, put := range map[string][][]string{
		"a lease for ever":             {{"SET", "pos-ev:own:1", "b"}},
		"a lease of a clock far ahead": {{"SET", "pos-ev:own:1", "b", "PX", "9000000000"}},
		"a lease that is a list":       {{"RPUSH", "pos-ev:own:1", "b"}},
		"a record that is text":        {{"SET", "pos-ev:gen:1", "b"}},
		"a record beyond numbers":      {{"HSET", "pos-ev:gen:1", "generation", "1e999", "ttl", "nan", "since", "-5"}},
		"a record without an owner":    {{"HSET", "pos-ev:gen:1", "generation", "7"}},
	} {
		r.Do("DEL", "pos-ev:own:1", "pos-ev:gen:1")
		for _, command := range put {
			r.Do(command...)
		}
		testkit.Eventually(t, what+" doesn't last", func() bool { return k.ask(a, eventlog.LeaseTake, 0, 0).Mine })
	}
	r.Do("HSET", "pos-ev:members", "b", "99999999999999 150 7 stay", "c", "rubbish", "d", "99999999999999 nan 7 stay")
	testkit.Eventually(t, "members of a clock far ahead don't last", func() bool {
		m := k.say(a, eventlog.PresenceStay)
		return m.Known && len(m.Members) == 1
	})
	if k.say(a, eventlog.PresenceGone); r.Do("EXISTS", "pos-ev:members").(int64) != 0 {
		t.Error("the last member has left its key behind")
	}
}

// TestManyNumbers: generations survive the way through a script's numbers.
func TestManyNumbers(t *testing.T) {
	t.Parallel()
	r := testkit.StartRedis(t)
	k := &keeping{TB: t, LeaseKeeper: connect(t, r.URL(), nil)}
	for _, high := range []uint64{1 << 52, 1<<53 - 1000} {
		r.Do("DEL", "pos-ev:own:1", "pos-ev:gen:1")
		if s := k.ask(claimant("a", "1"), eventlog.LeaseTake, 0, high); s.Generation != high+1 {
			t.Errorf("over %d comes %d", high, s.Generation)
		}
	}
}
