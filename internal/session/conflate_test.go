package session

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"downlink/internal/event"
	"downlink/internal/limits"
	"downlink/internal/shard"
)

func (r *rig) keyed(key, payload string) event.ID {
	return r.dispatch(event.Event{Target: "a", Type: "t", Payload: payload, Key: key}, "")
}

// datas are the payloads of frames.
func datas(frames string) []string {
	var all []string
	for line := range strings.Lines(frames) {
		if text, ok := strings.CutPrefix(line, "data: "); ok {
			all = append(all, strings.TrimSpace(text))
		}
	}
	return all
}

// TestANewerEventOfAKeyTakesTheRoomOfTheOlder: a flood of few keys is bounded
// without going to the log, and only the newest of each is delivered.
func TestANewerEventOfAKeyTakesTheRoomOfTheOlder(t *testing.T) {
	r := newRig(t, Options{MaxPending: limits.Always(3), MaxBytes: limits.Always(1 << 20)})
	r.event("between")
	for i := range 1000 {
		r.keyed(fmt.Sprint("k", i%2), fmt.Sprint(i))
		if len(r.s.pending) > 3 || r.s.behind {
			t.Fatalf("%d pending, behind %v", len(r.s.pending), r.s.behind)
		}
	}
	if v := r.s.View(); v.Spared != 998 || v.Pending != 3 {
		t.Errorf("spared %d, pending %d", v.Spared, v.Pending)
	}
	if got := datas(r.next(1 << 20)); !slices.Equal(got, []string{"between", "998", "999"}) || r.s.Cursor() != r.last || r.s.bytes != 0 {
		t.Errorf("got %q; %d bytes are left", got, r.s.bytes)
	}
	if v := r.s.View(); v.Spared != 998 {
		t.Errorf("spared %d", v.Spared)
	}
}

// TestWhatIsRefusedReplacesNothing: with no room for the newer one, the older one
// stays, and both come.
func TestWhatIsRefusedReplacesNothing(t *testing.T) {
	r := newRig(t, Options{MaxPending: limits.Always(10), MaxBytes: limits.Always(1000)})
	r.event("before")
	r.keyed("k", "old")
	r.event("after")
	r.keyed("k", strings.Repeat("x", 1000))
	if len(r.s.pending) != 3 || !r.s.behind {
		t.Fatalf("%d pending, behind %v", len(r.s.pending), r.s.behind)
	}
	got := datas(r.next(1) + r.next(1) + r.next(1) + r.next(1))
	if len(got) != 4 || got[1] != "old" || r.s.Cursor() != r.last {
		t.Errorf("%.200q", got)
	}
}

// TestOneThingAtATime: what a driver has taken stays taken.
func TestOneThingAtATime(t *testing.T) {
	r := newRig(t, roomy)
	r.keyed("k", "1")
	if d, _ := r.s.One(); d.Payload != "1" {
		t.Errorf("%+v", d)
	}
	for i := range 5 {
		r.keyed("k", fmt.Sprint(i+2))
	}
	if d, ok := r.s.One(); !ok || d.Payload != "6" || d.ID != r.last {
		t.Errorf("%+v", d)
	}
	if d, ok := r.s.One(); ok {
		t.Errorf("%+v", d)
	}
}

var idOfFrame = regexp.MustCompile(`(?m)^id: 1000-(\d+)$`)

// TestConflation holds a session against the plain history: each frame is newer
// than the one before, what lies between has been made needless, and in the end
// nothing is missing.
func TestConflation(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		room := rapid.IntRange(1, 5).Draw(rt, "room")
		r := newRig(t, Options{MaxPending: limits.Always(room), MaxBytes: limits.Always(1500)})
		var keys []string // of the history
		seen := 0         // events that the device is past
		delivered := uint32(0)
		needed := func(i int) bool { return keys[i] == "" || !slices.Contains(keys[i+1:], keys[i]) }
		take := func(maxBytes int) {
			for _, id := range idOfFrame.FindAllStringSubmatch(r.next(maxBytes), -1) {
				var n int
				if _, err := fmt.Sscan(id[1], &n); err != nil || n <= seen {
					rt.Fatalf("after event %d came %d (%v)", seen, n, err)
				}
				for i := seen; i < n-1; i++ {
					if needed(i) {
						rt.Fatalf("event %d, key %q, was left out", i+1, keys[i])
					}
				}
				seen = n
				delivered++
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"event": func(t *rapid.T) {
				key := rapid.SampledFrom([]string{"", "", "k", "l", "m"}).Draw(t, "key")
				keys = append(keys, key)
				r.keyed(key, strings.Repeat("x", rapid.IntRange(0, 800).Draw(t, "size")))
			},
			"take": func(t *rapid.T) { take(rapid.IntRange(1, 3000).Draw(t, "bytes")) },
			"": func(*rapid.T) {
				bytes := 0
				for i, m := range r.s.pending {
					bytes += m.Size()
					if slices.ContainsFunc(r.s.pending[i+1:], func(newer *shard.Message) bool { return newer.Replaces(m) }) {
						rt.Fatal("two events of one key are pending")
					}
				}
				if bytes != r.s.bytes || len(r.s.pending) > room {
					rt.Fatalf("%d pending with %d bytes, counted are %d", len(r.s.pending), bytes, r.s.bytes)
				}
			},
		})
		for range len(keys) + 1 {
			take(1 << 20)
		}
		for i := seen; i < len(keys); i++ {
			if needed(i) {
				rt.Fatalf("event %d, key %q, never came", i+1, keys[i])
			}
		}
		if spared := r.s.View().Spared; int(delivered+spared) != len(keys) {
			rt.Fatalf("%d delivered and %d spared of %d", delivered, spared, len(keys))
		}
	})
}
