package filelog

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// A disk is the real one, until it is told to fail or to stall its syncs.
type disk struct {
	vfs.FS
	err   atomic.Pointer[error] // what writes and syncs of the WAL answer
	stall atomic.Pointer[chan struct{}]
	syncs atomic.Int64
	avail atomic.Uint64
}

func newDisk() *disk {
	d := &disk{}
	d.avail.Store(1 << 40)
	d.FS = errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(d.inject))
	return d
}

func (d *disk) inject(op errorfs.Op) error {
	if !strings.HasSuffix(op.Path, ".log") {
		return nil
	}
	switch op.Kind {
	case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
		d.syncs.Add(1)
		if stall := d.stall.Load(); stall != nil {
			<-*stall
		}
	case errorfs.OpFileWrite:
	default:
		return nil
	}
	if err := d.err.Load(); err != nil {
		return *err
	}
	return nil
}

func (d *disk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: d.avail.Load()}, nil
}

func one(payload string) []eventlog.Append {
	return []eventlog.Append{{Events: []event.Event{{Target: "pos-1", Type: "t", Payload: payload}}}}
}

// TestDiskFails: after a failed write nothing is claimed, nothing more is taken,
// what was there can be read, and a restart goes on with higher IDs.
func TestDiskFails(t *testing.T) {
	for name, c := range map[string]struct {
		cause error
		want  error
	}{
		"input/output error": {syscall.EIO, eventlog.ErrUnavailable},
		"no space left":      {syscall.ENOSPC, eventlog.ErrFull},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDisk()
			o := testOptions(t)
			o.fs = d
			l, err := Open(o)
			if err != nil {
				t.Fatal(err)
			}
			kept := put(t, l, 0, "kept")[0]
			d.err.Store(&c.cause)
			for range 3 {
				res := l.Append(t.Context(), one("lost"))[0]
				if !errors.Is(res.Err, c.want) || !res.IDs[0].IsZero() || !strings.Contains(res.Err.Error(), "restart") {
					t.Fatalf("Append on a failing disk = %+v, want %v", res, c.want)
				}
			}
			d.err.Store(nil)
			if l.failed.Load() == nil {
				t.Error("the failure isn't remembered")
			}
			if res := l.Append(t.Context(), one("later"))[0]; !errors.Is(res.Err, c.want) {
				t.Errorf("Append after a failed write = %+v; nobody knows what is stored", res)
			}
			if st := stateOf(t, l, 0); st.Head != kept {
				t.Errorf("head %s, want %s: what failed must not be visible", st.Head, kept)
			}
			page, err := l.Range(t.Context(), 0, event.ID{}, event.MaxID, 1<<20)
			if err != nil || len(page.Entries) != 1 || page.Entries[0].ID != kept {
				t.Errorf("Range = %+v, %v", page, err)
			}
			if err := l.Close(); err != nil {
				t.Logf("Close: %v", err) // may complain, must return
			}
			o.fs = nil
			l = open(t, o)
			if got := judge(t, l, 0, kept); got != "" {
				t.Errorf("after the restart the kept entry is judged %q", got)
			}
			if next := put(t, l, 0, "next")[0]; !kept.Less(next) {
				t.Errorf("after the restart %s follows %s", next, kept)
			}
		})
	}
}

