package inventory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A script is a source that says what a test tells it to.
type script struct {
	mu      sync.Mutex
	entries []Entry
	err     error
	same    bool
	used    int
}

func (s *script) Name() string { return "script" }

func (s *script) Fetch(context.Context) (*List, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || s.same {
		return nil, s.err
	}
	return &List{Entries: slices.Clone(s.entries), Used: func() { s.used++ }}, nil
}

func (s *script) say(devices ...Device) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries, s.err = nil, nil
	for _, d := range devices {
		d.Groups = slices.Clone(d.Groups)
		s.entries = append(s.entries, Entry{Device: d})
	}
}

func device(id string) Device { return Device{ID: id, URL: "http://" + id + ".example/events"} }

func devices(from, to int) []Device {
	var out []Device
	for i := from; i < to; i++ {
		out = append(out, device(fmt.Sprintf("pos-%d", i)))
	}
	return out
}

type rig struct {
	*Inventory
	source  *script
	changes []Change
	log     said
	drop    int
}

// said is what was logged.
type said struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func newRig(edit func(*Options)) *rig {
	r := &rig{source: &script{}, drop: 50}
	o := Options{
		Source: r.source, Shards: 4, MaxDrop: func() int { return r.drop },
		Changed: func(c Change) { r.changes = append(r.changes, c) },
		Metrics: NewMetrics(nil), Logger: slog.New(slog.NewTextHandler(&r.log, nil)),
	}
	if edit != nil {
		edit(&o)
	}
	r.Inventory = New(o)
	return r
}

