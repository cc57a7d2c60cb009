// Bench measures Downlink and its peers side by side: one table a command,
// every contender on this machine in the same run. It owns the contenders'
// processes and configuration, the order of the rounds, the results below
// bench/results, and the generated part of docs/benchmarks.md; the load comes
// from `downlink load`. Its invariant: whatever it started is dead when it
// ends, and no figure reaches the page that a run didn't measure.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"strings"
	"syscall"
)

const usage = `usage: go run ./bench [flags] TABLE...    measure tables, in this order
       go run ./bench list                the tables, and the runs that each takes
       go run ./bench report              write the results into docs/benchmarks.md

Results of a whole table, measured with this tree in at least 3 rounds, go to
bench/results; all others, of trials, to bin/bench/quick and never to the page.

flags:`

func main() {
	// A child dies with the thread that started it (see attributes); this one
	// lives as long as the process.
	runtime.LockOSThread()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	rounds := flags.Int("rounds", 0, "rounds of each contender, interleaved (0: as the table says, 3 or more)")
	quick := flags.Bool("quick", false, "few devices and seconds, to try the harness")
	only := flags.String("only", "", "`pattern` of the entries to measure, to look into some")
	binary := flags.String("downlink", "", "`binary` to measure (default: built from this tree)")
	generator := flags.String("load", "", "`binary` that makes the load (default: the one that is measured)")
	extra := flags.String("serve", "", "more `flags` for downlink serve, separated by spaces")
	flags.Usage = func() {
		_, _ = fmt.Fprintln(stderr, usage)
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	names := flags.Args()
	switch {
	case len(names) == 4 && names[0] == loopCommand:
		return runLoop(ctx, names[1], names[2], names[3])
	case len(names) == 0:
		flags.Usage()
		return errors.New("name a table")
	case names[0] == "list":
		return list(stdout)
	case names[0] == "report":
		return report(".")
	case runtime.GOOS != "linux":
		return fmt.Errorf("measuring needs Linux: processor time and memory are read from /proc (this is %s)", runtime.GOOS)
	}
	s := session{
		scale: scale{quick: *quick}, rounds: *rounds, stderr: stderr,
		trial: *quick || *only != "" || *extra != "" || *binary != "" || *generator != "" || *rounds != 0 && *rounds < defaultRounds,
	}
	var err error
	if s.only, err = regexp.Compile(*only); err != nil {
		return fmt.Errorf("--only: %w", err)
	}
	if err := s.prepare(ctx, *binary, *generator, strings.Fields(*extra)); err != nil {
		return err
	}
	return s.measureAll(ctx, names)
}

func list(w io.Writer) error {
	for _, t := range tables(scale{}, site{}) {
		runs := len(t.entries) * max(t.rounds, defaultRounds)
		if _, err := fmt.Fprintf(w, "%-16s %-10s %s\n", t.name, fmt.Sprintf("%d runs", runs), t.title); err != nil {
			return err
		}
	}
	return nil
}