// TestNotVisibleBeforeSync: while the sync is on its way no reader sees the
// entry.
func TestNotVisibleBeforeSync(t *testing.T) {
	d := newDisk()
	o := testOptions(t)
	o.fs, o.ReadWait = d, 50*time.Millisecond
	l := open(t, o)
	first := put(t, l, 0, "first")[0]
	stall := make(chan struct{})
	d.stall.Store(&stall)
	before := d.syncs.Load()
	answer := make(chan eventlog.Result, 1)
	go func() { answer <- l.Append(t.Context(), one("second"))[0] }()
	for d.syncs.Load() == before {
		waitABit(t)
	}
	check := func() (visible bool) {
		page, err := l.Range(t.Context(), 0, event.ID{}, event.MaxID, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		after := make([]event.ID, o.Shards)
		backlog, err := l.Read(t.Context(), 0, after)
		if err != nil || len(backlog) != 1 || len(backlog[0].Entries) != len(page.Entries) {
			t.Fatalf("Read from the start = %+v, %v; Range shows %d", backlog, err, len(page.Entries))
		}
		after[0] = first
		batches, err := l.Read(t.Context(), 0, after)
		if err != nil {
			t.Fatal(err)
		}
		head := stateOf(t, l, 0).Head
		if (len(page.Entries) == 2) != (len(batches) == 1) || (len(batches) == 1) != (head != first) {
			t.Errorf("Range shows %d entries, Read %d batches, the head is %s", len(page.Entries), len(batches), head)
		}
		return len(batches) == 1
	}
	if check() {
		t.Error("an entry is visible before its sync")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if res := l.Append(ctx, one("third"))[0]; !errors.Is(res.Err, eventlog.ErrUnavailable) {
		t.Errorf("Append behind a stalled disk = %+v, want ErrUnavailable in time", res)
	}
	if _, err := l.Sweep(ctx, 0, nil); !errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("Sweep behind a stalled disk = %v, want ErrUnavailable in time", err)
	}
	d.stall.Store(nil)
	close(stall)
	if res := <-answer; res.Err != nil {
		t.Fatal(res.Err)
	}
	if !check() {
		t.Error("an entry isn't visible after its sync")
	}
}

// TestGroupCommit: what waits while the disk is busy shares one sync.
func TestGroupCommit(t *testing.T) {
	d := newDisk()
	o := testOptions(t)
	o.fs = d
	l := open(t, o)
	stall := make(chan struct{})
	d.stall.Store(&stall)
	before := d.syncs.Load()
	const callers = 50
	answers := make(chan error, callers+1)
	go func() { answers <- l.Append(t.Context(), one("first"))[0].Err }()
	for d.syncs.Load() == before {
		waitABit(t)
	}
	var waiting atomic.Int64
	for range callers {
		go func() {
			waiting.Add(1)
			answers <- l.Append(t.Context(), one("more"))[0].Err
		}()
	}
	for waiting.Load() < callers {
		waitABit(t)
	}
	waitABit(t)
	d.stall.Store(nil)
	close(stall)
	for range callers + 1 {
		if err := <-answers; err != nil {
			t.Fatal(err)
		}
	}
	if n := d.syncs.Load() - before; n > callers/5 {
		t.Errorf("%d syncs for %d appends", n, callers+1)
	}
}

// TestDiskNearlyFull: the log refuses in time, still sweeps, and takes events
// again when there is room.
func TestDiskNearlyFull(t *testing.T) {
	c := &clock{}
	d := newDisk()
	o := testOptions(t)
	o.fs, o.Now, o.Window = d, c.now, time.Minute
	l := open(t, o)
	last := put(t, l, 0, "1", "2")[1]
	forget := func() { // the writer asks once a second; the test has no second to lose
		if err := l.do(t.Context(), func() error { l.spaceAsked = time.Time{}; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	d.avail.Store(o.MinFreeBytes + 1<<20)
	forget()
	res := l.Append(t.Context(), one("3"))[0]
	if !errors.Is(res.Err, eventlog.ErrFull) || !strings.Contains(res.Err.Error(), "make room") {
		t.Fatalf("Append on a full disk = %+v, want ErrFull and what to do", res)
	}
	for range 8 {
		sweepAll(t, l, 0)
		c.move(o.Window / 4)
	}
	if st := stateOf(t, l, 0); st.Swept != last {
		t.Errorf("a full disk isn't swept: %+v", st)
	}
	// What was swept is freed only by a flush, and nothing else brings one on.
	before := l.db.Metrics().Flush.Count
	forget()
	sweepAll(t, l, 0)
	for l.db.Metrics().Flush.Count == before {
		waitABit(t)
	}
	d.avail.Store(1 << 40)
	forget()
	put(t, l, 0, "4")
}

// waitABit yields to what the test waits for.
func waitABit(t *testing.T) {
	t.Helper()
	select {
	case <-time.After(time.Millisecond):
	case <-t.Context().Done():
		t.Fatal("the test is over")
	}
}
