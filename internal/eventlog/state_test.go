package eventlog

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"downlink/internal/event"
)

func at(ms uint64) event.ID { return event.ID{Ms: ms} }

// world is a shard that was founded at 100, has swept up to 200, holds 210 to
// 300 in steps of ten, and lost part of itself at 250, up to 280.
func world() State {
	return State{
		Head: at(300), Swept: at(200), Since: at(100), Founded: at(100),
		Breaks: []Break{{Boundary: at(150), Reach: at(180), Reason: event.LogRewound}},
	}
}

func TestJudge(t *testing.T) {
	plain := world()
	plain.Breaks = nil
	pruned := plain
	pruned.Since = at(160)
	uncertain := world()
	uncertain.Breaks[0].Reason = event.LogUncertain
	gap := world()
	gap.Breaks[0].Gap = true
	empty := State{Head: at(100), Swept: at(100), Since: at(100), Founded: at(100)}
	unswept := State{Head: at(300), Since: at(100), Founded: at(100)}

	for _, c := range []struct {
		name   string
		state  State
		cursor uint64
		held   bool
		noted  uint64
		want   event.Reason
	}{
		{"the head", plain, 300, true, 0, ""},
		{"held", plain, 210, true, 0, ""},
		{"held, with a note from below", plain, 210, true, 200, ""},
		{"ahead by one", plain, 301, false, 0, event.LogRewound},
		{"ahead, whatever else is said", plain, 301, true, 400, event.LogRewound},
		{"never issued, between held ones", plain, 215, false, 0, event.LogRewound},
		{"the last swept entry", plain, 200, false, 0, ""},
		{"the last swept entry, and it was the device's", plain, 200, false, 200, ""},
		{"swept, nothing for the device after it", plain, 190, false, 185, ""},
		{"swept, its own note", plain, 190, false, 190, ""},
		{"swept, something for the device after it", plain, 190, false, 191, event.WindowExpired},
		{"the founding", plain, 100, false, 0, ""},
		{"the founding, something went since", plain, 100, false, 150, event.WindowExpired},
		{"before the notes", plain, 99, false, 0, event.WindowExpired},
		{"zero", plain, 0, false, 0, event.WindowExpired},
		{"before pruned notes", pruned, 159, false, 0, event.WindowExpired},
		{"where pruning ended", pruned, 160, false, 0, ""},
		{"after pruned notes", pruned, 161, false, 0, ""},
		{"held, below Since", State{Head: at(300), Swept: at(100), Since: at(250)}, 210, true, 0, ""},

		{"empty: the founding", empty, 100, false, 0, ""},
		{"empty: before", empty, 99, false, 0, event.WindowExpired},
		{"empty: ahead", empty, 101, false, 0, event.LogRewound},
		{"nothing swept yet: the founding", unswept, 100, false, 0, ""},
		{"nothing swept yet: never issued", unswept, 101, false, 0, event.LogRewound},

		{"break: from before it", world(), 149, false, 0, event.LogRewound},
		{"break: from before it, held", world(), 149, true, 0, event.LogRewound},
		{"break: its boundary", world(), 150, false, 0, ""},
		{"break: on either branch", world(), 151, false, 0, event.LogRewound},
		{"break: on either branch, held", world(), 151, true, 0, ""},
		{"break: its reach", world(), 180, false, 0, event.LogRewound},
		{"break: past its reach", world(), 181, false, 0, ""},
		{"break: held later", world(), 250, true, 0, ""},
		{"break: its reason", uncertain, 149, true, 0, event.LogUncertain},

		{"gap: from before it", gap, 149, false, 0, ""},
		{"gap: its boundary", gap, 150, false, 0, ""},
		{"gap: in it", gap, 151, false, 0, event.LogRewound},
		{"gap: in it, held", gap, 151, true, 0, ""},
		{"gap: its reach", gap, 180, false, 0, event.LogRewound},
		{"gap: past it", gap, 181, false, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.state.Judge(at(c.cursor), c.held, at(c.noted)); got != c.want {
				t.Errorf("Judge(%d, held %v, noted %d) = %q, want %q", c.cursor, c.held, c.noted, got, c.want)
			}
		})
	}
}

func TestCovers(t *testing.T) {
	s := world()
	for cursor, want := range map[uint64]bool{149: true, 150: false, 151: true, 180: true, 181: false} {
		if got := s.Covers(at(cursor)); got != want {
			t.Errorf("Covers(%d) = %v, want %v", cursor, got, want)
		}
	}
	if (State{}).Covers(at(1)) {
		t.Error("a state without breaks covers something")
	}
}

