package game

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"downlink/internal/testkit"
)

// solveAll solves a player's next challenges, all of which must count.
func (r *rig) solveAll(ticket Ticket, from, to int) {
	r.t.Helper()
	for n := from; n <= to; n++ {
		r.solveRight(ticket.Token, r.rules().challenge(ticket.Player, n))
	}
}

// wantAll reads the stream until each solve's two events have come, each once and
// in order.
func wantAll(t *testing.T, s *testkit.Stream, solves int) {
	t.Helper()
	var got, want []string
	for n := 1; n <= solves; n++ {
		want = append(want, fmt.Sprintf("drop %d", n), fmt.Sprintf("assignment %d", n+1))
	}
	for len(got) < len(want) {
		kind := strings.TrimSpace(s.Until("event: "))
		kind = kind[strings.LastIndex(kind, " ")+1:]
		if kind != "drop" && kind != "assignment" {
			continue
		}
		data := s.Until("data: ")
		var number int
		if _, err := fmt.Sscanf(data[strings.Index(data, `"challenge":`):], `"challenge":%d`, &number); err != nil {
			t.Fatalf("%s: %q: %v", kind, data, err)
		}
		got = append(got, fmt.Sprintf("%s %d", kind, number))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what came differs from what was earned: %s", diff)
	}
}

// TestDownlinkAwayAndTheGameRestarted: what was earned meanwhile waits in Redis,
// over an end of the game; nobody is refused until too much waits; and then all of
// it comes, once and in order.
func TestDownlinkAwayAndTheGameRestarted(t *testing.T) {
	t.Parallel()
	r := start(t, testkit.StartRedis(t), func(o *Options) { o.OutboxMax = 20 }, "",
		"--listen", testkit.LastingAddr(t), "--backend-listen", testkit.LastingAddr(t))
	ada := r.join("Ada")
	r.gateway.Kill9()

	r.solveAll(ada, 1, 10)
	var no refusal
	eleventh := r.rules().challenge(ada.Player, 11)
	status, header := r.solve(ada.Token, eleventh, &no)
	if status != 503 || no.Word != "busy" || header.Get("Retry-After") == "" {
		t.Fatalf("with a full outbox: %d %+v", status, no)
	}
	testkit.Eventually(t, "the log says that publishing waits", func() bool { return strings.Contains(r.log.String(), "publishing has to wait") })
	r.end()
	r.run()
	if me := r.me(ada.Token); me.Solved != 10 || me.Challenge != eleventh {
		t.Fatalf("after the restart the player is %+v", me)
	}
	r.restartGateway()
	testkit.Eventually(t, "the refused answer counts", func() bool {
		var s Solved
		status, _ := r.solve(ada.Token, eleventh, &s)
		return status == 200 && s.Right
	})
	wantAll(t, testkit.Open(t, ada.Events+"?from=earliest&access_token="+ada.Token, ""), 11)
	testkit.Eventually(t, "nothing waits", func() bool { return r.redis.Do("XLEN", "{hunt:test}:outbox") == int64(0) })
	if n := r.metric("hunt_refused_total"); n != 0 {
		t.Errorf("Downlink has refused %v events for good", n)
	}
}

// TestRedisFull: nothing is counted and nothing lost; players are told to wait.
func TestRedisFull(t *testing.T) {
	t.Parallel()
	r := start(t, testkit.StartRedis(t), nil, "")
	ada := r.join("Ada")
	r.solveAll(ada, 1, 3)
	before := r.me(ada.Token)
	r.redis.Do("CONFIG", "SET", "maxmemory", "1mb")

	var no refusal
	if status, header := r.solve(ada.Token, before.Challenge, &no); status != 503 || no.Word != "unavailable" || !strings.Contains(no.Why, "full") || header.Get("Retry-After") == "" {
		t.Errorf("solving with Redis full: %d %+v", status, no)
	}
	if status, _ := r.ask("POST", "/join", "", map[string]string{"name": "Bob"}, &no); status != 503 || no.Word != "unavailable" {
		t.Errorf("joining with Redis full: %d %+v", status, no)
	}
	if diff := cmp.Diff(before, r.me(ada.Token)); diff != "" {
		t.Errorf("something was counted: %s", diff)
	}
	r.redis.Do("CONFIG", "SET", "maxmemory", "0")
	stream := r.stream(ada)
	r.solveRight(ada.Token, before.Challenge)
	for next[Challenge](t, stream, "assignment").Number != 5 { // earlier ones may have waited
	}
}

