package main

import (
	"fmt"
	"math"
	"strings"
)

// A goal is something that Downlink has to reach in a table.
type goal struct {
	text  string
	judge func(t table, r *result) verdict
}

// A verdict says whether, and by which figures.
type verdict struct {
	outcome string
	detail  string
}

// The outcomes.
const (
	reached    = "reached"
	missed     = "missed"
	undecided  = "within the spread" // the median reaches it or not, but some rounds say otherwise
	unmeasured = "not measured"
)

// bound compares with a limit; better says on which side of it one has to be.
func bound(n, limit float64, better int) bool {
	if better == higher {
		return n >= limit
	}
	return n <= limit
}

// decide judges a spread: some rounds on the wrong side leave it open.
func decide(s spread, limit float64, better int) string {
	low, high := bound(s.low, limit, better), bound(s.high, limit, better)
	switch {
	case low && high:
		return reached
	case !low && !high:
		return missed
	}
	return undecided
}

// within wants an entry's figure on the good side of a limit.
func within(label, entry string, limit float64) goal {
	return goal{
		text:  fmt.Sprintf("%s: %s at most %s", entry, label, figure(limit)),
		judge: func(t table, r *result) verdict { return judgeLimit(t, r, label, entry, limit, lower) },
	}
}

// atLeast is within for figures of which more is better.
func atLeast(label, entry string, limit float64) goal {
	return goal{
		text:  fmt.Sprintf("%s: %s at least %s", entry, label, figure(limit)),
		judge: func(t table, r *result) verdict { return judgeLimit(t, r, label, entry, limit, higher) },
	}
}

func judgeLimit(t table, r *result, label, entry string, limit float64, better int) verdict {
	s := t.column(label).over(r, entry)
	if math.IsNaN(s.median) {
		return verdict{outcome: unmeasured}
	}
	return verdict{decide(s, limit, better), s.String()}
}

// againstBest compares ours with the best peer of the group, round by round.
func againstBest(label, group string, limit float64) goal {
	g := goal{text: fmt.Sprintf("%s: at most %s × the best peer", labelled(label, group), figure(limit))}
	g.judge = func(t table, r *result) verdict { return judgeBest(t, r, label, group, limit) }
	return g
}

// atLeastBest is againstBest for figures of which more is better.
func atLeastBest(label, group string, limit float64) goal {
	g := againstBest(label, group, limit)
	g.text = fmt.Sprintf("%s: at least %s × the best peer", labelled(label, group), figure(limit))
	return g
}

// everybody is the group of a table in which all entries do the same.
const everybody = "all"

func labelled(label, group string) string {
	if group == everybody {
		return label
	}
	return label + ", " + group
}

func judgeBest(t table, r *result, label, group string, limit float64) verdict {
	c := t.column(label)
	us, best := rivals(t, r, c, group)
	if us == "" || best == "" {
		return verdict{outcome: unmeasured}
	}
	ratios := paired(c, r, us, best)
	s := spreadOf(ratios)
	return verdict{decide(s, limit, c.better), fmt.Sprintf("%s × %s: %s against %s",
		s, best, figure(c.over(r, us).median), figure(c.over(r, best).median))}
}

// rivals are our entry of a group and the peer whose median is best.
func rivals(t table, r *result, c column, group string) (us, best string) {
	top := math.NaN()
	for _, m := range t.entries {
		n := c.over(r, m.name).median
		switch {
		case m.group != group || math.IsNaN(n):
		case m.ours():
			us = m.name
		case math.IsNaN(top) || c.better == higher && n > top || c.better == lower && n < top:
			top, best = n, m.name
		}
	}
	return us, best
}

// paired are the ratios of two entries' figures in the same round.
func paired(c column, r *result, of, to string) []float64 {
	a, b := r.of(of), r.of(to)
	var ratios []float64
	for i := range min(len(a), len(b)) {
		if ratio := c.get(a[i]) / c.get(b[i]); !math.IsNaN(ratio) && !math.IsInf(ratio, 0) {
			ratios = append(ratios, ratio)
		}
	}
	return ratios
}

// pairs wants an entry's figure to be at most limit times another's, as far as
// pairs of runs can tell: it is missed if their 95 % interval lies beyond it.
func pairs(label, of, to string, limit float64) goal {
	g := goal{text: fmt.Sprintf("%s: %s at most %s × %s", label, of, figure(limit), to)}
	g.judge = func(t table, r *result) verdict {
		c := t.column(label)
		ratios := paired(c, r, of, to)
		if len(ratios) == 0 {
			return verdict{outcome: unmeasured}
		}
		s := interval(ratios)
		v := verdict{outcome: undecided}
		switch {
		case s.low > limit:
			v.outcome = missed
		case s.median <= limit:
			v.outcome = reached
		}
		v.detail = fmt.Sprintf("%s × on the mean of %d pairs, 95 %% interval %s to %s",
			figure(s.median), len(ratios), figure(s.low), figure(s.high))
		return v
	}
	return g
}

// apart wants an entry's median to be at most limit above another's.
func apart(label, of, to string, limit float64) goal {
	g := goal{text: fmt.Sprintf("%s: %s at most %s more than %s", label, of, figure(limit), to)}
	g.judge = func(t table, r *result) verdict {
		c := t.column(label)
		a, b := c.over(r, of).median, c.over(r, to).median
		switch {
		case math.IsNaN(a) || math.IsNaN(b):
			return verdict{outcome: unmeasured}
		case a-b <= limit:
			return verdict{reached, fmt.Sprintf("%s against %s", figure(a), figure(b))}
		}
		return verdict{missed, fmt.Sprintf("%s against %s", figure(a), figure(b))}
	}
	return g
}

// clean wants the ledger of every run of ours to show nothing lost, repeated,
// in disorder or foreign.
func clean() goal {
	g := goal{text: "the ledger is clean in every round: nothing lost, repeated, in disorder or foreign"}
	g.judge = func(t table, r *result) verdict {
		var faults []string
		seen := 0
		for _, m := range t.entries {
			for round, v := range r.of(m.name) {
				if !m.ours() {
					continue
				}
				seen++
				if v["receive.received"] == 0 {
					faults = append(faults, fmt.Sprintf("%s, round %d: nothing was received", m.name, round+1))
				}
				for _, kind := range []string{"lost", "repeated", "disordered", "foreign"} {
					if n := v["receive."+kind]; n != 0 {
						faults = append(faults, fmt.Sprintf("%s, round %d: %s %s", m.name, round+1, figure(n), kind))
					}
				}
			}
		}
		switch {
		case seen == 0:
			return verdict{outcome: unmeasured}
		case len(faults) > 0:
			return verdict{missed, strings.Join(faults, "; ")}
		}
		return verdict{reached, fmt.Sprintf("%d runs", seen)}
	}
	return g
}