func (r *rig) all() []string {
	var ids []string
	for s := range 4 {
		for d := range r.Of(s) {
			ids = append(ids, d.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

func ids(list []Device) []string {
	out := []string{}
	for _, d := range list {
		out = append(out, d.ID)
	}
	slices.Sort(out)
	return out
}

func (r *rig) load(t *testing.T, changed bool, want string) {
	t.Helper()
	got, err := r.Load(t.Context())
	switch {
	case want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Fatalf("error %v, want %q", err, want)
	case got != changed:
		t.Fatalf("changed %v, want %v", got, changed)
	}
}

// TestChanges: a reading names what it added, changed and removed, and nothing
// else.
func TestChanges(t *testing.T) {
	r := newRig(nil)
	if r.Ready() {
		t.Error("it is ready before anything was read")
	}
	r.source.say(device("a"), device("b"), device("c"))
	r.load(t, true, "")
	r.load(t, false, "")
	moved := device("b")
	moved.Groups = []string{"south", "north", "south"}
	r.source.say(device("a"), moved, device("d"))
	r.load(t, true, "")
	if len(r.changes) != 2 || !slices.Equal(ids(r.changes[0].Added), []string{"a", "b", "c"}) {
		t.Fatalf("%+v", r.changes)
	}
	c := r.changes[1]
	if !slices.Equal(ids(c.Added), []string{"d"}) || !slices.Equal(ids(c.Removed), []string{"c"}) || len(c.Changed) != 1 || !slices.Equal(c.Changed[0].Groups, []string{"north", "south"}) {
		t.Errorf("%+v", c)
	}
	if d, ok := r.Lookup("b"); !ok || !d.Equal(c.Changed[0]) {
		t.Errorf("%+v %v", d, ok)
	}
	if _, ok := r.Lookup("c"); ok || r.Len() != 3 || !slices.Equal(r.all(), []string{"a", "b", "d"}) {
		t.Errorf("%v", r.all())
	}
}

// TestFailureChangesNothing: whatever goes wrong with a reading, what was read
// before counts, and the status says what is wrong.
func TestFailureChangesNothing(t *testing.T) {
	r := newRig(func(o *Options) { o.Most = func() int { return 30 } })
	r.source.say(devices(0, 20)...)
	r.load(t, true, "")
	before := r.all()
	r.source.err = errors.New("the disk is away")
	r.load(t, false, "the disk is away")
	if s := r.Status(); s.Error != "the disk is away" || s.Devices != 20 || s.Read.IsZero() {
		t.Errorf("%+v", s)
	}
	for want, list := range map[string][]Device{
		"inventory_devices allows 30": devices(0, 31),
		"20 of 20":                    nil,
		"15 of 20":                    devices(0, 5),
		"not one of its 2 entries":    {{ID: "x", URL: "no"}, {ID: "y", URL: "no"}},
	} {
		r.source.say(list...)
		r.load(t, false, want)
		if !slices.Equal(r.all(), before) || len(r.changes) != 1 || r.source.used != 1 {
			t.Errorf("%s: something changed", want)
		}
	}
	if n := testutil.ToFloat64(r.opts.Metrics.reads.WithLabelValues(resultFailed)); n != 5 {
		t.Errorf("%v failures are counted", n)
	}
	// An operator confirms it.
	r.drop = 100
	r.source.say()
	r.load(t, true, "")
	if r.Len() != 0 || !r.Ready() || r.Status().Error != "" {
		t.Errorf("%+v", r.Status())
	}
}

// TestFewMayGo: a small inventory can be changed whatever its percents.
func TestFewMayGo(t *testing.T) {
	r := newRig(nil)
	r.source.say(devices(0, 4)...)
	r.load(t, true, "")
	r.source.say(devices(0, 1)...)
	r.load(t, true, "")
	r.source.say()
	r.load(t, false, "1 of 1")
	if _, err := r.Load(t.Context()); !errors.Is(err, ErrDrop) {
		t.Error(err)
	}
}

// TestWrongEntries: a wrong entry neither cuts its device off nor keeps the
// others from what is new; it is counted and named.
func TestWrongEntries(t *testing.T) {
	r := newRig(func(o *Options) {
		o.Permit = func(url string) error {
			if strings.Contains(url, "forbidden") {
				return errors.New("it may not be dialled")
			}
			return nil
		}
	})
	r.source.say(device("a"), device("b"), device("c"), device("d"), device("e"))
	r.load(t, true, "")
	long := device("g")
	long.Groups = []string{strings.Repeat("x", 200)}
	r.source.say(
		Device{ID: "a", URL: "http://user:secret@host/"}, Device{ID: "b", URL: "http://forbidden/"}, device("c"),
		Device{ID: "c", URL: "http://other/"}, Device{ID: "d"}, device("e"), device("f"), long, Device{ID: "@x", URL: "http://h/"},
		Device{ID: "h", URL: "http://h/#part"}, Device{ID: "i", URL: "h:1"}, Device{ID: "j", URL: "http://h/", Credential: "\xff"},
	)
	r.load(t, true, "")
	for _, id := range []string{"a", "b", "c", "d"} {
		if d, ok := r.Lookup(id); !ok || !d.Equal(device(id)) {
			t.Errorf("%s: %+v", id, d)
		}
	}
	if got := r.all(); !slices.Equal(got, []string{"a", "b", "c", "d", "e", "f"}) {
		t.Errorf("%v", got)
	}
	s := r.Status()
	if s.Invalid != 9 || len(s.Examples) != maxExamples || testutil.ToFloat64(r.opts.Metrics.invalid) != 9 {
		t.Errorf("%+v", s)
	}
	said := r.log.String() + fmt.Sprint(s)
	if strings.Contains(said, "secret") || strings.Count(r.log.String(), "passed over") != 1 {
		t.Errorf("the log says %s", said)
	}
}

// TestRun: it reads at once, again at each interval, and complains of each
// trouble once.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(nil)
		r.source.err = errors.New("away")
		ctx, cancel := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		ended.Go(func() {
			if err := r.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		if r.Ready() || !strings.Contains(r.log.String(), "no device is known") {
			t.Error(r.log.String())
		}
		time.Sleep(25 * time.Second) //nolint:forbidigo // in a bubble
		r.source.say(device("a"))
		time.Sleep(10 * time.Second) //nolint:forbidigo // in a bubble
		synctest.Wait()
		if r.Len() != 1 || strings.Count(r.log.String(), "error=away") != 2 { // at once, and by the rhythm
			t.Error(r.log.String())
		}
		cancel()
		ended.Wait()
	})
}

// TestEndIsNoFailure: who is stopped in a reading has nothing to complain of.
func TestEndIsNoFailure(t *testing.T) {
	r := newRig(nil)
	r.source.err = context.Canceled
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if changed, err := r.Load(ctx); changed || err != nil || r.Status().Error != "" {
		t.Error(changed, err, r.Status())
	}
}

// TestModel: after any readings the inventory is the last good list, and the
// changes that were told, applied one after the other, lead to it.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRig(func(o *Options) { o.MaxDrop = nil })
		told := map[string]Device{}
		r.opts.Changed = func(c Change) {
			for _, d := range c.Added {
				if _, there := told[d.ID]; there {
					t.Fatalf("%s is added twice", d.ID)
				}
				told[d.ID] = d
			}
			for _, d := range c.Changed {
				if old, there := told[d.ID]; !there || old.Equal(d) {
					t.Fatalf("%s hasn't changed", d.ID)
				}
				told[d.ID] = d
			}
			for _, d := range c.Removed {
				if _, there := told[d.ID]; !there {
					t.Fatalf("%s is removed and wasn't there", d.ID)
				}
				delete(told, d.ID)
			}
		}
		for range rapid.IntRange(1, 5).Draw(t, "readings") {
			want := rapid.MapOfN(rapid.StringMatching(`[a-f]{1,2}`), rapid.SampledFrom([]string{"http://a/", "http://b/"}), 0, 12).Draw(t, "list")
			var list []Device
			for id, url := range want {
				list = append(list, Device{ID: id, URL: url})
			}
			r.source.say(list...)
			if _, err := r.Load(context.Background()); err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for s := range 4 {
				for d := range r.Of(s) {
					got[d.ID] = d.URL
				}
			}
			if !maps.Equal(got, want) {
				t.Fatalf("%v, want %v", got, want)
			}
			for id, url := range want {
				if d, ok := r.Lookup(id); !ok || d.URL != url || told[id].URL != url {
					t.Fatalf("%s: %+v, told %+v", id, d, told[id])
				}
			}
			if len(told) != len(want) {
				t.Fatalf("told %v", cmp.Diff(told, want))
			}
		}
	})
}