// TestRedisFrozen: the answer is no within bounded time, and afterwards all is well.
func TestRedisFrozen(t *testing.T) {
	t.Parallel()
	r := start(t, testkit.StartRedis(t), nil, "")
	ada := r.join("Ada")
	r.end()
	r.hasty = true
	r.run()
	r.redis.Stop()
	began := time.Now()
	var no refusal
	if status, _ := r.solve(ada.Token, ada.Challenge, &no); status != 503 || no.Word != "unavailable" {
		t.Errorf("solving with Redis frozen: %d %+v", status, no)
	}
	if took := time.Since(began); took > 10*callLimit { // it is as long as Redis is frozen, else
		t.Errorf("the answer took %v", took)
	}
	r.redis.Cont()
	testkit.Eventually(t, "the answer counts", func() bool {
		var s Solved // a repeat, if the frozen Redis has heard the first one after all
		status, _ := r.solve(ada.Token, ada.Challenge, &s)
		return status == 200 && s.Right
	})
	if me := r.me(ada.Token); me.Solved != 1 || me.Total != int64(r.rules().drop(ada.Player, 1).Points) {
		t.Errorf("it has counted as %+v", me)
	}
}

// TestDownlinkHoldsBack: with 429 from Downlink every reward still arrives, and of
// the boards only the newest.
func TestDownlinkHoldsBack(t *testing.T) {
	t.Parallel()
	r := start(t, testkit.StartRedis(t), nil, "", "--publish-rate", "20")
	ada := r.join("Ada")
	stream, others := r.stream(ada), r.stream(r.join("Bob"))
	const solves = 50
	r.gateway.Stop() // all of it is there at once then, and is too much, however long the solving takes
	r.solveAll(ada, 1, solves)
	r.gateway.Cont()
	wantAll(t, stream, solves)
	var last Board
	for seen := 0; last.Version < solves; seen++ {
		if last = next[Board](t, others, "board"); seen > solves/2 {
			t.Fatalf("%d boards were published, of which the newest would have done", seen)
		}
	}
	if r.metric(`hunt_publish_held_total{why="rate"}`) == 0 {
		t.Error("Downlink never held anything back: the test proves nothing")
	}
}

// TestTwoGateways: when one is away, the other publishes.
func TestTwoGateways(t *testing.T) {
	t.Parallel()
	nobody := "http://" + testkit.LastingAddr(t)
	r := start(t, testkit.StartRedis(t), func(o *Options) {
		o.Backends = append([]string{nobody}, o.Backends...)
		o.BoardEvery = time.Hour
	}, "")
	ada := r.join("Ada")
	stream := r.stream(ada)
	r.solveAll(ada, 1, 10)
	wantAll(t, stream, 10)
	if log := r.log.String(); strings.Contains(log, "has to wait") && strings.Contains(log, "refused") {
		t.Errorf("publishing had to wait: %s", r.log)
	}
	if n := r.metric(`hunt_published_total{what="board"}`); n > 1 {
		t.Errorf("%v boards were published within an hour", n)
	}
}

// TestWaitingRoom: the governor's word counts for those who come, and for nobody
// who plays already.
func TestWaitingRoom(t *testing.T) {
	t.Parallel()
	full := &switched{}
	r := start(t, testkit.StartRedis(t), func(o *Options) { o.Governor = full.allowance }, "")
	ada := r.join("Ada")
	if got := r.metric("hunt_room"); !math.IsInf(got, 1) {
		t.Errorf("%v may play while the governor lets everybody in", got)
	}
	full.set(true)
	testkit.Eventually(t, "the word is shown before anybody comes", func() bool { return r.metric("hunt_governor_ratio") < 1 && r.metric("hunt_room") < 1e9 })
	var no refusal
	status, header := r.ask("POST", "/join", "", map[string]string{"name": "Bob"}, &no)
	if status != 503 || no.Word != "waiting-room" || !strings.Contains(no.Why, "redis_memory") || header.Get("Retry-After") == "" {
		t.Errorf("who comes is told %d %+v", status, no)
	}
	var again Ticket
	if status, _ := r.ask("POST", "/join", ada.Token, map[string]string{"name": "Ada"}, &again); status != 200 || again.Player != ada.Player {
		t.Errorf("who plays and joins again is told %d %+v", status, again)
	}
	r.solveRight(ada.Token, ada.Challenge)
	full.set(false)
	r.join("Bob")
	for name, want := range map[string]float64{`hunt_joins_total{result="waiting"}`: 1, `hunt_joins_total{result="admitted"}`: 2, `hunt_joins_total{result="again"}`: 1, "hunt_governor_ask_seconds_count": 3} {
		if got := r.metric(name); got != want {
			t.Errorf("%s is %v, not %v", name, got, want)
		}
	}
}

