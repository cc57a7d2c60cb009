package main

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// A table is one comparison: who is measured, under which load, what is read
// from it, and what has to be reached.
type table struct {
	name    string // of the command and the result's file
	title   string
	about   string // what is done, in Markdown, for who reads the figures
	rounds  int    // if it needs more than the usual
	entries []member
	columns []column
	goals   []goal
	plots   []string // labels of the columns that are drawn
}

// A member is an entry in its table. Members of one group do the same work and
// are compared; one without a group stands alone.
type member struct {
	entry
	group string
}

func (m member) ours() bool { return strings.HasPrefix(m.name, ours) }

// Which direction of a figure is the better one.
const (
	neither = 0
	lower   = -1
	higher  = 1
)

// A column is one figure of a run.
type column struct {
	label  string
	better int
	get    func(values) float64 // NaN: not measured here
}

// scale shrinks a table in order to try the harness.
type scale struct{ quick bool }

func (s scale) devices(n int) string {
	if s.quick {
		n = max(n/50, min(n/10, 20))
	}
	return strconv.Itoa(n)
}

func (s scale) rate(n int) string {
	if s.quick {
		n = max(1, n/10)
	}
	return strconv.Itoa(n)
}

func (s scale) lasting(d time.Duration) string {
	if s.quick {
		d = max(time.Second, d/10)
	}
	return d.String()
}

// over is the spread of a column over an entry's rounds.
func (c column) over(r *result, entry string) spread {
	var ns []float64
	for _, v := range r.of(entry) {
		if n := c.get(v); !math.IsNaN(n) {
			ns = append(ns, n)
		}
	}
	return spreadOf(ns)
}

func (t table) column(label string) column {
	for _, c := range t.columns {
		if c.label == label {
			return c
		}
	}
	panic("table " + t.name + " has no column " + label) // a test goes through all tables
}

// summary is a run in one line, for who watches.
func (t table) summary(v values) string {
	var b strings.Builder
	for _, c := range t.columns {
		if n := c.get(v); !math.IsNaN(n) {
			fmt.Fprintf(&b, "%s %s   ", c.label, figure(n))
		}
	}
	return b.String()
}

// writeTable shows a result on a terminal.
func writeTable(w io.Writer, t table, r *result) error {
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, row := range rows(t, r) {
		if _, err := fmt.Fprintln(tw, strings.Join(row, "\t")); err != nil {
			return err
		}
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, g := range t.goals {
		v := g.judge(t, r)
		if _, err := fmt.Fprintf(w, "%s: %s (%s)\n", v.outcome, g.text, v.detail); err != nil {
			return err
		}
	}
	return nil
}

// rows are the cells of a table, its head first; a cell is the median and, in
// brackets, the least and the greatest. Columns that nobody has are left out.
func rows(t table, r *result) [][]string {
	cells := [][]string{{""}}
	var measured []member
	for _, m := range t.entries {
		if len(r.of(m.name)) > 0 {
			measured = append(measured, m)
			cells = append(cells, []string{m.name})
		}
	}
	for _, c := range t.columns {
		column, some := []string{c.label}, false
		for _, m := range measured {
			s := c.over(r, m.name)
			text := "–"
			if !math.IsNaN(s.median) {
				text, some = s.String(), true
			}
			column = append(column, text)
		}
		if some {
			for i := range cells {
				cells[i] = append(cells[i], column[i])
			}
		}
	}
	return cells
}

func (s spread) String() string {
	middle, low, high := figure(s.median), figure(s.low), figure(s.high)
	if low == high {
		return middle
	}
	return middle + " (" + low + "–" + high + ")"
}

// figure writes a number with three digits or so, and commas in thousands.
func figure(n float64) string {
	switch a := math.Abs(n); {
	case math.IsNaN(n):
		return "–"
	case a == 0:
		return "0"
	case a < 0.01:
		return strconv.FormatFloat(n, 'g', 2, 64)
	case a < 10:
		return strings.TrimSuffix(strconv.FormatFloat(n, 'f', 2, 64), ".00")
	case a < 100:
		return strings.TrimSuffix(strconv.FormatFloat(n, 'f', 1, 64), ".0")
	}
	digits := strconv.FormatFloat(math.Round(math.Abs(n)), 'f', 0, 64)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	if n < 0 {
		return "−" + digits
	}
	return digits
}
