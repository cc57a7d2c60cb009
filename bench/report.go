package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The page and the marks between which it is written here; everything outside
// of them is written by hand.
const (
	pagePath   = "docs/benchmarks.md"
	plotDir    = "docs/benchmarks"
	resultsDir = "bench/results"
	beginMark  = "<!-- Written by `go run ./bench report` from bench/results; don't edit. -->"
	endMark    = "<!-- End of what is written by `go run ./bench report`. -->"
)

// report writes the results below root into the page and its plots.
func report(root string) error {
	page, plots, err := render(root)
	if err != nil {
		return err
	}
	dir := filepath.Join(root, plotDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(dir, "*.svg"))
	if err != nil {
		return err
	}
	for _, name := range old {
		if _, still := plots[filepath.Base(name)]; !still {
			if err := os.Remove(name); err != nil {
				return err
			}
		}
	}
	for name, svg := range plots {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(svg), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(root, pagePath), []byte(page), 0o644)
}

// render makes the page and its plots, by file name.
func render(root string) (page string, plots map[string]string, err error) {
	content, err := os.ReadFile(filepath.Join(root, pagePath))
	if err != nil {
		return "", nil, err
	}
	head, rest, found := strings.Cut(string(content), beginMark)
	_, foot, closed := strings.Cut(rest, endMark)
	if !found || !closed {
		return "", nil, fmt.Errorf("%s has lost its marks: %s and %s", pagePath, beginMark, endMark)
	}
	measured, err := results(root)
	if err != nil {
		return "", nil, err
	}
	var b strings.Builder
	b.WriteString(head + beginMark + "\n\n")
	plots = map[string]string{}
	all := tables(scale{}, site{})
	writeSlower(&b, all, measured)
	writeGoals(&b, all, measured)
	writeMachines(&b, all, measured)
	for _, t := range all {
		if r := measured[t.name]; r != nil {
			writeSection(&b, t, r, plots)
		}
	}
	b.WriteString(endMark + foot)
	return b.String(), plots, nil
}

// results reads what was measured, by table.
func results(root string) (map[string]*result, error) {
	found := map[string]*result{}
	for _, t := range tables(scale{}, site{}) {
		r, err := readResult(filepath.Join(root, resultsDir, t.name+".json"))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, err
		}
		found[t.name] = r
	}
	return found, nil
}

// writeSlower says first where a peer is better: every compared figure of
// every table whose median is worse than the best peer's.
func writeSlower(b *strings.Builder, all []table, measured map[string]*result) {
	b.WriteString("## Where a peer is better\n\n")
	some, compared := false, false
	for _, t := range all {
		r := measured[t.name]
		if r == nil {
			continue
		}
		for _, group := range groups(t) {
			for _, c := range t.columns {
				us, best := rivals(t, r, c, group)
				if c.better == neither || us == "" || best == "" {
					continue
				}
				compared = true
				mine, theirs := c.over(r, us).median, c.over(r, best).median
				if bound(mine, theirs, c.better) {
					continue
				}
				some = true
				fmt.Fprintf(b, "- [%s](#%s), %s: %s has %s, %s %s.\n", t.title, anchor(t.title), c.label, us, figure(mine), best, figure(theirs))
			}
		}
	}
	switch {
	case !compared:
		b.WriteString("Nothing has been measured yet.\n")
	case !some:
		b.WriteString("In no compared figure of the tables below.\n")
	}
	b.WriteString("\n")
}

func groups(t table) []string {
	var found []string
	for _, m := range t.entries {
		if m.group != "" && !slices.Contains(found, m.group) {
			found = append(found, m.group)
		}
	}
	return found
}

// anchor is the fragment by which renderers of Markdown name a heading.
func anchor(title string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return -1
	}, title)
}

