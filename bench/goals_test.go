package main

import (
	"strings"
	"testing"
)

// measured is a small table of three contenders and the result of its rounds:
// our figures, and twice and four times as much for the peers.
func measured(better int, mine ...float64) (table, *result) {
	t := table{
		name: "example", title: "An example", about: "What it does.",
		columns: []column{{"figure", better, value("figure")}},
		entries: []member{
			{entry{name: ours}, "all"}, {entry{name: "Twice"}, "all"}, {entry{name: "Fourfold"}, "all"}, {entry{name: "Other"}, ""},
		},
	}
	r := &result{Table: t.name}
	for i, n := range mine {
		for name, v := range map[string]float64{ours: n, "Twice": 2 * mine[0], "Fourfold": 4 * mine[0], "Other": mine[0] / 100} {
			r.Runs = append(r.Runs, record{Entry: name, Round: i + 1, Values: values{"figure": v, "receive.received": 9}})
		}
	}
	return t, r
}

func TestAgainstTheBestPeer(t *testing.T) {
	for _, test := range []struct {
		name   string
		better int
		limit  float64
		mine   []float64
		want   string
		detail string
	}{
		{"less is better, reached", lower, 0.6, []float64{10, 11, 12}, reached, "0.55 (0.50–0.60) × Twice"},
		{"less is better, missed", lower, 0.4, []float64{10, 11, 12}, missed, "× Twice"},
		{"less is better, rounds disagree", lower, 0.55, []float64{10, 11, 12}, undecided, "× Twice"},
		{"more is better, missed", higher, 1, []float64{10, 11, 12}, missed, "0.28 (0.25–0.30) × Fourfold"},
		{"more is better, reached", higher, 0.2, []float64{10, 11, 12}, reached, "× Fourfold"},
	} {
		t.Run(test.name, func(t *testing.T) {
			table, r := measured(test.better, test.mine...)
			got := judgeBest(table, r, "figure", "all", test.limit)
			if got.outcome != test.want || !strings.Contains(got.detail, test.detail) {
				t.Errorf("verdict %q (%s), want %q (%s)", got.outcome, got.detail, test.want, test.detail)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	table, r := measured(neither, 10, 11, 12)
	for _, test := range []struct {
		goal goal
		want string
	}{
		{within("figure", ours, 12), reached}, {within("figure", ours, 11), undecided}, {within("figure", ours, 9), missed},
		{atLeast("figure", ours, 10), reached}, {atLeast("figure", ours, 11), undecided}, {atLeast("figure", ours, 13), missed},
	} {
		if v := test.goal.judge(table, r); v.outcome != test.want {
			t.Errorf("%s: %q (%s), want %q", test.goal.text, v.outcome, v.detail, test.want)
		}
	}
}

func TestWithoutRunsNothingIsClaimed(t *testing.T) {
	for _, table := range tables(scale{}, site{}) {
		for _, g := range table.goals {
			if v := g.judge(table, &result{}); v.outcome != unmeasured {
				t.Errorf("%s, %s: %q without a run", table.name, g.text, v.outcome)
			}
		}
	}
}

func TestPairs(t *testing.T) {
	table, r := measured(lower, 10, 11, 12, 11, 10)
	for limit, want := range map[float64]string{0.7: reached, 0.53: undecided, 0.4: missed} {
		if limit == 0.53 {
			table, r = measured(lower, 10, 11, 12, 11, 10.5)
		}
		if v := pairs("figure", ours, "Twice", limit).judge(table, r); v.outcome != want {
			t.Errorf("limit %v: %q (%s), want %q", limit, v.outcome, v.detail, want)
		}
	}
}

func TestTheLedgerIsJudgedInEveryRound(t *testing.T) {
	table, r := measured(lower, 1, 2, 3)
	if v := clean().judge(table, r); v.outcome != reached {
		t.Errorf("clean runs: %q (%s)", v.outcome, v.detail)
	}
	for i := range r.Runs {
		if r.Runs[i].Entry == "Twice" {
			r.Runs[i].Values["receive.lost"] = 5 // a peer's losses are not ours
		}
	}
	if v := clean().judge(table, r); v.outcome != reached {
		t.Errorf("a peer lost: %q (%s)", v.outcome, v.detail)
	}
	for i := range r.Runs {
		if r.Runs[i].Entry == ours && r.Runs[i].Round == 2 {
			r.Runs[i].Values["receive.repeated"] = 1
		}
	}
	if v := clean().judge(table, r); v.outcome != missed || !strings.Contains(v.detail, "round 2") {
		t.Errorf("a repeat in round 2: %q (%s)", v.outcome, v.detail)
	}
}
