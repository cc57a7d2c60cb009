package settingsfile

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"downlink/internal/governor"
	"downlink/internal/governor/kafkalag"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type silent string

func (s silent) Name() string { return string(s) }

func (silent) Read(context.Context) (governor.Reading, error) {
	return governor.Reading{}, errors.New("never asked")
}

func signals(more ...governor.Signal) []governor.Signal {
	return append(more,
		governor.Signal{Probe: silent("redis_memory"), Unit: "ratio", Period: time.Second, Timeout: time.Second, Fresh: 2 * time.Second, Threshold: 0.8, Wall: 0.92, Levers: []string{governor.Publish}},
		governor.Signal{Probe: silent("tail_lag"), Unit: "entries", Period: time.Second, Timeout: time.Second, Fresh: 2 * time.Second, Threshold: 1000, Levers: []string{governor.Admission}},
	)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A rig is a file, its switch, and a governor.
type rig struct {
	*testing.T
	path string
	off  atomic.Bool
	*File
	law *governor.Governor
	log bytes.Buffer
}

func start(t *testing.T, text string) *rig {
	t.Helper()
	r := &rig{T: t, path: filepath.Join(t.TempDir(), "governor.yml")}
	write(t, r.path, text)
	kafka := new(kafkalag.Slot)
	o := Options{
		Path: r.path, On: func() bool { return !r.off.Load() }, Kafka: kafka,
		Signals: signals(kafka.Signal()), Levers: []string{governor.Admission, governor.Publish},
	}
	var err error
	if r.File, err = Open(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	r.law, err = governor.New(governor.Options{
		Signals: o.Signals, Settings: governor.Defaults(o.Signals), Metrics: governor.NewMetrics(nil),
		Levers: []governor.Lever{{Name: governor.Admission}, {Name: governor.Publish}},
		Logger: slog.New(slog.NewTextHandler(&r.log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Govern(r.law); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) load(changed bool, wrong string) {
	r.Helper()
	got, err := r.Load()
	if got != changed || (err == nil) != (wrong == "") || err != nil && !strings.Contains(err.Error(), wrong) {
		r.Errorf("changed: %v, %v; want %v and %q", got, err, changed, wrong)
	}
	if err != nil && (!strings.Contains(err.Error(), r.path) || strings.Contains(err.Error(), "s3cret")) {
		r.Errorf("%v", err)
	}
}

func (r *rig) is(on bool, step, wall float64) {
	r.Helper()
	s := r.law.Settings()
	if s.On != on || s.Step != step || s.Signals["redis_memory"].Wall != wall {
		r.Errorf("on: %v, step %v, %+v", s.On, s.Step, s.Signals["redis_memory"])
	}
}

// What the file says counts from the start, and what it says later at once; one
// that can't be used changes nothing; the switch counts in any case.
func TestFile(t *testing.T) {
	r := start(t, "step: 0.2\nsignals:\n  redis_memory: {wall: 0.85}\n")
	r.is(true, 0.2, 0.85)
	r.load(false, "")
	write(t, r.path, "# only the wall\nsignals:\n  redis_memory:\n    wall: 0.9\n")
	r.load(true, "")
	r.is(true, 0.1, 0.9)
	for text, wrong := range map[string]string{
		"":                                      "write {}",
		"# nothing\n":                           "write {}",
		"step: 0.2\nstep: 0.3\n":                "line 2",
		"step: [\n":                             "line",
		"- step\n":                              "docs/operate/governor.md",
		"step: .nan\n":                          "docs/operate/governor.md",
		"step: s3cret\n":                        "step must be a number",
		"stride: 0.2\n":                         "stride is no setting",
		"step: 5\n":                             "step can't be 5",
		"step: 0.2\n---\nstep: 0.3\n":           "docs/operate/governor.md",
		"signals:\n  moon: {wall: 1}\n":         "signals.moon is no signal",
		"signals:\n  redis_memory: {wall: 0.1}": "signals.redis_memory.wall can't be 0.1",
		"a: &a s3cret\nb: *a\n":                 "aliases",
		strings.Repeat("# x\n", 100000):         "too large",
		"kafka: [s3cret]\n":                     "kafka must hold settings",
	} {
		write(t, r.path, text)
		r.load(false, wrong)
		r.is(true, 0.1, 0.9)
	}
	write(t, r.path, "kafka: [s3cret]\n")
	r.off.Store(true)
	r.load(true, "kafka must")
	r.is(false, 0.1, 0.9)
	r.off.Store(false)
	write(t, r.path, "on: false\n")
	r.load(true, "")
	r.is(false, 0.1, 0.92)
	write(t, r.path, "on: true\n")
	r.load(true, "")
	r.is(true, 0.1, 0.92)
	r.off.Store(true)
	r.load(true, "")
	r.is(false, 0.1, 0.92) // the switch is stronger
	if err := os.Remove(r.path); err != nil {
		t.Fatal(err)
	}
	r.load(false, "no such file")
	r.is(false, 0.1, 0.92)
}

// A directory that Kubernetes mounts exchanges a symbolic link.
func TestFileBehindASymbolicLink(t *testing.T) {
	dir := t.TempDir()
	for _, v := range []string{"1", "2"} {
		if err := os.Mkdir(filepath.Join(dir, v), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, v, "governor.yml"), "step: 0."+v+"\n")
	}
	link := func(to string) {
		t.Helper()
		next := filepath.Join(dir, "next")
		if err := errors.Join(os.Symlink(to, next), os.Rename(next, filepath.Join(dir, "data"))); err != nil {
			t.Fatal(err)
		}
	}
	link("1")
	f, err := Open(Options{Path: filepath.Join(dir, "data", "governor.yml"), Signals: signals(), Levers: []string{governor.Admission, governor.Publish}})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	link("2")
	if changed, err := f.Load(); !changed || err != nil {
		t.Errorf("%v, %v", changed, err)
	}
}

// Without a file nothing is changed, and the switch counts.
func TestNoFile(t *testing.T) {
	off := false
	o := Options{Signals: signals(), Levers: []string{governor.Admission, governor.Publish}, On: func() bool { return !off }}
	f, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	off = true
	if changed, err := f.Load(); !changed || err != nil {
		t.Errorf("%v, %v", changed, err)
	}
	o.Path = filepath.Join(t.TempDir(), "none.yml")
	if err := Check(o); err == nil {
		t.Error("a file that isn't there can be used")
	}
}

// What is kept elsewhere isn't taken from the file, and the answer says where it is.
func TestElsewhere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "governor.yml")
	write(t, path, "floor: 0.2\n")
	o := Options{Path: path, Signals: signals(), Levers: []string{governor.Admission, governor.Publish}}
	if err := Check(o); err != nil {
		t.Error(err)
	}
	o.Elsewhere = map[string]string{"floor": "is kept elsewhere"}
	if err := Check(o); err == nil || !strings.Contains(err.Error(), "floor is kept elsewhere") {
		t.Error(err)
	}
}

// FuzzFile: no text makes the reader panic.
func FuzzFile(f *testing.F) {
	f.Add([]byte("step: 0.2\nsignals:\n  redis_memory: {wall: 0.85, levers: [publish]}\n"))
	f.Add([]byte("kafka:\n  brokers: [127.0.0.1:9092]\n  groups: [a]\n  tls: {}\n"))
	f.Add([]byte("? [a]\n: - - {\n"))
	path := filepath.Join(f.TempDir(), "governor.yml")
	f.Fuzz(func(t *testing.T, text []byte) {
		if bytes.Contains(text, []byte("_file")) {
			t.Skip() // it could name any file of this machine
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		_ = Check(Options{Path: path, Signals: signals(), Levers: []string{governor.Admission, governor.Publish}})
	})
}
