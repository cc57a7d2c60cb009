package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"downlink/internal/testkit"
)

// TestSignalsBeforeItServes: a gateway that still reads its settings isn't killed by
// SIGHUP, and ends in good order after SIGTERM.
func TestSignalsBeforeItServes(t *testing.T) {
	onlyOnce(t)
	t.Parallel()
	for name, c := range map[string]struct {
		signal syscall.Signal
		serves bool
	}{"hangup": {syscall.SIGHUP, true}, "terminate": {syscall.SIGTERM, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			settings := filepath.Join(t.TempDir(), "settings.yml")
			if err := syscall.Mkfifo(settings, 0o600); err != nil {
				t.Fatal(err)
			}
			g := program.LaunchGateway(t, "--config", settings, "--log", "file:"+t.TempDir())
			f, err := os.OpenFile(settings, os.O_WRONLY, 0) // waits until the gateway reads
			if err != nil {
				t.Fatal(err)
			}
			// What SIGHUP lets it read, once it serves, is a file.
			file := settings + ".new"
			testkit.Put(t, file, []byte("retry: 1s\n"))
			if err := os.Rename(file, settings); err != nil {
				t.Fatal(err)
			}
			g.Signal(c.signal)
			_, err = f.WriteString("retry: 1s\n")
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			if err != nil {
				t.Errorf("the gateway has gone: %v", err)
			}
			if !c.serves {
				if code := g.AwaitExit(); code != 0 || !strings.Contains(g.Log(), "asked to stop") {
					t.Errorf("exit code %d\n%s", code, g.Log())
				}
				return
			}
			g.AwaitReady()
			testkit.Eventually(t, "it has read the file again", func() bool { return strings.Contains(g.Log(), "asked to read the files again") })
			if code := g.Terminate(); code != 0 {
				t.Errorf("exit code %d\n%s", code, g.Log())
			}
		})
	}
}

// TestNewcomersText comes last, and nothing is in between: who starts a gateway for
// the first time sees what to try. What comes before it is short.
func TestNewcomersText(t *testing.T) {
	onlyOnce(t)
	t.Parallel()
	file, err := os.Create(filepath.Join(t.TempDir(), "terminal"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cmd := program.Command(serveArgs("--log", "file:"+t.TempDir(), "--drain-wait", "0s")...)
	cmd.Stdout, cmd.Stderr = file, file
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := sync.OnceFunc(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	defer ended()
	seen := func() string {
		text, err := os.ReadFile(file.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	const end = "/metrics\n\n"
	testkit.Eventually(t, "the text ends", func() bool { return strings.Contains(seen(), end) })
	ended()
	before, text, _ := strings.Cut(seen(), "downlink ")
	text, after, _ := strings.Cut(text, end)
	if strings.Contains(text, "level=") || !strings.Contains(text, "A device, in a second terminal:\n  curl -N ") {
		t.Errorf("between its lines there is something else:\n%s", seen())
	}
	for line := range strings.Lines(after) { // a warning may come at any time
		if strings.Contains(line, "level=INFO") && !strings.Contains(line, "part=drain") && !strings.Contains(line, "asked to stop") {
			t.Errorf("after it there is something else: %s", line)
		}
	}
	for line := range strings.Lines(before) {
		if len(line) > 220 {
			t.Errorf("before it there is a line of %d characters: %s", len(line), line)
		}
	}
}

// TestDiskOfTheLogFails: a gateway whose embedded log takes no more events says so by
// its readiness; who is there stays, and what was acknowledged is there after a restart.
func TestDiskOfTheLogFails(t *testing.T) {
	onlyOnce(t)
	t.Parallel()
	log := "file:" + t.TempDir()
	g := program.SmallFiles(2048).StartGateway(t, args("--log", log, "--shards", "1")...)
	stream := testkit.Open(t, g.Device+"/events?device=a", "")
	stream.Until(resync)
	body := `{"device":"a","type":"t","payload":"` + strings.Repeat("x", 50_000) + `"}`
	acknowledged := 0
	for status := 200; status == 200; acknowledged++ {
		var answer string
		if status, answer = testkit.Post(t, g.Backend+"/v1/events", "application/json", body); status != 200 && status != 503 {
			t.Fatalf("after %d events: %d %s", acknowledged, status, answer)
		}
		if acknowledged > 200 {
			t.Fatal("the disk doesn't fail")
		}
	}
	acknowledged--
	for _, port := range []string{g.Device, g.Backend} {
		if status, why := testkit.Get(t, port+"/readyz"); status != 503 || !strings.Contains(why, "has failed a write") || strings.Contains(why, "/") {
			t.Errorf("ready: %d %s", status, why)
		}
	}
	if status, _ := testkit.Get(t, g.Backend+"/healthz"); status != 200 {
		t.Errorf("alive: %d", status)
	}
	if n := g.Metric("downlink_filelog_failed"); n != 1 {
		t.Errorf("downlink_filelog_failed is %v", n)
	}
	for i := range acknowledged {
		if !strings.Contains(stream.Until("data: "), "xxx") {
			t.Errorf("event %d is another", i)
		}
	}
	g.Kill9()
	again := program.StartGateway(t, args("--log", log, "--shards", "1")...)
	if status, answer := testkit.Post(t, again.Backend+"/v1/events", "application/json", body); status != 200 {
		t.Errorf("after the restart: %d %s", status, answer)
	}
	if acknowledged < 5 {
		t.Errorf("only %d events were acknowledged", acknowledged)
	}
}