// A history is what truly happened to a shard, entry by entry: the model that
// Judge is held to.
type history struct {
	entries []written
	head    uint64
	state   State
	notes   map[string]event.ID
}

type written struct {
	id      uint64
	target  string
	gone    bool // swept
	rewound bool // lost with its branch
}

var devices = []string{"a", "b", event.Broadcast}

// missed reports whether a device whose cursor was taken from the i-th entry
// would miss something if it were served from the log as it is: its own branch
// is gone, or something that was stored later is.
func (h *history) missed(device string, i int) bool {
	if h.entries[i].rewound {
		return true
	}
	for _, w := range h.entries[i+1:] {
		if (w.gone || w.rewound) && (w.target == device || w.target == event.Broadcast) {
			return true
		}
	}
	return false
}

func (h *history) append(t *rapid.T) {
	for range rapid.IntRange(1, 4).Draw(t, "entries") {
		h.head += uint64(rapid.IntRange(1, 5).Draw(t, "step"))
		h.entries = append(h.entries, written{id: h.head, target: rapid.SampledFrom(devices).Draw(t, "target")})
	}
	h.state.Head = at(h.head)
}

func (h *history) sweep(t *rapid.T) {
	n := rapid.IntRange(0, len(h.entries)).Draw(t, "swept")
	for i := range h.entries[:n] {
		w := &h.entries[i]
		if w.gone || w.rewound {
			continue
		}
		w.gone = true
		h.notes[w.target] = event.Max(h.notes[w.target], at(w.id))
		h.state.Swept = event.Max(h.state.Swept, at(w.id))
	}
}

// rewind loses the newest entries, and somebody who had read the last notices.
func (h *history) rewind(t *rapid.T) {
	var live []int
	for i, w := range h.entries {
		if !w.gone && !w.rewound {
			live = append(live, i)
		}
	}
	if len(live) == 0 {
		return
	}
	for _, i := range live[rapid.IntRange(0, len(live)-1).Draw(t, "keep"):] {
		h.entries[i].rewound = true
	}
	h.head++ // an ID that no device can have
	h.state.Head, h.state.Since = at(h.head), at(h.head)
	h.state.AddBreak(Break{Boundary: at(h.head), Reach: at(h.head), Reason: event.LogRewound})
}

// restart leaves a gap.
func (h *history) restart(t *rapid.T) {
	reach := h.head + uint64(rapid.IntRange(1, 5).Draw(t, "gap"))
	h.state.AddBreak(Break{Boundary: at(h.head), Reach: at(reach), Reason: event.LogRewound, Gap: true})
	h.head = reach
}

// TestJudgeProperty: whatever happened, a cursor that was truly given out and
// is served has missed nothing; and without a break nobody is sent to resync
// who has missed nothing.
func TestJudgeProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &history{head: 10, notes: map[string]event.ID{}}
		h.state = State{Head: at(10), Swept: at(10), Since: at(10), Founded: at(10)}
		t.Repeat(map[string]func(*rapid.T){
			"append":  h.append,
			"sweep":   h.sweep,
			"rewind":  h.rewind,
			"restart": h.restart,
			"":        func(t *rapid.T) { h.check(t) },
		})
	})
}

func (h *history) check(t *rapid.T) {
	if len(h.state.Breaks) > MaxBreaks {
		t.Fatalf("%d breaks are remembered", len(h.state.Breaks))
	}
	held := map[uint64]bool{}
	for _, w := range h.entries {
		if !w.gone && !w.rewound {
			held[w.id] = true
		}
	}
	whole := true // no break but gaps
	for _, b := range h.state.Breaks {
		whole = whole && b.Gap
	}
	for i, w := range h.entries {
		for _, device := range devices[:2] {
			noted := event.Max(h.notes[device], h.notes[event.Broadcast])
			got := h.state.Judge(at(w.id), held[w.id], noted)
			missed := h.missed(device, i)
			if got == "" && missed {
				t.Fatalf("cursor %d of %s is served and misses something\n%+v\n%+v", w.id, device, h.state, h.entries)
			}
			proven := !at(w.id).Less(h.state.Since) && len(h.state.Breaks) < MaxBreaks
			if got != "" && !missed && whole && proven {
				t.Fatalf("cursor %d of %s is judged %q for nothing\n%+v\n%+v", w.id, device, got, h.state, h.entries)
			}
		}
	}
}

