package redislog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/testkit"
)

// Sweeping while everything else goes wrong: what is due comes all at once,
// others sweep, trim and delete too, memory is full, nobody looked for hours.

// A history is what was appended: for each device its entries, in order.
type history struct {
	all  []event.ID
	last map[string]event.ID // by device
}

// stock adds n entries for so many devices in turn, as raw producers do, and
// quickly: a script of the test's adds a thousand at a time.
func (r *rig) stock(n, devices int) *history {
	r.Helper()
	const script = `local ids = {}
for i = ARGV[1], ARGV[2] do
  ids[#ids + 1] = redis.call('XADD', KEYS[1], '*', 'dev', 'd' .. (i % ARGV[3]), 'type', 't', 'payload', 'p')
end
return ids`
	h := &history{last: make(map[string]event.ID)}
	for first := 0; first < n; first += 1000 {
		last := min(first+1000, n) - 1
		reply := r.redis.Do("EVAL", script, "1", stream0, strconv.Itoa(first), strconv.Itoa(last), strconv.Itoa(devices))
		for _, text := range reply.([]any) {
			id, err := event.ParseID(text.(string))
			if err != nil {
				r.Fatal(err)
			}
			h.last[fmt.Sprint("d", len(h.all)%devices)] = id
			h.all = append(h.all, id)
		}
	}
	return h
}

// sweepers sweep shard 0 until stop is called, which gives the sum of their reports.
func (r *rig) sweepers(logs ...*Log) (stop func() eventlog.SweepReport) {
	ctx, cancel := context.WithCancel(context.Background())
	var mu sync.Mutex
	var sum eventlog.SweepReport
	var wg sync.WaitGroup
	for _, l := range logs {
		wg.Go(func() {
			for ctx.Err() == nil {
				report, err := l.Sweep(context.Background(), 0, nil)
				if err != nil {
					r.Errorf("Sweep: %v", err)
					return
				}
				mu.Lock()
				sum.Removed += report.Removed
				sum.Foreign += report.Foreign
				mu.Unlock()
				if report.Removed == 0 {
					<-time.After(time.Millisecond)
				}
			}
		})
	}
	stop = func() eventlog.SweepReport {
		cancel()
		wg.Wait()
		return sum
	}
	r.Cleanup(func() { stop() })
	return stop
}

// wantSwept asks for devices whether the notes say exactly what was removed:
// who stands at his last entry, or at any ID from there on, misses nothing, and
// who stands before it does.
func (r *rig) wantSwept(h *history) {
	r.Helper()
	for i := range 40 {
		device := fmt.Sprint("d", i*len(h.last)/40)
		last := h.last[device]
		r.want("its last entry", last, device, "")
		r.want("right before its last entry", before(last), device, event.WindowExpired)
		at := h.all[rand.IntN(len(h.all))]
		want := event.Reason("")
		if at.Less(last) {
			want = event.WindowExpired
		}
		r.want("somewhere", at, device, want)
		r.want("of another device", at, "nobody", "")
	}
}

// before is the highest ID below another one.
func before(id event.ID) event.ID {
	if id.Seq == 0 {
		return event.ID{Ms: id.Ms - 1, Seq: ^uint64(0)}
	}
	return event.ID{Ms: id.Ms, Seq: id.Seq - 1}
}

