package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"strconv"
	"strings"

	"downlink/internal/gateway"
	"downlink/internal/governor"
)

// governorIntro is what there is to say about all settings of a governor.
//
//go:embed governor.txt
var governorIntro string

// governorPage is docs/reference/governor.md.
func governorPage(string) ([]byte, error) {
	signals := gateway.Signals()
	own, of := settingsOf(signals)
	var b bytes.Buffer
	b.WriteString("# The governor's signals and settings\n\n" + generated + governorIntro)
	b.WriteString("\n| signal | in | over | wall | lowers |\n| --- | --- | --- | --- | --- |\n")
	for _, s := range signals {
		name := s.Probe.Name()
		fmt.Fprintf(&b, "| [%s](#%s) | %s | %s | %s | %s |\n", name, name, s.Unit, number(s.Threshold), number(s.Wall), strings.Join(s.Levers, ", "))
	}
	b.WriteString("\n| setting | default | allowed |\n| --- | --- | --- |\n")
	for _, d := range own {
		fmt.Fprintf(&b, "| [%s](#%s) | `%s` | %s |\n", d.Name, d.Name, d.Default, d.Allowed)
	}
	b.WriteString("\n## Signals\n")
	for _, s := range signals {
		signalChapter(&b, s, of[s.Probe.Name()])
	}
	b.WriteString("\n## Settings of the law\n")
	for _, d := range own {
		settingChapter(&b, "###", d)
	}
	return b.Bytes(), nil
}

// settingsOf sorts the settings: the governor's own, and those of each signal.
func settingsOf(signals []governor.Signal) (own []governor.Description, of map[string][]governor.Description) {
	of = make(map[string][]governor.Description)
	for _, d := range governor.Describe(signals) {
		if parts := strings.Split(d.Name, "."); len(parts) == 3 {
			of[parts[1]] = append(of[parts[1]], d)
		} else {
			own = append(own, d)
		}
	}
	return own, of
}

func signalChapter(b *bytes.Buffer, s governor.Signal, settings []governor.Description) {
	name := s.Probe.Name()
	fmt.Fprintf(b, "\n### %s\n\n%s\n\n- in: %s\n- asked every %v, for at most %v; an answer counts for %v\n", name, s.Help, s.Unit, s.Period, s.Timeout, s.Fresh)
	fmt.Fprintf(b, "- gauges: `downlink_governor_signal{signal=\"%s\"}` and, with the same label, `downlink_governor_signal_known`, `downlink_governor_threshold`\n", name)
	for _, d := range settings {
		settingChapter(b, "####", d)
	}
}

func settingChapter(b *bytes.Buffer, level string, d governor.Description) {
	fmt.Fprintf(b, "\n%s %s\n\n%s\n\n- default: `%s`; allowed: %s\n", level, d.Name, d.Help, d.Default, d.Allowed)
}

// number is a threshold; there is none at 0.
func number(v float64) string {
	if v == 0 {
		return ""
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}
