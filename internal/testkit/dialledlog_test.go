package testkit

import (
	"strings"
	"testing"
	"time"
)

func at(seconds float64) time.Time {
	return time.Unix(1000, 0).Add(time.Duration(seconds * float64(time.Second)))
}

// TestCallFaults: a checker that finds nothing in a broken log proves nothing.
func TestCallFaults(t *testing.T) {
	sent := func(seconds ...float64) (s []Sent) {
		for _, x := range seconds {
			s = append(s, Sent{at(x), "1-0"})
		}
		return s
	}
	for name, c := range map[string]struct {
		calls []Call
		want  string // part of the one fault; empty: none
	}{
		"an owner after another": {[]Call{
			{Member: "a", Generation: 5, Came: at(0), Left: at(10), Sent: sent(1, 10.05)},
			{Member: "b", Generation: 6, Came: at(10), Sent: sent(10.1, 11)},
		}, ""},
		"an owner that goes on": {[]Call{
			{Member: "a", Generation: 5, Came: at(0), Sent: sent(1, 11)},
			{Member: "b", Generation: 6, Came: at(10), Sent: sent(10.1)},
		}, "a (generation 5) sent 1-0, 1s after b (generation 6)"},
		"an owner that wakes after two": {[]Call{
			{Member: "a", Generation: 5, Came: at(0), Sent: sent(30)},
			{Member: "b", Generation: 6, Came: at(10), Left: at(12)},
		}, "a (generation 5) sent 1-0, 20s after b"},
		"a refused one that posts": {[]Call{
			{Member: "b", Generation: 6, Came: at(10), Post: true, Left: at(10), Sent: sent(10)},
			{Member: "a", Generation: 5, Came: at(11), Post: true, Refused: true, Left: at(11), Sent: sent(11)},
		}, "a (generation 5) sent 1-0, 1s after b"},
		"posts one after the other": {[]Call{
			{Member: "a", Generation: 5, Came: at(1), Post: true, Left: at(1), Sent: sent(1)},
			{Member: "a", Generation: 5, Came: at(2), Post: true, Left: at(2), Sent: sent(2)},
			{Member: "b", Generation: 6, Came: at(3), Post: true, Left: at(3), Sent: sent(3)},
		}, ""},
		"an owner that dials again, the old one goes on": {[]Call{
			{Member: "a", Generation: 5, Came: at(0), Sent: sent(1, 11)},
			{Member: "a", Generation: 5, Came: at(10), Sent: sent(10.1)},
		}, "a (generation 5) sent 1-0, 1s after a (generation 5)"},
		"a refused dial is no sender": {[]Call{
			{Member: "b", Generation: 6, Came: at(0), Sent: sent(2, 9)},
			{Member: "a", Generation: 5, Came: at(3), Refused: true},
		}, ""},
		"refused without reason": {[]Call{
			{Member: "a", Generation: 6, Came: at(0)},
			{Member: "b", Generation: 6, Came: at(3), Refused: true},
		}, "generation 6 of b was refused after 6"},
		"an owner of the past": {[]Call{
			{Member: "b", Generation: 6, Came: at(0)},
			{Member: "a", Generation: 5, Came: at(3)},
		}, "generation 5 of a was accepted after 6"},
		"an owner that took its lease again": {[]Call{
			{Member: "a", Generation: 5, Came: at(0), Sent: sent(1, 11), Renewed: []Renewed{{at(10), 8}}},
			{Member: "b", Generation: 7, Came: at(12), Refused: true},
		}, ""},
		"another was accepted although it took it again": {[]Call{
			{Member: "a", Generation: 5, Came: at(0), Sent: sent(1), Renewed: []Renewed{{at(10), 8}}},
			{Member: "b", Generation: 7, Came: at(12)},
		}, "generation 7 of b was accepted after 8"},
		"a renewal that goes back": {[]Call{
			{Member: "a", Generation: 5, Came: at(0), Renewed: []Renewed{{at(10), 4}}},
		}, "a went on under generation 4 after 5"},
	} {
		t.Run(name, func(t *testing.T) {
			faults := CallFaults(c.calls, 100*time.Millisecond)
			switch {
			case c.want == "" && len(faults) > 0:
				t.Errorf("found %q in a good log", faults)
			case c.want != "" && (len(faults) != 1 || !strings.Contains(faults[0], c.want)):
				t.Errorf("found %q, want one that says %q", faults, c.want)
			}
		})
	}
}

// TestPausesExcuseLittle: what was about to be written when the process was
// stopped, and nothing else.
func TestPausesExcuseLittle(t *testing.T) {
	pause := Pause{Member: "a", From: at(5), To: at(12)}
	for name, c := range map[string]struct {
		member, id string
		sent       float64
		excused    bool
	}{
		"about to be written":       {"a", "1004900-0", 12.05, true},
		"published while it slept":  {"a", "1005100-0", 12.05, false},
		"written a while after":     {"a", "1004900-0", 13, false},
		"by another":                {"b", "1004900-0", 12.05, false},
		"before it was even frozen": {"a", "1004000-0", 4.5, false},
	} {
		calls := []Call{
			{Member: c.member, Generation: 5, Came: at(0), Sent: []Sent{{at(c.sent), c.id}}},
			{Member: "c", Generation: 6, Came: at(4)},
		}
		if faults := CallFaults(calls, 100*time.Millisecond, pause); (len(faults) == 0) != c.excused {
			t.Errorf("%s: %q", name, faults)
		}
	}
}

func TestLongestWithout(t *testing.T) {
	for name, c := range map[string]struct {
		calls []Call
		want  float64
	}{
		"never there":           {nil, 20},
		"all the time":          {[]Call{{Came: at(-1)}}, 0},
		"comes late":            {[]Call{{Came: at(3)}}, 3},
		"leaves":                {[]Call{{Came: at(-1), Left: at(15)}}, 5},
		"a gap":                 {[]Call{{Came: at(-1), Left: at(4)}, {Came: at(11)}}, 7},
		"a refused one between": {[]Call{{Came: at(-1), Left: at(4)}, {Came: at(5), Refused: true}, {Came: at(11)}}, 7},
		"a POST between":        {[]Call{{Came: at(-1), Left: at(4)}, {Came: at(5), Post: true}, {Came: at(11)}}, 7},
		"one over the other":    {[]Call{{Came: at(-1), Left: at(12)}, {Came: at(4), Left: at(8)}, {Came: at(13)}}, 1},
		"two gaps":              {[]Call{{Came: at(1), Left: at(5)}, {Came: at(7), Left: at(18)}}, 2},
		"over before it begins": {[]Call{{Came: at(-9), Left: at(-5)}, {Came: at(6)}}, 6},
		"comes after the end":   {[]Call{{Came: at(-1), Left: at(5)}, {Came: at(50)}}, 15},
	} {
		if got := LongestWithout(c.calls, at(0), at(20)); got != time.Duration(c.want*float64(time.Second)) {
			t.Errorf("%s: %v, want %vs", name, got, c.want)
		}
	}
}

func TestRedialsAndMoves(t *testing.T) {
	calls := []Call{{Came: at(0)}, {Came: at(5)}, {Came: at(6), Refused: true}, {Came: at(7), Post: true}, {Came: at(10)}, {Came: at(11)}}
	if n := Redials(calls, at(0), at(10)); n != 2 {
		t.Errorf("%d redials, want 2", n)
	}
	if n := Moved([]string{"a", "b", "", "c"}, []string{"a", "c", "c", ""}); n != 3 {
		t.Errorf("%d moved, want 3", n)
	}
}