// TestManyDueAtOnce: two gateways come back to 140,000 entries that are due at
// once, while somebody publishes. By the server's own watch no call takes long.
func TestManyDueAtOnce(t *testing.T) {
	r := newRig(t, shortWindow, testkit.RedisConfig("slowlog-log-slower-than 400000", "slowlog-max-len 1000"))
	const n = 140_000
	h := r.stock(n, 5000)
	other := open(t, r.opts)
	// Everything becomes due by this one mark.
	r.redis.Do("HSET", record0, "marks", "1:"+h.all[n-1].String())
	r.redis.Do("SLOWLOG", "RESET")
	r.redis.Do("CONFIG", "RESETSTAT")
	before := r.robbed()

	publishing, enough := context.WithCancel(t.Context())
	published := make(chan time.Duration, 1)
	go func() {
		var worst time.Duration
		for publishing.Err() == nil {
			began := time.Now()
			if res := r.tryAt(1, "live"); res.Err != nil {
				t.Errorf("Append: %v", res.Err)
			}
			worst = max(worst, time.Since(began))
		}
		published <- worst
	}()
	stop := r.sweepers(r.Log, other)
	began := time.Now()
	testkit.Eventually(t, "everything is swept", func() bool { return !r.state().Swept.Less(h.all[n-1]) })
	took := time.Since(began)
	sum := stop()
	enough()
	worst := <-published

	if sum.Removed != n || sum.Foreign != 0 {
		t.Errorf("%d entries were removed, %d of them by nobody that we know; want %d", sum.Removed, sum.Foreign, n)
	}
	// By itself a call takes 12 ms at most here, and would take over a second if it
	// did everything that is due. A machine that does other work may rob the
	// server of its time slice in the midst of a call; one that is another's guest
	// doesn't see all of that.
	slow, robbed := r.redis.Do("SLOWLOG", "GET", "-1").([]any), r.robbed()-before
	if len(slow) > 2+int(robbed/(300*time.Millisecond)) {
		t.Errorf("%d calls took over 400 ms, and the server waited for a processor for %v only; the last: %.300v", len(slow), robbed, slow[0])
	}
	t.Logf("swept in %v; the worst of the publisher's calls took %v; %d calls over 400 ms, %v waiting for a processor; scripts: %s",
		took, worst, len(slow), robbed, r.redis.Info("commandstats", "cmdstat_evalsha"))
	if st := r.state(); st.Since != st.Founded {
		t.Errorf("the notes are complete only from %s; state %+v", st.Since, st)
	}
	r.wantSwept(h)
}

// robbed is how long the server was able to run and had to wait for a processor
// so far; 0 if the system doesn't tell.
func (r *rig) robbed() time.Duration {
	r.Helper()
	content, err := os.ReadFile("/proc/" + r.redis.Info("server", "process_id") + "/schedstat")
	if err != nil {
		return 0
	}
	var ran, waited int64
	if _, err := fmt.Sscan(string(content), &ran, &waited); err != nil {
		r.Fatal(err)
	}
	return time.Duration(waited)
}

// tryAt appends to any shard.
func (r *rig) tryAt(shard int, device string) eventlog.Result {
	return r.Append(context.Background(), []eventlog.Append{{
		Shard: shard, Events: []event.Event{{Target: device, Type: "t", Payload: "p"}},
	}})[0]
}

// trimming adds entries for ten devices in turn, as producers do that trim as they
// add: to about or exactly twenty, or up to the ID of the twentieth before.
const trimming = `local ids = {}
for i = 0, ARGV[1] - 1 do
  local bound = ARGV[4]
  if ARGV[2] == 'MINID' then bound = ids[#ids - 19] or '0-0' end
  ids[#ids + 1] = redis.call('XADD', KEYS[1], ARGV[2], ARGV[3], bound, '*', 'dev', 'd' .. ((ARGV[5] + i) % 10), 'type', 't', 'payload', 'p')
end
return ids`

// TestProducersThatTrim: raw producers trim as they add, while two gateways
// sweep. Whoever misses something is told, and who stands at an entry that is
// held is not.
func TestProducersThatTrim(t *testing.T) {
	for name, c := range map[string]struct {
		trim, how string
		burst     int // how many come at once: however fast the sweep is, some of them are trimmed
	}{
		"MAXLEN":        {"MAXLEN", "=", 30},
		"MAXLEN, about": {"MAXLEN", "~", 150}, // a node of the stream has a hundred
		"MINID":         {"MINID", "=", 30},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(o *Options) { o.Window = 50 * time.Millisecond })
			stop := r.sweepers(r.Log, open(t, r.opts))
			all := []event.ID{r.app("d0")}
			for len(all) <= 600 {
				reply := r.redis.Do("EVAL", trimming, "1", stream0, strconv.Itoa(c.burst), c.trim, c.how, "20", strconv.Itoa(len(all)))
				for _, text := range reply.([]any) {
					id, err := event.ParseID(text.(string))
					if err != nil {
						t.Fatal(err)
					}
					all = append(all, id)
				}
				<-time.After(time.Duration(c.burst) * 300 * time.Microsecond) // in which the sweep does its part
			}
			if sum := stop(); sum.Foreign == 0 {
				t.Fatal("no removal was found that isn't our own")
			}
			for i, at := range all {
				next := i + 3 // the device's next entry, if there is one
				got := r.judge(at, fmt.Sprint("d", next%10))
				switch {
				case r.holds(at) && got != "":
					t.Errorf("entry %d is held, and its cursor judged %q", i, got)
				case next < len(all) && !r.holds(at) && !r.holds(all[next]) && got == "":
					t.Errorf("entry %d is gone and not told to a device at %d; state %+v", next, i, r.state())
				}
			}
			r.want("who has resynced", r.state().Head, "d1", "")
		})
	}
}

