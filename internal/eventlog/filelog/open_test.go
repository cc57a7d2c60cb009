package filelog

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

func TestOneOwner(t *testing.T) {
	o := testOptions(t)
	open(t, o)
	_, err := Open(o)
	if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), o.Dir) || !strings.Contains(err.Error(), "stop") {
		t.Errorf("a second owner gets %v; want ErrInUse, the directory and what to do", err)
	}
}

func TestGuard(t *testing.T) {
	o := testOptions(t)
	if err := open(t, o).Close(); err != nil {
		t.Fatal(err)
	}
	check := func(o Options, setting, stored, configured string) {
		t.Helper()
		_, err := Open(o)
		var mismatch *eventlog.MismatchError
		if !errors.As(err, &mismatch) {
			t.Fatalf("Open = %v, want a MismatchError", err)
		}
		want := eventlog.MismatchError{Log: o.Dir, Setting: setting, Stored: stored, Configured: configured}
		if *mismatch != want {
			t.Errorf("Open = %+v, want %+v", *mismatch, want)
		}
	}
	other := o
	other.Shards = 5
	check(other, "shards", "4", "5")

	l := open(t, o)
	err := l.do(t.Context(), func() error { return l.db.Set(metaKey, []byte(`{"version":2,"shards":4}`), pebble.Sync) })
	if err := errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
	check(o, "format version", "2", "1")
}

func TestOpenRefuses(t *testing.T) {
	full := t.TempDir()
	file := filepath.Join(full, "letters.txt")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Options){
		"no directory":                 func(o *Options) { o.Dir = "" },
		"0 shards":                     func(o *Options) { o.Shards = 0 },
		"65537 shards":                 func(o *Options) { o.Shards = MaxShards + 1 },
		"window of 0s":                 func(o *Options) { o.Window = 0 },
		"how large":                    func(o *Options) { o.MaxEventBytes = nil },
		"no logger":                    func(o *Options) { o.Logger = nil },
		"holds other files and no log": func(o *Options) { o.Dir = full },
		"can't be made":                func(o *Options) { o.Dir = filepath.Join(file, "log") },
	} {
		o := testOptions(t)
		change(&o)
		if _, err := Open(o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("Open = %v, want an error with %q", err, name)
		}
	}
}

// TestRestored: the directory is put back to an older copy. Cursors of the lost
// time are told, even when sweeping has long passed them; all others are served.
func TestRestored(t *testing.T) {
	c := &clock{}
	o := testOptions(t)
	o.Now, o.Window = c.now, time.Minute
	l := open(t, o)
	kept := put(t, l, 0, "kept")[0]
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	backup := t.TempDir()
	copyDir(t, o.Dir, backup)

	c.move(time.Second)
	l = open(t, o)
	lost := put(t, l, 0, "seen", "lost")[0]
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}

	o.Dir = backup
	c.move(time.Second)
	l = open(t, o)
	check := func(when string) {
		t.Helper()
		if got := judge(t, l, 0, lost, "pos-2"); got != event.LogRewound {
			t.Errorf("%s: the cursor of the lost time is judged %q", when, got)
		}
		if got := judge(t, l, 0, kept, "pos-2"); got != "" {
			t.Errorf("%s: the cursor from before is judged %q", when, got)
		}
		if got := judge(t, l, 1, stateOf(t, l, 1).Founded, "pos-2"); got != "" {
			t.Errorf("%s: an idle shard's founding is judged %q", when, got)
		}
	}
	check("restored")
	next := put(t, l, 0, "new")[0]
	if !lost.Less(next) {
		t.Fatalf("the restored log issued %s, the lost time %s", next, lost)
	}
	check("gone on")
	for stateOf(t, l, 0).Swept.Less(next) {
		sweepAll(t, l, 0)
		c.move(o.Window / 4)
	}
	check("swept")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	c.move(time.Hour)
	l = open(t, o)
	check("opened again")
}

// TestManyRestarts: starts without events between them extend one gap, and
// those with events merge the oldest; what the log holds or issued last stays
// good.
func TestManyRestarts(t *testing.T) {
	c := &clock{}
	o := testOptions(t)
	o.Now, o.Window = c.now, 1000*time.Hour
	var ids []event.ID
	for i := range 2*eventlog.MaxBreaks + 6 {
		c.move(time.Second)
		l := open(t, o)
		if i%2 == 0 {
			ids = append(ids, put(t, l, 0, "p")...)
		}
		st := stateOf(t, l, 0)
		if len(st.Breaks) > eventlog.MaxBreaks || len(st.Breaks) > i/2+1 {
			t.Fatalf("start %d: %d breaks", i, len(st.Breaks))
		}
		for _, id := range ids {
			if got := judge(t, l, 0, id, "pos-1"); got != "" {
				t.Errorf("start %d: a held entry is judged %q", i, got)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func copyDir(t *testing.T, from, to string) {
	t.Helper()
	names, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		src, err := os.Open(filepath.Join(from, n.Name()))
		if err != nil {
			t.Fatal(err)
		}
		dst, err := os.Create(filepath.Join(to, n.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(dst, src); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(src.Close(), dst.Close()); err != nil {
			t.Fatal(err)
		}
	}
}