// TestAddBreakMerges: merging may doubt more cursors, and never fewer, but for
// boundaries, which were heads of the branch that stands.
func TestAddBreakMerges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s State
		var all []Break
		boundary := uint64(0)
		onlyGaps := rapid.Bool().Draw(t, "only gaps") // a later break doubts all that a gap before it does
		for range MaxBreaks + 8 {
			boundary += uint64(rapid.IntRange(0, 6).Draw(t, "boundary"))
			b := Break{
				Boundary: at(boundary), Reach: at(boundary + uint64(rapid.IntRange(0, 20).Draw(t, "reach"))),
				Reason: event.LogUncertain, Gap: onlyGaps || rapid.Bool().Draw(t, "gap"),
			}
			if rapid.Bool().Draw(t, "rewound") {
				b.Reason = event.LogRewound
			}
			if s.AddBreak(b); len(s.Breaks) > MaxBreaks {
				t.Fatalf("%d breaks are remembered", len(s.Breaks))
			}
			all = append(all, b)
		}
		boundaries := map[event.ID]bool{}
		for _, b := range all {
			boundaries[b.Boundary] = true
		}
		for c := range boundary + 30 {
			for _, b := range all {
				if b.covers(at(c), false) && !s.Covers(at(c)) && !boundaries[at(c)] {
					t.Fatalf("cursor %d was in doubt by %+v and isn't any more\n%+v", c, b, s.Breaks)
				}
			}
		}
	})
}

// TestMerge: and they don't doubt more than they must.
func TestMerge(t *testing.T) {
	br := func(boundary, reach uint64, reason event.Reason, gap bool) Break {
		return Break{Boundary: at(boundary), Reach: at(reach), Reason: reason, Gap: gap}
	}
	const rewound, uncertain = event.LogRewound, event.LogUncertain
	for _, c := range []struct{ a, b, want Break }{
		{br(10, 20, uncertain, false), br(15, 18, uncertain, false), br(15, 20, uncertain, false)},
		{br(10, 20, rewound, false), br(30, 40, uncertain, false), br(30, 40, rewound, false)},
		{br(10, 20, rewound, true), br(30, 40, rewound, true), br(10, 40, rewound, true)},
		{br(10, 20, uncertain, false), br(30, 40, rewound, true), br(10, 40, rewound, false)},
		{br(10, 20, rewound, true), br(30, 40, uncertain, false), br(30, 40, rewound, false)},
	} {
		if got := merge(c.a, c.b); got != c.want {
			t.Errorf("merge(%+v, %+v) = %+v, want %+v", c.a, c.b, got, c.want)
		}
	}
}

func TestAddBreakDropsWhatIsPast(t *testing.T) {
	old := Break{Boundary: at(10), Reach: at(20), Reason: event.LogRewound}
	far := Break{Boundary: at(15), Reach: at(90), Reason: event.LogRewound}
	next := Break{Boundary: at(60), Reach: at(61), Reason: event.LogUncertain}
	s := State{Head: at(60), Since: at(30), Swept: at(40), Breaks: []Break{old, far}}
	s.AddBreak(next)
	if diff := cmp.Diff([]Break{far, next}, s.Breaks); diff != "" {
		t.Error(diff)
	}
}

// TestAddBreakLeavesCopies: states are copied by value and read elsewhere.
func TestAddBreakLeavesCopies(t *testing.T) {
	s := State{Breaks: make([]Break, 0, 8)}
	s.AddBreak(Break{Boundary: at(1), Reach: at(2)})
	a, b := s, s
	a.AddBreak(Break{Boundary: at(3), Reach: at(4)})
	b.AddBreak(Break{Boundary: at(5), Reach: at(6)})
	if len(s.Breaks) != 1 || a.Breaks[1].Boundary != at(3) || b.Breaks[1].Boundary != at(5) {
		t.Errorf("copies share breaks: %+v, %+v, %+v", s.Breaks, a.Breaks, b.Breaks)
	}
}

func TestErrors(t *testing.T) {
	if !errors.Is(fmt.Errorf("x: %w", ErrFull), ErrUnavailable) || errors.Is(ErrUnavailable, ErrFull) {
		t.Error("ErrFull must be a kind of ErrUnavailable, and not the other way round")
	}
	text := (&MismatchError{Log: "file:x", Setting: "shards", Stored: "64", Configured: "32"}).Error()
	for _, word := range []string{"file:x", "shards", "64", "32"} {
		if !strings.Contains(text, word) {
			t.Errorf("%q doesn't name %q", text, word)
		}
	}
}
