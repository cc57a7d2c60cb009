package config

import (
	"fmt"
	"sort"
	"strings"
)

// A Source is a place that settings come from.
type Source string

// The sources, weakest first.
const (
	FromDefault     Source = "default"
	FromFile        Source = "file"
	FromEnvironment Source = "environment"
	FromFlag        Source = "flag"
)

// An Origin says where a value comes from.
type Origin struct {
	Source Source
	Where  string // the flag, the variable, or file:line; empty for a default
}

func (o Origin) String() string {
	if o.Where == "" {
		return string(o.Source)
	}
	return o.Where
}

// A Problem is one setting that can't be used.
type Problem struct {
	Key    string // as in the file
	Value  string // as given, secrets masked; may be empty
	Origin Origin
	Reason string // completes the sentence; says what is allowed
}

func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.Key)
	if p.Value != "" {
		fmt.Fprintf(&b, " %q", p.Value)
	}
	if p.Origin.Source != "" {
		fmt.Fprintf(&b, " (%s)", p.Origin)
	}
	return b.String() + " " + p.Reason
}

// Problems are all the settings that can't be used, as one error.
type Problems []Problem

func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// suggest names the known key nearest to a misspelt one, if one is near: a
// third of its letters may be wrong, three at most. What is further off would
// be another word.
func suggest(name string, known map[string]Key) string {
	names := make([]string, 0, len(known))
	for k := range known {
		names = append(names, k)
	}
	sort.Strings(names) // the same answer each time
	best, nearest := "", min(len(name)/3, 3)+1
	for _, k := range names {
		if d := distance(strings.ReplaceAll(name, "-", "_"), k); d < nearest {
			best, nearest = k, d
		}
	}
	if best == "" {
		return "; `downlink check --help` lists them"
	}
	return fmt.Sprintf("; did you mean %s?", best)
}

// distance is the Levenshtein distance of two short names.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
