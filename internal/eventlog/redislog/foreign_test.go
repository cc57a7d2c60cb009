package redislog

import (
	"fmt"
	"testing"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// What others do to the log while no gateway looks never makes an old cursor
// look complete.

func TestForeignRemovals(t *testing.T) {
	for name, remove := range map[string]func(r *rig, ids []event.ID){
		"XDEL":  func(r *rig, ids []event.ID) { r.redis.Do("XDEL", stream0, ids[0].String(), ids[1].String()) },
		"XTRIM": func(r *rig, ids []event.ID) { r.redis.Do("XTRIM", stream0, "MAXLEN", "=", "1") },
		"XADD MINID": func(r *rig, ids []event.ID) {
			r.redis.Do("XADD", stream0, "MINID", "=", ids[2].String(), "*", "x", "y")
		},
		"XADD MAXLEN": func(r *rig, ids []event.ID) {
			r.redis.Do("XADD", stream0, "MAXLEN", "=", "1", "*", "x", "y")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			founded := r.state().Founded
			ids := []event.ID{r.app("a"), r.app("b"), r.app("c")}
			r.want("before", founded, "a", "")
			remove(r, ids)
			r.want("removed behind our back", founded, "a", event.WindowExpired)
			r.want("a removed cursor", ids[0], "b", event.WindowExpired)
			head := r.state().Head
			r.want("the head", head, "a", "")
			if got := r.sweep(nil).Foreign; got < 2 {
				t.Errorf("the report counts %d foreign removals, want 2 or 3", got)
			}
			if got := r.sweep(nil).Foreign; got != 0 {
				t.Errorf("%d foreign removals were counted twice", got)
			}
		})
	}
}

// A foreign removal of what was read long ago alarms no watchdog: the tail is
// at the head.
func TestForeignRemovalAlarmsNoTail(t *testing.T) {
	r := newRig(t, nil)
	r.app("a")
	last := r.app("b")
	r.redis.Do("XTRIM", stream0, "MAXLEN", "=", "0")
	if in := r.inspect(last); in.Reason != "" {
		t.Errorf("the tail's position is judged %q; state %+v", in.Reason, in.State)
	}
}

func TestReplacedStreams(t *testing.T) {
	refill := func(n int) func(*rig) {
		return func(r *rig) {
			for range n {
				r.redis.Do("XADD", stream0, "*", "dev", "x", "type", "t", "payload", "p")
			}
		}
	}
	for name, after := range map[string]func(*rig){
		"DEL":                   func(*rig) {},
		"DEL, one entry":        refill(1),
		"DEL, as many entries":  refill(3),
		"DEL, more entries":     refill(10),
		"DEL, lower IDs":        func(r *rig) { r.redis.Do("XADD", stream0, "5-1", "dev", "x", "type", "t", "payload", "p") },
		"DEL, a consumer group": func(r *rig) { r.redis.Do("XGROUP", "CREATE", stream0, "g", "$", "MKSTREAM") },
		"DEL, an ID from long ago": func(r *rig) {
			r.redis.Do("XADD", stream0, "1-1", "dev", "x", "type", "t", "payload", "p")
			refill(20)(r)
		},
		"DEL, an ID of the future": func(r *rig) { r.redis.Do("XADD", stream0, "99999999999999-0", "x", "y") },
		"DEL, the same counts":     func(r *rig) { r.removeOne(); refill(3)(r) },
		"DEL, the same head": func(r *rig) {
			head := r.redis.Do("HGET", record0, "head").(string)
			r.removeOne()
			r.redis.Do("XADD", stream0, head, "dev", "x", "type", "t", "payload", "p")
		},
		"DEL and emptied once more": func(r *rig) { refill(3)(r); r.redis.Do("XTRIM", stream0, "MAXLEN", "=", "0") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			before := r.state()
			ids := []event.ID{r.app("a"), r.app("a"), r.app("a")}
			r.state() // a look that knows the three
			r.redis.Do("DEL", stream0)
			after(r)
			if name == "DEL, the same head" {
				ids = ids[:2] // the third stands there again, by its ID
			}
			for _, c := range append(ids, before.Founded) {
				if got := r.judge(c, "a"); got == "" {
					t.Errorf("cursor %s of the deleted stream is served; state %+v", c, r.state())
				}
			}
			now := r.state()
			if now.Founded == before.Founded {
				t.Errorf("the record goes on with Founded %s: a watchdog can't see it", now.Founded)
			}
			r.want("a device that has resynced", now.Head, "a", "")
			next := r.app("a")
			r.want("and gets the next one", now.Head, "a", "")
			r.want("and has it", next, "a", "")
		})
	}
}

