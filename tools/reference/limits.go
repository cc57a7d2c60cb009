package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"strconv"

	"downlink/internal/config"
	"downlink/internal/limits"
)

// limitsIntro is what there is to say about all limits.
//
//go:embed limits.txt
var limitsIntro string

// limitsAround is what Redis, the system and proxies cap.
//
//go:embed around.txt
var limitsAround string

// limitGroups are the chapters of the page, in order.
var limitGroups = [...]struct {
	change limits.Change
	title  string
	intro  string
}{
	{limits.Running, "Changed while the gateway runs", "By the configuration file or `PATCH /v1/limits`; each stands in [configuration.md](../reference/configuration.md) too."},
	{limits.Restart, "Changed by a restart", "By the configuration. `GET /v1/limits` shows as `after_restart` what the file asks for by now."},
	{limits.System, "Given by the system", "By whoever runs the process."},
	{limits.Fixed, "Fixed in this version", "Constants. They bound the memory or the work that one client, or one moment, can cost, or they are part of [the protocol](../protocol.md)."},
}

// limitsPage is docs/operate/limits.md.
func limitsPage(string) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("# Limits\n\n" + generated + limitsIntro)
	all := limits.New(config.Limits()).States()
	b.WriteString("\n| limit | default | unit | changed |\n| --- | --- | --- | --- |\n")
	for _, g := range limitGroups {
		for _, s := range all {
			if s.Change == g.change {
				fmt.Fprintf(&b, "| [%s](#%s) | %s | %s | %s |\n", s.Name, s.Name, limitDefault(s), s.Unit, limitChange(s))
			}
		}
	}
	for _, g := range limitGroups {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", g.title, g.intro)
		for _, s := range all {
			if s.Change == g.change {
				limitChapter(&b, s)
			}
		}
	}
	b.WriteString("\n" + limitsAround)
	return b.Bytes(), nil
}

func limitChapter(b *bytes.Buffer, s limits.State) {
	fmt.Fprintf(b, "\n### %s\n\n%s", s.Name, s.Help)
	if s.Price != "" {
		b.WriteString(" " + s.Price)
	}
	fmt.Fprintf(b, "\n\n- at it: %s\n- default: %s, in %s", s.Reached, limitDefault(s), s.Unit)
	if s.Change == limits.Running || s.Change == limits.Restart {
		fmt.Fprintf(b, "; allowed: %s", s.Allowed)
		fmt.Fprintf(b, "\n- change: %s", s.How)
	}
	if s.Change == limits.System {
		fmt.Fprintf(b, "\n- change: %s", s.How)
	}
	fmt.Fprintf(b, "\n- gauge: `downlink_limit{name=\"%s\"}`\n", s.Name)
}

// limitDefault is a default in words and in a form that is easily read.
func limitDefault(s limits.State) string {
	switch {
	case s.Change == limits.System:
		return "found at start"
	case s.Default == 0 && s.Zero != "":
		return "0 (" + s.Zero + ")"
	case s.Unit == "bytes":
		return config.Bytes(s.Default).String()
	default:
		return strconv.FormatInt(s.Default, 10)
	}
}

func limitChange(s limits.State) string {
	return map[limits.Change]string{
		limits.Running: "while running", limits.Restart: "by a restart", limits.System: "by the system", limits.Fixed: "never",
	}[s.Change]
}
