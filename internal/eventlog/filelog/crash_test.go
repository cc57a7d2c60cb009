package filelog

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// childDir names the directory for the process that is killed.
const childDir = "FILELOG_TEST_CHILD_DIR"

const crashShards = 3

func crashOptions(dir string) Options {
	return Options{
		Dir: dir, Shards: crashShards, Window: time.Minute, MaxEventBytes: most(1 << 20),
		Logger: slog.New(slog.DiscardHandler),
	}
}

// appendUntilKilled is the child: it tells on standard output, line by line,
// what was acknowledged ("a") and what a reader was shown ("r").
func appendUntilKilled() {
	l, err := Open(crashOptions(os.Getenv(childDir)))
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	for w := range 6 {
		go func() {
			for i := 0; ; i++ {
				shard := i % crashShards
				payload := fmt.Sprintf("%d/%d/%d/%s", os.Getpid(), w, i, strings.Repeat("x", rand.IntN(2000)))
				e := event.Event{Target: "pos-1", Type: "t", Payload: payload}
				res := l.Append(context.Background(), []eventlog.Append{{Shard: shard, Events: []event.Event{e}}})[0]
				if res.Err != nil {
					fmt.Println("error", res.Err)
					os.Exit(1)
				}
				fmt.Println("a", shard, res.IDs[0], payload)
			}
		}()
	}
	after := make([]event.ID, crashShards)
	for {
		batches, err := l.Read(context.Background(), 0, after)
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		for _, b := range batches {
			for _, e := range b.Entries {
				after[b.Shard] = e.ID
				fmt.Println("r", b.Shard, e.ID, e.Event.Payload)
			}
		}
	}
}

// TestKill kills a process that writes, twenty times at a random moment, and
// holds the log to what it had said.
func TestKill(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts twenty processes")
	}
	dir := t.TempDir()
	said := map[string]string{} // shard and ID → payload
	acked := 0
	for round := range 20 {
		n := killOnce(t, dir, said)
		acked += n
		lost := checkSaid(t, dir, said)
		if lost > 0 {
			t.Fatalf("round %d: %d of %d entries are lost or changed", round, lost, len(said))
		}
	}
	if acked < 200 {
		t.Errorf("only %d appends were acknowledged in all: the test hardly tests", acked)
	}
	t.Logf("%d acknowledged events survived 20 kills", acked)
}

// killOnce runs the child until a random moment and takes down what it said.
func killOnce(t *testing.T, dir string, said map[string]string) (acked int) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(exe)
	child.Env = append(os.Environ(), childDir+"="+dir)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	atLine := 20 + rand.IntN(800) // counted in what it does: a slow machine kills as wildly as a fast one
	lines := bufio.NewReaderSize(out, 1<<20)
	for i := 0; ; i++ {
		if i == 10 { // it says something, so it holds the directory
			if _, err := Open(crashOptions(dir)); !errors.Is(err, ErrInUse) {
				t.Errorf("Open beside a running owner = %v, want ErrInUse", err)
			}
		}
		if i == atLine {
			if err := child.Process.Kill(); err != nil {
				t.Error(err)
			}
		}
		line, err := lines.ReadString('\n')
		if err != nil {
			if err != io.EOF {
				t.Error(err)
			}
			break // what was cut off in the middle of a line was said to nobody
		}
		var kind, shard, id, payload string
		if _, err := fmt.Sscan(line, &kind, &shard, &id, &payload); err != nil || kind == "error" {
			t.Fatalf("child: %q, %v", line, err)
		}
		if old, known := said[shard+" "+id]; known && old != payload {
			t.Errorf("shard %s, ID %s named two events", shard, id)
		}
		said[shard+" "+id] = payload
		if kind == "a" {
			acked++
		}
	}
	if err := child.Wait(); err == nil {
		t.Error("the child ended by itself")
	}
	return acked
}

// checkSaid opens the directory and looks for everything that was said.
func checkSaid(t *testing.T, dir string, said map[string]string) (lost int) {
	t.Helper()
	l, err := Open(crashOptions(dir))
	if err != nil {
		t.Fatal(err)
	}
	held := map[string]string{}
	for shard := range crashShards {
		page, err := l.Range(context.Background(), shard, event.ID{}, event.MaxID, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Entries {
			held[fmt.Sprint(shard, " ", e.ID)] = e.Event.Payload
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for k, payload := range said {
		if held[k] != payload {
			lost++
		}
	}
	return lost
}