// holds reports whether the stream holds an entry.
func (r *rig) holds(id event.ID) bool {
	r.Helper()
	return len(r.redis.Do("XRANGE", stream0, id.String(), id.String()).([]any)) == 1
}

// TestDeletedBetweenOthers: XDEL leaves entries before it, and a device that
// stands at one of them would pass over the hole.
func TestDeletedBetweenOthers(t *testing.T) {
	for _, failover := range []Failover{Cautious, Evidence} {
		t.Run(string(failover), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(o *Options) { o.Failover = failover })
			var ids []event.ID
			for range 6 {
				ids = append(ids, r.app("a"))
			}
			for _, i := range []int{3, 1} { // the lower one moves no field of the stream
				r.redis.Do("XDEL", stream0, ids[i].String())
				r.state()
			}
			for i, want := range []event.Reason{
				event.WindowExpired, event.WindowExpired, event.WindowExpired, event.WindowExpired, "", "",
			} {
				r.want(fmt.Sprint("entry ", i), ids[i], "a", want)
			}
			if breaks := r.state().Breaks; len(breaks) != 1 {
				t.Errorf("two holes made %+v", breaks)
			}
			if in := r.inspect(ids[5]); in.Reason != "" {
				t.Errorf("a tail that is past the holes is told %q", in.Reason)
			}
			if in := r.inspect(ids[0]); in.Reason != event.WindowExpired {
				t.Errorf("a tail that was before the holes is told %q", in.Reason)
			}
			// A loss later on is a matter of its own.
			if _, err := r.Suspect(t.Context(), 0, ids[5]); err != nil {
				t.Fatal(err)
			}
			r.want("after a loss", ids[0], "a", event.WindowExpired)
			r.want("after a loss", ids[4], "a", event.LogRewound)
		})
	}
}

// TestDeletedUnderTheSweep: someone deletes and trims between a sweep's look
// and its removal. The notes count as complete only from there on.
func TestDeletedUnderTheSweep(t *testing.T) {
	for name, remove := range map[string]func(r *rig, ids []event.ID){
		"XDEL":   func(r *rig, ids []event.ID) { r.redis.Do("XDEL", stream0, ids[1].String()) },
		"MAXLEN": func(r *rig, _ []event.ID) { r.redis.Do("XTRIM", stream0, "MAXLEN", "=", "2") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(o *Options) { o.Window = time.Hour })
			before := r.state()
			ids := []event.ID{r.app("a"), r.app("b"), r.app("a"), r.app("c")}
			r.redis.Do("HSET", record0, "marks", "1:"+ids[2].String())
			done := false
			hand := recent(func(_ int, after, upTo event.ID) (map[string]event.ID, int, bool) {
				if !done {
					done = true
					remove(r, ids)
				}
				return map[string]event.ID{"a": ids[2], "b": ids[1]}, 3, true
			})
			report := r.sweep(hand)
			if st := r.state(); report.Foreign == 0 || st.Since != st.Head || st.Swept != ids[2] || st.Founded != before.Founded {
				t.Errorf("%+v, %+v", report, st)
			}
			for i := range 3 {
				r.want("swept, and deleted from", ids[i], "b", event.WindowExpired)
			}
			r.want("held", ids[3], "c", "")
			r.sweep(hand)
			if in := r.inspect(ids[3]); in.Reason != "" {
				t.Errorf("the tail is told %q", in.Reason)
			}
		})
	}
}

