package session

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/limits"
	"downlink/internal/shard"
)

// TestWhatADeliveryCosts: an event for one device costs its frame; one that all
// share costs nothing more for each of them.
func TestWhatADeliveryCosts(t *testing.T) {
	const sessions = 50
	set := benchShards()
	var all []*Session
	for i := range sessions {
		all = append(all, attached(t, set, fmt.Sprint("store-", i)))
	}
	id := all[0].Cursor()
	for _, c := range []struct {
		target string
		frames int
		most   float64
	}{
		{"store-7", 1, 1},
		{event.Broadcast, sessions, 2}, // its frame, and what they have it from
	} {
		entries := []eventlog.Entry{{Event: event.Event{Target: c.target, Type: "t", Payload: strings.Repeat("x", 300)}}}
		var frames [][]byte
		round := func() {
			id = id.Next()
			entries[0].ID = id
			set.Dispatch(0, entries)
			n := 0
			for _, s := range all {
				frames = s.Next(frames[:0], 1<<16)
				n += len(frames)
			}
			if n != c.frames {
				t.Fatalf("an event for %s came to %d sessions", c.target, n)
			}
		}
		for range 4000 {
			round() // until the window is full
		}
		// The race detector's build needs two for the frame.
		if n := testing.AllocsPerRun(200, round); n > c.most+1 {
			t.Errorf("an event for %s: %v allocations, allowed are %v", c.target, n, c.most)
		}
	}
}

func TestWhatAnIdleSessionCosts(t *testing.T) {
	if n := idleBytes(t); n > 400 {
		t.Errorf("%.0f bytes a session, allowed are 400", n)
	}
}

// TestPendingIsAQueue holds what a session keeps against a plain list.
func TestPendingIsAQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sink := new(wakes)
		s := New("a", sink, &Options{MaxPending: limits.Always(40), MaxBytes: limits.Always(1 << 20)})
		s.member = benchMember(t)
		var want []event.ID
		id, room := event.ID{Ms: 2000}, true
		t.Repeat(map[string]func(*rapid.T){
			"offer": func(t *rapid.T) {
				for range rapid.IntRange(1, 20).Draw(t, "n") {
					id = id.Next()
					room = len(want) < 40
					if taken, replaced := s.Offer(&shard.Message{ID: id, Type: "t"}); taken != room || replaced {
						t.Fatalf("with %d pending an offer is taken or not, want %v", len(want), room)
					}
					if room {
						want = append(want, id)
					}
				}
			},
			"take": func(t *rapid.T) {
				n := rapid.IntRange(1, 20).Draw(t, "n")
				frames := s.Next(nil, n*len("id: 2000-1\nevent: t\ndata: \n\n"))
				for _, f := range frames {
					if prefix := fmt.Sprintf("id: %v\n", want[0]); !strings.HasPrefix(string(f), prefix) {
						t.Fatalf("got %q, want %q", f, prefix)
					}
					want = want[1:]
				}
			},
			"resync": func(*rapid.T) {
				s.Resync(event.LogRewound, id, 0)
				if frames := s.Next(nil, 1); len(frames) != 1 {
					t.Fatalf("%d frames instead of a resync", len(frames))
				}
				want = nil
			},
			"": func(t *rapid.T) {
				ids := []event.ID{}
				for _, m := range s.pending {
					ids = append(ids, m.ID)
				}
				if !slices.Equal(ids, want) {
					t.Fatalf("pending %v, want %v", ids, want)
				}
				if held := s.slot[0]; len(want) == 0 && (s.pending != nil || s.bytes != 0 || held != nil) {
					t.Fatalf("an idle session holds %v, %d bytes, %v", s.pending, s.bytes, held)
				}
			},
		})
	})
}

// benchMember is a place in a shard that has nothing to say.
func benchMember(t *rapid.T) *shard.Member {
	m, err := benchShards().Of("a").Attach(nobody{}, "a", nil, shard.Start{Cursor: event.ID{Ms: 1000}})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

type nobody struct{}

func (nobody) Offer(*shard.Message) (taken, replaced bool)  { return true, false }
func (nobody) Resync(event.Reason, event.ID, time.Duration) {}
