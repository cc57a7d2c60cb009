package redislog

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/testkit"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// What the scripts know of IDs and breaks is what Go knows of them.

func drawID(t *rapid.T, label string) event.ID {
	part := rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 12), rapid.Uint64Range(1<<53-2, 1<<53+2), rapid.Just(^uint64(0)))
	return event.ID{Ms: part.Draw(t, label+" ms"), Seq: part.Draw(t, label+" seq")}
}

func TestLuaComparesAsGo(t *testing.T) {
	r := testkit.StartRedis(t)
	source := "#!lua\n" + lookSource + `
local out = {}
for i = 1, #ARGV, 2 do out[#out + 1] = cmp(ARGV[i], ARGV[i + 1]) end
return out`
	rapid.Check(t, func(t *rapid.T) {
		args := []string{"EVAL", source, "0", "cautious"}
		var want []any
		for range 50 {
			a, b := drawID(t, "a"), drawID(t, "b")
			if rapid.Bool().Draw(t, "near") {
				b = event.ID{Ms: a.Ms, Seq: b.Seq}
			}
			args = append(args, a.String(), b.String())
			want = append(want, int64(a.Compare(b)))
		}
		if diff := cmp.Diff(want, r.Do(args...)); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestLuaKeepsBreaksAsGo(t *testing.T) {
	r := testkit.StartRedis(t)
	source := "#!lua\n" + lookSource + `
local st = {f = {breaks = ''}, dirty = {}}
for i = 1, #ARGV, 5 do
  st.f.since, st.f.swept = ARGV[i], ARGV[i + 1]
  add_break(st, ARGV[i + 2], ARGV[i + 3], ARGV[i + 4])
end
return st.f.breaks`
	at := func(ms int) event.ID { return event.ID{Ms: uint64(ms)} }
	rapid.Check(t, func(t *rapid.T) {
		args := []string{"EVAL", source, "0", "cautious"}
		var want eventlog.State
		floor, head := 0, 1
		for range rapid.IntRange(1, 40).Draw(t, "breaks") {
			head += rapid.IntRange(0, 9).Draw(t, "moved")
			floor = max(floor, head-rapid.IntRange(0, 80).Draw(t, "floor"))
			b := eventlog.Break{Boundary: at(head), Reach: at(head + rapid.IntRange(0, 30).Draw(t, "reach")), Reason: event.LogRewound}
			why := "w"
			if rapid.Bool().Draw(t, "uncertain") {
				b.Reason, why = event.LogUncertain, "u"
			}
			want.Since, want.Swept = at(floor), at(floor)
			want.AddBreak(b)
			args = append(args, want.Since.String(), want.Swept.String(), b.Boundary.String(), b.Reach.String(), why)
		}
		got, err := readBreaks(r.Do(args...).(string), Cautious)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(slices.Compact(want.Breaks), slices.Compact(got)); diff != "" {
			t.Fatal(diff)
		}
	})
}

func FuzzReadBreaks(f *testing.F) {
	f.Add("1-0:2-0:w:abc,3-0:4-0:u:")
	f.Add("x")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := readBreaks(text, Cautious)
		if err != nil {
			return
		}
		some, err := readBreaks(text, Evidence)
		if err != nil || len(some) > len(all) {
			t.Errorf("%q: %v with evidence, %v with caution, %v", text, some, all, err)
		}
	})
}

// TestPositionsAreConcrete: Redis knows "$", ">" and "+" where IDs stand, and
// each of them loses entries. Nothing but IDs is ever sent.
func TestPositionsAreConcrete(t *testing.T) {
	r := newRig(t, shortWindow)
	var mu sync.Mutex
	var lines []string
	stop := r.redis.Monitor(func(line string) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, line)
	})
	id := r.app("a")
	for _, after := range []event.ID{{}, id} {
		if _, err := r.Read(t.Context(), 0, []event.ID{after, {}, after, {}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Range(t.Context(), 0, event.ID{}, event.MaxID, 1<<20); err != nil {
		t.Fatal(err)
	}
	r.sweepTo(id)
	r.want("some", id, "a", "")
	r.redis.Do("PING", "the end")
	r.eventually(func() bool {
		mu.Lock()
		defer mu.Unlock()
		return strings.Contains(strings.Join(lines, ""), "the end")
	})
	stop()
	reads := 0
	for _, line := range lines {
		if strings.Contains(line, `"XREAD"`) || strings.Contains(line, `"XRANGE"`) {
			reads++
			for _, bad := range []string{`"$"`, `">"`, `"+"`, `"-"`} {
				if strings.Contains(line, bad) {
					t.Errorf("a position is %s in %s", bad, line)
				}
			}
		}
	}
	if reads < 3 {
		t.Errorf("the monitor saw %d reads", reads)
	}
}