// removeOne adds an entry and deletes it, so that one removal is counted.
func (r *rig) removeOne() {
	r.redis.Do("XADD", stream0, "7-7", "x", "y")
	r.redis.Do("XDEL", stream0, "7-7")
}

// IDs that the lost stream has given out are not given out again.
func TestIDsAreNotUsedTwice(t *testing.T) {
	r := newRig(t, nil)
	ahead := event.ID{Ms: r.state().Head.Ms + 600_000} // as if the server's clock had been ahead
	xadd(t, r.redis, stream0, ahead.String(), "dev", "a", "type", "t", "payload", "p")
	r.state()
	r.redis.Do("DEL", stream0)
	if head := r.state().Head; !ahead.Less(head) {
		t.Errorf("the new stream begins at %s, the old one had reached %s", head, ahead)
	}
	r.want("the lost head", ahead, "a", event.LogRewound)
}

// A stream that was restored to an earlier state is on another branch.
func TestRestoredStream(t *testing.T) {
	r := newRig(t, nil)
	kept := r.app("a")
	r.state()
	dump := r.redis.Do("DUMP", stream0).(string)
	lost := []event.ID{r.app("a"), r.app("b")}
	r.state()
	r.redis.Do("RESTORE", stream0, "0", dump, "REPLACE")
	if in := r.inspect(lost[1]); in.Reason != event.LogRewound {
		t.Errorf("the tail's lost position is judged %q; state %+v", in.Reason, in.State)
	}
	for range 5 {
		r.app("c") // on the new branch, soon above the lost IDs
	}
	r.want("lost", lost[0], "a", event.LogRewound)
	r.want("lost", lost[1], "b", event.LogRewound)
	r.want("from before the loss: what came after it is gone", kept, "a", event.LogRewound)
	if breaks := r.state().Breaks; len(breaks) != 1 || breaks[0].Reason != event.LogRewound {
		t.Errorf("breaks %+v", breaks)
	}
}

func TestFlushWhileNobodyLooks(t *testing.T) {
	for name, flush := range map[string]func(*rig){
		"FLUSHALL":           func(r *rig) { r.redis.Do("FLUSHALL") },
		"empty restart":      func(r *rig) { r.redis.Kill9(); r.redis.Start() },
		"record deleted":     func(r *rig) { r.redis.Do("DEL", record0) },
		"record damaged":     func(r *rig) { r.redis.Do("HDEL", record0, "since") },
		"notes deleted":      func(r *rig) { r.redis.Do("DEL", notes0) },
		"all keys but notes": func(r *rig) { r.redis.Do("DEL", stream0, record0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, shortWindow)
			first, last := r.app("a"), r.app("a")
			other := r.app("b")
			r.sweepTo(other)
			r.want("before", last, "a", "")
			r.want("before", first, "a", event.WindowExpired)
			flush(r)
			for range 10 { // a fresh log that has grown past the old cursors
				r.eventually(func() bool {
					_, err := r.redis.Try("XADD", stream0, "*", "dev", "c", "type", "t", "payload", "p")
					return err == nil
				})
			}
			r.eventually(func() bool { // the connections notice a restart in their time
				_, err := r.Log.Inspect(t.Context(), 0, make([]event.ID, r.Shards()))
				return err == nil
			})
			for device, c := range map[string]event.ID{"a": last, "b": other, "c": first} {
				if got := r.judge(c, device); got == "" {
					t.Errorf("cursor %s of %s is served without any proof; state %+v", c, device, r.state())
				}
			}
			r.want("the new head", r.state().Head, "a", "")
		})
	}
}

