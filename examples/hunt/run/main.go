// Command run lets a hunt happen on one machine: a small Redis, gateways, the game
// and its players, each a process of its own as in life, and writes down what
// became of it, once a second. It owns what it starts, and ends all of it. Its
// invariant: the runs of one file differ in nothing but what the command line says,
// and a run that didn't show what it is there to show fails.
//
//	go run ./examples/hunt/run [flags] capped|governed|open
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"downlink/examples/hunt/players"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "run:", err)
		os.Exit(1)
	}
}

// errUsage is what the flags say of themselves already.
var errUsage = errors.New("name one kind of run: capped (no governor, and the file's cap), governed, or open (neither)")

func command(ctx context.Context, args []string) error {
	var o options
	var simulate string
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	flags.StringVar(&o.hunt, "hunt", "examples/hunt/hunt.yaml", "`file` with the load and the place")
	flags.StringVar(&o.settings.gateways, "gateways-file", "examples/hunt/gateways.yaml", "`file` with the settings of the gateways' governor, for the run with one")
	flags.StringVar(&o.settings.room, "room-file", "examples/hunt/room.yaml", "`file` with those of the governor that the game asks")
	flags.StringVar(&o.out, "out", "", "`prefix` of the files to write: PREFIX.csv and PREFIX.json; nothing is written without")
	flags.StringVar(&o.downlink, "downlink", "bin/hunt/downlink", "the gateway's `binary`")
	flags.StringVar(&o.game, "game", "bin/hunt/game", "the game's `binary`")
	flags.IntVar(&o.gateways, "gateways", 1, "how many gateways")
	flags.IntVar(&o.crowds, "crowds", 1, "how many processes the players are spread over")
	flags.IntVar(&o.players, "players", 0, "play with so `many` instead of the file's players, and as much more or less Redis, outbox, cap and places")
	flags.DurationVar(&o.last, "last", 0, "end so early, to try things out")
	flags.StringVar(&simulate, "crowd", "", "be one of those processes: what to do, as JSON")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if simulate != "" {
		return crowd(ctx, simulate)
	}
	o.kind = kind(flags.Arg(0))
	if flags.NArg() != 1 || o.kind != capped && o.kind != governed && o.kind != open {
		return errUsage
	}
	summary, err := run(ctx, o)
	if err != nil {
		return err
	}
	if err := summary.print(os.Stdout); err != nil {
		return err
	}
	if o.out != "" {
		if err := summary.write(o.out); err != nil {
			return err
		}
	}
	return summary.verdict()
}

// A task is what a process of players is told.
type task struct {
	Load  players.Load `json:"load"`
	Game  string       `json:"game"`
	Begin int64        `json:"begin"` // ms since 1970
	First int          `json:"first"`
	Count int          `json:"count"`
}

// A line is what such a process says: how things stand, and in the end what came
// of it.
type line struct {
	Second *players.Second `json:"second,omitempty"`
	Report *players.Report `json:"report,omitempty"`
}

// arrival is how long what was published in the end may take to arrive.
const arrival = 20 * time.Second

func crowd(ctx context.Context, text string) error {
	var t task
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return fmt.Errorf("-crowd: %w", err)
	}
	out := json.NewEncoder(os.Stdout)
	report, err := players.Run(ctx, players.Options{
		Load: t.Load, Game: t.Game, Begin: time.UnixMilli(t.Begin), First: t.First, Count: t.Count, Patience: arrival,
		Each: func(s players.Second) { _ = out.Encode(line{Second: &s}) }, // who started it reads, or has ended
	})
	if err != nil {
		return err
	}
	return out.Encode(line{Report: report})
}

// own is the path of this program.
func own() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}
