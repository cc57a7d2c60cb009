package gateway

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"downlink/internal/governor"
	"downlink/internal/testkit"
)

// The governor's file counts from the start, and what changes in it while a gateway
// runs, too; so does whether there is a governor.
func TestGovernorFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "governor.yml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := testOptions(t, "file:"+t.TempDir())
	var off atomic.Bool
	o.GovernorFile, o.Governed, o.ReloadInterval = path, func() bool { return !off.Load() }, 20*time.Millisecond
	for text, wrong := range map[string]string{
		"stride: 1\n":  "stride is no setting",
		"floor: 0.2\n": "floor is the limit governor_floor here",
		"signals:\n  redis_memory: {wall: 0.9}\n": "signals.redis_memory is no signal", // the log is embedded
	} {
		write(text)
		if _, err := CheckFiles(o); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%v; want %q", err, wrong)
		}
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%v; want %q", err, wrong)
		}
	}
	write("step: 0.2\n")
	g := run(t, o)
	settings := func() governor.Settings { return g.flow.Load().governor.Settings() }
	if s := settings(); s.Step != 0.2 || !s.On {
		t.Errorf("%+v", s)
	}
	write("step: 0.3\nsignals:\n  tail_lag: {levers: [publish]}\n")
	testkit.Eventually(t, "the file counts", func() bool {
		s := settings()
		return s.Step == 0.3 && s.Signals["tail_lag"].Levers[0] == governor.Publish
	})
	off.Store(true)
	testkit.Eventually(t, "the switch counts", func() bool { return !settings().On })
	off.Store(false)
	testkit.Eventually(t, "the switch counts", func() bool { return settings().On })
	testkit.Eventually(t, "Kafka says why it takes no part", func() bool {
		for _, s := range g.flow.Load().governor.State().Signals {
			if s.Name == "kafka_lag" {
				return strings.Contains(s.None, "no consumer group")
			}
		}
		return false
	})
}

// The file that the page shows can be used as it stands there.
func TestGovernorFileOnItsPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/operate/governor.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "```yaml\n")
	text, _, ok := strings.Cut(text, "```")
	if !ok || !strings.Contains(text, "signals:") {
		t.Fatalf("the page shows no file: %q", text)
	}
	dir := t.TempDir()
	testkit.Certificates(t, dir)
	text = strings.ReplaceAll(text, "/etc/downlink/kafka", dir)
	for name, content := range map[string]string{"password": "s3cret", "governor.yml": text} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := testOptions(t, "redis://127.0.0.1:1")
	o.GovernorFile = filepath.Join(dir, "governor.yml")
	if _, err := CheckFiles(o); err != nil {
		t.Error(err)
	}
	o.Log.URL = "file:" + t.TempDir()
	if _, err := CheckFiles(o); err == nil {
		t.Error("there is no redis_memory with an embedded log")
	}
}