// A stream that is older than its record proves nothing below the first look.
func TestStreamBeforeTheFirstLook(t *testing.T) {
	r := newRig(t, shortWindow)
	const late = "pos-ev:1" // as if shard 1 had been used before any gateway came
	r.redis.Do("DEL", late, late+":sweep", late+":gone")
	var ids []event.ID
	for i := range 5 {
		ids = append(ids, xadd(t, r.redis, late, "*", "dev", "a", "type", "t", "payload", fmt.Sprint(i)))
	}
	r.redis.Do("XTRIM", late, "MINID", "=", ids[2].String()) // what it lost, nobody knows
	s := &r.byShard[1]
	judge := func(c event.ID) event.Reason {
		reasons, _, err := r.judgeOne(s, c, "a")
		if err != nil {
			t.Fatal(err)
		}
		return reasons
	}
	if got := judge(ids[1]); got != event.WindowExpired {
		t.Errorf("a cursor that was trimmed before the first look is judged %q", got)
	}
	if got := judge(ids[3]); got != "" {
		t.Errorf("a cursor whose entry is held is judged %q", got)
	}
	r.eventually(func() bool {
		report, err := r.Sweep(t.Context(), 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		return report.Removed > 0
	})
	if got := judge(ids[3]); got != event.WindowExpired {
		t.Errorf("after the first sweep a cursor from before the first look is judged %q", got)
	}
}

// TestRemovedAfterALostConnection: what was acknowledged over a connection that was
// lost is asked for; somebody has removed it meanwhile. That is no loss, as far as
// anybody knows: who may have missed it is told so, once, and by the other word.
func TestRemovedAfterALostConnection(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(r *rig, first event.ID){
		"trimmed": func(r *rig, _ event.ID) { r.redis.Do("XTRIM", stream0, "MAXLEN", "1") },
		"deleted": func(r *rig, first event.ID) { r.redis.Do("XDEL", stream0, first.String()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(o *Options) { o.Failover = Evidence })
			proxy := r.through()
			r.state()
			first := r.app("a")
			proxy.Cut()
			var last event.ID
			r.eventually(func() bool { // the connection's end is noticed in its time
				res := r.try(t.Context(), "b", nil)
				last = res.IDs[0]
				return res.Err == nil
			})
			remove(r, first)
			if reason := r.backAt(last); reason != event.WindowExpired {
				t.Errorf("a tail is told %q", reason)
			}
			st := r.state()
			r.want("who may have missed it", last, "a", event.WindowExpired)
			r.want("who was told", st.Head, "a", "")
			for _, b := range st.Breaks {
				if b.Reason != event.WindowExpired {
					t.Errorf("breaks %+v", st.Breaks)
				}
			}
			if in := r.inspect(st.Head); in.Reason != "" || in.State.Head != st.Head {
				t.Errorf("and once more: %+v", in)
			}
		})
	}
}

// TestAReplacedStreamSaysSo: somebody deletes a stream, and its readers go on with
// what is stored next. Behind the break stands an entry that has them ask: a device
// that leaves its gateway before the next round of its watchdog would take an ID
// from after the break to another one, which has nothing to tell it.
func TestAReplacedStreamSaysSo(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.app("a")
	r.state()
	r.redis.Do("DEL", stream0)
	r.state() // whoever looks first
	r.app("b")
	st := r.state()
	if len(st.Breaks) != 1 {
		t.Fatalf("breaks %+v", st.Breaks)
	}
	page, err := r.Range(t.Context(), 0, st.Breaks[0].Boundary, event.MaxID, 1<<20)
	if err != nil || len(page.Entries) != 2 || !eventlog.AsksToLook(&page.Entries[0].Event) {
		t.Errorf("behind the break stand %+v, %v", page.Entries, err)
	}
	r.state()
	if again, err := r.Range(t.Context(), 0, st.Breaks[0].Boundary, event.MaxID, 1<<20); err != nil || len(again.Entries) != 2 {
		t.Errorf("and later %+v, %v", again.Entries, err)
	}
}
