package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/alecthomas/kong"

	"downlink/internal/config"
	"downlink/internal/load"
	"downlink/internal/load/results"
)

// arguments are the flags of a command line as a report shows them: of headers
// the names only, and of URLs what is no secret.
func arguments(line *kong.Context) map[string]any {
	all := map[string]any{}
	for _, flag := range line.Selected().Flags {
		switch value := line.FlagValue(flag).(type) {
		case string:
			all[flag.Name] = maskTemplate(flag.Name, value)
		case []string:
			shown := make([]string, len(value))
			for i, one := range value {
				shown[i] = maskTemplate(flag.Name, one)
			}
			all[flag.Name] = shown
		case fmt.Stringer:
			all[flag.Name] = value.String()
		default:
			all[flag.Name] = value
		}
	}
	return all
}

func maskTemplate(flag, value string) string {
	switch {
	case strings.HasSuffix(flag, "header"):
		name, content, _ := strings.Cut(value, ":")
		if strings.Contains(content, "{") {
			return value // a template: what is secret is filled in later
		}
		return name + ": ***"
	case !strings.Contains(value, "{"):
		return config.Mask(value)
	case strings.Contains(value, "://"):
		return maskURL(value)
	}
	return value
}

// maskURL leaves of a URL template's query what has a placeholder.
func maskURL(template string) string {
	address, query, found := strings.Cut(template, "?")
	if !found {
		return config.Mask(address)
	}
	fields := strings.Split(query, "&")
	for i, field := range fields {
		switch name, _, named := strings.Cut(field, "="); {
		case strings.Contains(field, "{"):
		case named:
			fields[i] = name + "=***"
		default:
			fields[i] = "***"
		}
	}
	return config.Mask(address) + "?" + strings.Join(fields, "&")
}

// write writes what was measured to where the flags say; a summary goes to the
// terminal unless the JSON does.
func (c *loadCmd) write(io console, r *results.Report) error {
	if c.JSON == "-" {
		if err := r.WriteJSON(io.out); err != nil {
			return fmt.Errorf("writing the results: %w", err)
		}
	} else if err := summarize(io.out, r); err != nil {
		return err
	}
	if c.JSON != "" && c.JSON != "-" {
		if err := writeFile(c.JSON, r.WriteJSON); err != nil {
			return err
		}
	}
	if c.HTML != "" {
		return writeFile(c.HTML, r.WriteHTML)
	}
	return nil
}

// writable tries the files that the results go to, so that an hour of load
// isn't lost to a directory that doesn't exist. What they hold stays.
func (c *loadCmd) writable() error {
	var errs []error
	for _, name := range []string{c.JSON, c.HTML} {
		if name == "" || name == c.JSON && name == "-" {
			continue
		}
		if err := tryFile(name); err != nil {
			errs = append(errs, fmt.Errorf("the results can't be written there: %w", err))
		}
	}
	return errors.Join(errs...)
}

// tryFile opens a file for writing, and leaves everything as it was.
func tryFile(name string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err == nil {
		return errors.Join(f.Close(), os.Remove(name))
	}
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if f, err = os.OpenFile(name, os.O_WRONLY, 0); err != nil {
		return err
	}
	return f.Close()
}

func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return fmt.Errorf("writing the results to %s: %w", name, err)
	}
	return nil
}

// summarize prints what a person wants to know first.
func summarize(w io.Writer, r *results.Report) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) //nolint:errcheck // Flush tells
	}
	if r.Ended {
		row("interrupted", "what was measured until then:")
	}
	c := r.Connect
	row("connect", "%d of %d in %.2f s (%.0f/s), p99 %.1f ms", c.Connected, c.Asked, c.Seconds, c.PerSecond, c.Latency.P99)
	if p := r.Publish; p.Sent > 0 {
		row("publish", "%d accepted, %d refused, %d unknown in %.2f s (%.0f/s), p50 %.2f p99 %.2f ms", p.Accepted, p.Refused, p.Unknown, p.Seconds, p.PerSecond, p.Latency.P50, p.Latency.P99)
		if p.Error != "" {
			row("", "%s", p.Error)
		}
		in := r.Receive
		row("receive", "%d of %d in %.2f s (%.0f/s)", in.Received, in.Expected, in.Seconds, in.PerSecond)
		row("latency", "p50 %.2f  p90 %.2f  p99 %.2f  p99.9 %.2f  max %.2f ms", in.Latency.P50, in.Latency.P90, in.Latency.P99, in.Latency.P999, in.Latency.Max)
		missing := "lost"
		if r.Ended {
			missing = "not received yet"
		}
		row("ledger", "%d %s, %d repeated, %d out of order, %d foreign; %d resyncs", in.Lost, missing, in.Repeated, in.Disordered, in.Foreign, in.Resyncs)
		for _, loss := range in.Losses {
			row("", "%s: %s", missing, loss)
		}
	}
	if s := r.Storm; s != nil {
		row("storm", "%d events to %d devices in %.2f s, all connected after %.2f s, complete: %t", s.Received, s.Connected, s.Seconds, s.ConnectedSeconds, s.Complete)
	}
	if r.Closed.ByServer > 0 {
		row("closed", "%d by the server, %d of them misbehaving", r.Closed.ByServer, r.Closed.Stalled)
	}
	summarizeCosts(row, r)
	return t.Flush()
}

// summarizeCosts prints what the watched processes, the kernel and the
// generator used.
func summarizeCosts(row func(name, format string, args ...any), r *results.Report) {
	mib := func(bytes int64) float64 { return float64(bytes) / (1 << 20) }
	moments := func(m map[string]int64) string {
		var b strings.Builder
		for _, moment := range []string{"before", "connected", "peak", "after", "closed"} {
			if v, ok := m[moment]; ok {
				fmt.Fprintf(&b, "  %s %.1f MiB", moment, mib(v))
			}
		}
		return strings.TrimSpace(b.String())
	}
	phases := func(m map[string]float64) string {
		var b strings.Builder
		for _, phase := range []string{"connect", "idle", "run", "storm"} {
			if v, ok := m[phase]; ok {
				fmt.Fprintf(&b, "  %s %.2f s", phase, v)
			}
		}
		return strings.TrimSpace(b.String())
	}
	for _, name := range slices.Sorted(maps.Keys(r.Watched)) {
		w := r.Watched[name]
		row(name, "CPU: %s", phases(w.CPU))
		row("", "PSS: %s", moments(w.PSS))
		if grown := w.PSS["connected"] - w.PSS["before"]; r.Scenario == load.Idle && r.Connect.Connected > 0 {
			row("", "PSS per connection: %.2f KiB", float64(grown)/1024/float64(r.Connect.Connected))
		}
	}
	if len(r.Kernel.TCP) > 0 {
		row("kernel", "TCP queues, both ends: %s", moments(r.Kernel.TCP))
		row("", "slab, whole machine: %s", moments(r.Kernel.Slab))
	}
	row("generator", "CPU: %s  PSS %.1f MiB", phases(r.Self.CPU), mib(r.Self.PSS))
}