// TestWhoIsSentAwayPlays: whoever is told to come back with an answer keeps its place
// meanwhile.
func TestWhoIsSentAwayPlays(t *testing.T) {
	t.Parallel()
	r := start(t, testkit.StartRedis(t), func(o *Options) {
		o.OutboxMax, o.Backends = eventsPerSolve, []string{"http://" + testkit.LastingAddr(t)}
	}, "")
	ada := r.join("Ada")
	r.solveRight(ada.Token, ada.Challenge) // whose events fill the outbox
	r.redis.Do("ZREM", "{hunt:test}:seen", ada.Player)
	var no refusal
	if status, _ := r.solve(ada.Token, r.rules().challenge(ada.Player, 2), &no); status != 503 || no.Word != "busy" {
		t.Errorf("the outbox is full, and the answer to a right solve is %d %+v", status, no)
	}
	if r.redis.Do("ZSCORE", "{hunt:test}:seen", ada.Player) == nil {
		t.Error("who was told to come back doesn't count as playing")
	}
}

// TestTwoProcesses: both publish what waits, and nothing comes twice.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	r := start(t, testkit.StartRedis(t), nil, "")
	ada := r.join("Ada")
	stream := r.stream(ada)
	r.run() // beside the first, which the test ends at its end
	const solves = 60
	r.solveAll(ada, 1, solves)
	wantAll(t, stream, solves)
	r.solveAll(ada, solves+1, solves+1)
	if a := next[Challenge](t, stream, "assignment"); a.Number != solves+2 {
		t.Errorf("after all of it came number %d once more", a.Number)
	}
}

// TestSentTwice: an event that Downlink has got, and that can't be taken out of the
// outbox, is sent again and stored once.
func TestSentTwice(t *testing.T) {
	t.Parallel()
	redis := testkit.StartRedis(t, testkit.RedisUser("hunt", "secret", "~* +@all -xdel"))
	r := start(t, redis, nil, "", "--log", "redis://"+redis.Addr())
	ada := r.join("Ada")
	stream := r.stream(ada)
	r.solveAll(ada, 1, 2)
	testkit.Eventually(t, "it was sent again", func() bool { return r.metric(`hunt_publish_held_total{why="away"}`) >= 2 })
	redis.Do("ACL", "SETUSER", "hunt", "+xdel")
	r.solveAll(ada, 3, 3)
	wantAll(t, stream, 3)
	if n := r.metric("hunt_refused_total"); n != 0 {
		t.Errorf("%v events were refused", n)
	}
}

// TestBoardWaits: a board that couldn't be published is when it can be, though
// nobody solves anything any more.
func TestBoardWaits(t *testing.T) {
	t.Parallel()
	r := start(t, testkit.StartRedis(t), nil, "", "--listen", testkit.LastingAddr(t), "--backend-listen", testkit.LastingAddr(t))
	ada := r.join("Ada")
	testkit.Eventually(t, "the first board is out", func() bool { return r.metric(`hunt_published_total{what="board"}`) == 1 })
	r.gateway.Kill9()
	r.solveAll(ada, 1, 1)
	testkit.Eventually(t, "it couldn't be published", func() bool { return r.metric(`hunt_publish_held_total{why="away"}`) >= 1 })
	r.restartGateway()
	stream := testkit.Open(t, ada.Events+"?from=earliest&access_token="+ada.Token, "")
	for next[Board](t, stream, "board").Version != 1 {
	}
}

// TestPoison: an event that Downlink will never take stops nobody else's.
func TestPoison(t *testing.T) {
	t.Parallel()
	r := start(t, testkit.StartRedis(t), nil, "")
	ada := r.join("Ada")
	stream := r.stream(ada)
	r.redis.Do("XADD", "{hunt:test}:outbox", "*", "player", "*bad", "type", "drop", "at", "1", "payload", "{}")
	r.redis.Do("XADD", "{hunt:test}:outbox", "*", "player", ada.Player, "type", "drop", "at", "1", "payload", "not JSON")
	r.redis.Do("XADD", "{hunt:test}:outbox", "*", "nothing", "of this")
	r.solveAll(ada, 1, 3)
	wantAll(t, stream, 3)
	testkit.Eventually(t, "nothing waits", func() bool { return r.redis.Do("XLEN", "{hunt:test}:outbox") == int64(0) })
	if n := r.metric("hunt_refused_total"); n != 3 {
		t.Errorf("%v events count as refused, not 3; the log: %s", n, r.log)
	}
}

// TestSolvedOnce: a right answer that is sent many times at once earns once.
func TestSolvedOnce(t *testing.T) {
	t.Parallel()
	r := start(t, testkit.StartRedis(t), nil, "")
	ada := r.join("Ada")
	var all sync.WaitGroup
	var first atomic.Int32
	for range 20 {
		all.Go(func() {
			var s Solved
			if status, _ := r.solve(ada.Token, ada.Challenge, &s); status != 200 || !s.Right {
				t.Errorf("%d %+v", status, s)
			}
			if !s.Repeated {
				first.Add(1)
			}
		})
	}
	all.Wait()
	if me := r.me(ada.Token); first.Load() != 1 || me.Solved != 1 || me.Total != int64(r.rules().drop(ada.Player, 1).Points) {
		t.Errorf("it has counted for %d, and as %+v", first.Load(), me)
	}
}
