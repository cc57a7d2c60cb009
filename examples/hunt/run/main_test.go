package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"downlink/internal/testkit"
)

// binaries are the programs of a run, built for this one.
var binaries options //nolint:gochecknoglobals // built once

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-crowd" { // this program, as a process of players
		main()
		return
	}
	dir, err := os.MkdirTemp("", "hunt")
	if err == nil {
		err = buildAll(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(cleaning{m, dir})
}

// cleaning takes the binaries away when all tests are through.
type cleaning struct {
	*testing.M
	dir string
}

func (c cleaning) Run() int {
	defer os.RemoveAll(c.dir)
	return c.M.Run()
}

func buildAll(dir string) error {
	if _, err := testkit.Build(dir); err != nil {
		return err
	}
	binaries.downlink, binaries.game = filepath.Join(dir, "downlink"), filepath.Join(dir, "game")
	if out, err := exec.Command("go", "build", "-o", binaries.game, "downlink/examples/hunt").CombinedOutput(); err != nil {
		return fmt.Errorf("building the game: %w\n%s", err, out)
	}
	return nil
}

// TestSmallHunt: what a run starts plays, is measured and ends, and a cap refuses
// streams. How a hunt fares depends on the machine: make hunt-001 and its sisters
// judge that.
func TestSmallHunt(t *testing.T) {
	const players, last = 100, 8 * time.Second
	for _, kind := range []kind{capped, governed} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			o := binaries
			o.kind, o.gateways, o.crowds = kind, 2, 2
			o.settings.gateways, o.settings.room = "../gateways.yaml", "../room.yaml"
			o.out = filepath.Join(t.TempDir(), "run")
			o.hunt = small(t, players, last)
			s, err := run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(s.write(o.out), s.print(t.Output())); err != nil {
				t.Fatal(err)
			}
			check(t, s, players)
			if kind == capped && s.Throttled == 0 {
				t.Error("nobody was refused a stream")
			}
		})
	}
}

// small is a file with a hunt for few players.
func small(t *testing.T, players int, last time.Duration) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "hunt.yaml")
	text := fmt.Sprintf(`
load: {seed: 7, players: %d, arrive: 2s, last: %v, think: 1500ms, look: 2s}
redis: {maxmemory: 20mb}
gateway: {shards: 2, window: 30s, sweep_interval: 1s, governor_floor: 2}
game: {side: 32, top: 10, board_every: 500ms, outbox: 500, patience: 2s, places: 1000}
cap: %d
`, players, last, players/5)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// check sees that everything was measured, and adds up.
func check(t *testing.T, s *summary, players int) {
	t.Helper()
	if len(s.Samples) == 0 {
		t.Fatal("no samples")
	}
	last := s.Samples[len(s.Samples)-1]
	if last.Waiting+last.Playing > players {
		t.Errorf("%d wait and %d play, of %d there are", last.Waiting, last.Playing, players)
	}
	whole := func(one sample) bool { // a busy machine may have missed some of it in another second
		return one.Streams > 0 && one.Second.Streams > 0 && one.Memory > 0 && one.Outbox >= 0 && (s.Kind != governed || one.Admitted > 0)
	}
	if !slices.ContainsFunc(s.Samples, whole) || s.Solved == 0 || s.Drops == 0 || s.Board < 0 {
		t.Errorf("not measured: %+v", s.Samples)
	}
	if s.Kind == governed && s.Ask == 0 {
		t.Error("the governor wasn't asked")
	}
}