func writeGoals(b *strings.Builder, all []table, measured map[string]*result) {
	b.WriteString("## What has to be reached\n\n| table | to reach | in this run | |\n| --- | --- | --- | --- |\n")
	for _, t := range all {
		for _, g := range t.goals {
			v := verdict{outcome: unmeasured}
			if r := measured[t.name]; r != nil {
				v = g.judge(t, r)
			}
			fmt.Fprintf(b, "| %s | %s | %s | %s |\n", t.name, g.text, v.detail, v.outcome)
		}
	}
	b.WriteString("\n\"Within the spread\" means that the median is on one side and some round on the other.\n\n")
}

// writeMachines says on what the tables were measured; they may differ.
func writeMachines(b *strings.Builder, all []table, measured map[string]*result) {
	var order []string
	same := map[string][]string{}
	for _, t := range all {
		if r := measured[t.name]; r != nil {
			text := setting(r)
			if same[text] == nil {
				order = append(order, text)
			}
			same[text] = append(same[text], t.name)
		}
	}
	if len(order) == 0 {
		return
	}
	b.WriteString("## Machine and versions\n\n")
	for _, text := range order {
		fmt.Fprintf(b, "- %s: %s\n", strings.Join(same[text], ", "), text)
	}
	b.WriteString("\n")
}

func setting(r *result) string {
	pairs := func(m map[string]string) string {
		var all []string
		for _, name := range slices.Sorted(maps.Keys(m)) {
			all = append(all, name+" "+m[name])
		}
		return strings.Join(all, ", ")
	}
	return r.When + "; " + pairs(r.Machine) + "; " + pairs(r.Versions)
}

func writeSection(b *strings.Builder, t table, r *result, plots map[string]string) {
	fmt.Fprintf(b, "## %s\n\n%s\n\n    go run ./bench %s\n\n", t.title, t.about, t.name)
	// Entries are columns: figures have long names, contenders short ones.
	cells := rows(t, r)
	for i := range cells[0] {
		b.WriteString("|")
		for _, row := range cells {
			b.WriteString(" " + row[i] + " |")
		}
		b.WriteString("\n")
		if i == 0 {
			b.WriteString("|" + strings.Repeat(" --- |", len(cells)) + "\n")
		}
	}
	fmt.Fprintf(b, "\nMedian of %d rounds; in brackets the least and the greatest.\n\n", roundsOf(r))
	for _, m := range t.entries {
		failed := 0.0
		for _, v := range r.of(m.name) {
			failed += v["failed_attempts"]
		}
		if failed > 0 {
			fmt.Fprintf(b, "%s: %s of its runs failed and were repeated.\n\n", m.name, figure(failed))
		}
	}
	if note := elsewhere(t.name); note != "" {
		b.WriteString(note + "\n\n")
	}
	for _, label := range t.plots {
		if svg := plot(t, t.column(label), r); svg != "" {
			name := t.name + "-" + anchor(label) + ".svg"
			plots[name] = svg
			fmt.Fprintf(b, "![%s: %s](benchmarks/%s)\n\n", t.title, label, name)
		}
	}
}

func roundsOf(r *result) int {
	most := 0
	for _, run := range r.Runs {
		most = max(most, run.Round)
	}
	return most
}

// elsewhere quotes what could not be measured in the same run.
func elsewhere(name string) string {
	switch name {
	case "memory":
		return "Mercure was measured elsewhere on the same kind of machine, not in this run: 49 KiB of user memory a connection."
	case "slow":
		return "Mercure was measured elsewhere on the same kind of machine, not in this run: it closes all stalled readers, and its memory stays flat."
	}
	return ""
}

// plot draws a column as bars, one an entry, with a mark for each round.
func plot(t table, c column, r *result) string {
	var bars []bar
	for _, m := range t.entries {
		s := c.over(r, m.name)
		if math.IsNaN(s.median) {
			continue
		}
		x := bar{name: m.name, value: s.median, ours: m.ours()}
		for _, v := range r.of(m.name) {
			x.rounds = append(x.rounds, c.get(v))
		}
		bars = append(bars, x)
	}
	if len(bars) == 0 {
		return ""
	}
	return drawBars(c.label, c.better, bars)
}