// TestIdleForHours: nothing comes and no gateway looks, for hours or for longer
// than notes are kept. Exactly who missed something is told.
func TestIdleForHours(t *testing.T) {
	ago := func(d time.Duration) string {
		return strconv.FormatInt(time.Now().Add(-d).UnixMilli(), 10)
	}
	r := newRig(t, func(o *Options) { o.Window = time.Hour })
	founded := r.state().Founded
	first, last := r.app("a"), r.app("b")
	r.sweep(nil)
	r.redis.Do("HSET", record0, "marks", ago(5*time.Hour)+":"+last.String())
	check := func(when string, want event.Reason) {
		t.Helper()
		r.want(when, founded, "nobody", want)
		r.want(when, founded, "a", event.WindowExpired)
		r.want(when, first, "b", event.WindowExpired)
		r.want(when, first, "a", want)
		r.want(when, last, "a", "")
		if in := r.inspect(last); in.Reason != "" {
			t.Errorf("%s: the tail is told %q", when, in.Reason)
		}
	}
	if report := r.sweep(nil); report.Removed != 2 || report.Foreign != 0 {
		t.Fatalf("%+v", report)
	}
	check("after hours", "")
	r.sweep(nil)
	r.redis.Do("HSET", record0, "days", ago(eventlog.NotesKept+time.Hour)+":"+last.String())
	if report := r.sweep(nil); report.Pruned != 2 {
		t.Fatalf("%+v", report)
	}
	check("after more than a week", event.WindowExpired)
	next := r.app("b")
	r.want("the next one is due to who stands at the head of old", last, "b", "")
	r.want("and was got", next, "b", "")
}

// TestNewReplicationID: a server that nobody has replicated for an hour gives
// itself a new replication ID. It lost nothing.
func TestNewReplicationID(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, testkit.RedisConfig("repl-backlog-ttl 1"))
	first, last := r.app("a"), r.app("a")
	replica := r.replica()
	r.state()
	before := r.redis.Info("replication", "master_replid")
	replica.Kill9()
	r.eventually(func() bool { return r.redis.Info("replication", "master_replid") != before })
	r.want("of before", first, "a", "")
	r.want("of before", last, "a", "")
	if st := r.state(); len(st.Breaks) != 0 {
		t.Errorf("%+v", st)
	}
}

// TestFullMemoryUnderFire: memory is full, publishers insist and two gateways
// sweep. Appends are refused or stand, sweeping frees, and the notes say
// exactly what went.
func TestFullMemoryUnderFire(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Window = 200 * time.Millisecond },
		testkit.RedisConfig("maxmemory 6mb", "maxmemory-policy noeviction"))
	founded := r.state().Founded
	for _, id := range r.fill() {
		r.want("held or noted", id, "nobody", "")
	}
	var refused, stood atomic.Int64
	var mu sync.Mutex
	last := make(map[string]event.ID)
	var publishers sync.WaitGroup
	for p := range 4 {
		publishers.Go(func() {
			payload := strings.Repeat("x", 32<<10)
			for i := 0; i < 100; {
				device := fmt.Sprint("p", p, "-", i%5)
				res := r.Append(context.Background(), []eventlog.Append{{Events: []event.Event{{Target: device, Type: "t", Payload: payload}}}})[0]
				switch {
				case res.Err == nil:
					i++
					stood.Add(1)
					mu.Lock()
					last[device] = res.IDs[0]
					mu.Unlock()
				case errors.Is(res.Err, eventlog.ErrFull) && res.IDs[0].IsZero():
					refused.Add(1)
					<-time.After(time.Millisecond)
				default:
					t.Errorf("Append: %+v", res)
					return
				}
			}
		})
	}
	r.eventually(func() bool { return refused.Load() > 0 })
	stop := r.sweepers(r.Log, open(t, r.opts))
	publishers.Wait()
	head := r.state().Head
	r.eventually(func() bool { return !r.state().Swept.Less(head) })
	if sum := stop(); sum.Foreign != 0 {
		t.Errorf("%+v", sum)
	}
	t.Logf("%d appends were refused, %d stood", refused.Load(), stood.Load())
	if st := r.state(); st.Since != founded {
		t.Errorf("the notes are complete only from %s", st.Since)
	}
	for device, id := range last {
		r.want("its last one", id, device, "")
		r.want("before its last one", founded, device, event.WindowExpired)
	}
	r.want("of another", founded, "nobody", "")
}
