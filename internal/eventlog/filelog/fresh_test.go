package filelog

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// memory is a disk that never fills.
type memory struct{ vfs.FS }

func (memory) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: 1 << 40, TotalBytes: 1 << 40}, nil
}

// TestFreshEntriesAreThoseOfTheStore: whatever was appended, swept, read or
// asked for again, a read gives what the store holds after the position.
func TestFreshEntriesAreThoseOfTheStore(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := &clock{}
		o := testOptions(t)
		o.Shards, o.Window, o.Now, o.fs = 2, time.Minute, c.now, memory{vfs.NewMem()}
		l, err := Open(o)
		if err != nil {
			rt.Fatal(err)
		}
		defer l.Close()
		l.freshBytes = rapid.SampledFrom([]int{0, 1000, 1 << 20}).Draw(rt, "kept")
		after := []event.ID{stateOf(t, l, 0).Head, stateOf(t, l, 1).Head}
		rt.Repeat(map[string]func(*rapid.T){
			"append": func(rt *rapid.T) {
				shard := rapid.IntRange(0, 1).Draw(rt, "shard")
				for _, size := range rapid.SliceOfN(rapid.IntRange(0, 400), 1, 4).Draw(rt, "sizes") {
					put(t, l, shard, strings.Repeat("x", size))
				}
			},
			"sweep": func(*rapid.T) {
				for range 3 { // a mark, its age, and what is due by it
					sweepAll(t, l, 0)
					sweepAll(t, l, 1)
					c.move(o.Window)
				}
			},
			"suspect": func(rt *rapid.T) {
				if _, err := l.Suspect(context.Background(), 0, after[0]); err != nil {
					rt.Fatal(err)
				}
			},
			"read": func(rt *rapid.T) {
				got := map[int]eventlog.Page{}
				batches, err := l.collect(after)
				if err != nil {
					rt.Fatal(err)
				}
				for _, b := range batches {
					got[b.Shard] = eventlog.Page{Entries: b.Entries, Through: event.MaxID}
				}
				for shard, from := range after {
					want, err := l.Range(context.Background(), shard, from, event.MaxID, 1<<30)
					if err != nil {
						rt.Fatal(err)
					}
					if diff := cmp.Diff(want.Entries, got[shard].Entries); diff != "" {
						rt.Fatalf("shard %d after %v: %s", shard, from, diff)
					}
				}
				if rapid.Bool().Draw(rt, "asks for it again") {
					return
				}
				for _, b := range batches {
					after[b.Shard] = b.Entries[len(b.Entries)-1].ID
				}
			},
			"": func(rt *rapid.T) {
				for _, s := range l.shards {
					if s.fresh.size > l.freshBytes {
						rt.Fatalf("%d bytes are kept, allowed are %d", s.fresh.size, l.freshBytes)
					}
				}
			},
		})
	})
}

// TestTheTailNeedsNoSeek: what it reads right behind the writer comes from
// memory, without an iterator over the store.
func TestTheTailNeedsNoSeek(t *testing.T) {
	l := open(t, testOptions(t))
	head := stateOf(t, l, 0).Head
	put(t, l, 0, "a", "b")
	entries, size, ok := l.shards[0].take(head, 1<<20)
	if !ok || len(entries) != 2 || size < 2*entryBytes {
		t.Errorf("%d entries of %d bytes, %v", len(entries), size, ok)
	}
	if _, _, ok := l.shards[0].take(head, 1<<20); ok {
		t.Error("what was taken is claimed to be complete")
	}
	large := strings.Repeat("x", freshBytes/8)
	put(t, l, 0, large, large)
	if f := l.shards[0].fresh; f.entries != nil || f.since != stateOf(t, l, 0).Head {
		t.Errorf("kept more than there is room for: %d bytes", f.size)
	}
}

// TestFailedGroupIsNotFresh: what the disk refused is shown to nobody.
func TestFailedGroupIsNotFresh(t *testing.T) {
	l := open(t, testOptions(t))
	s := l.shards[0]
	err := l.do(t.Context(), func() error {
		g := l.newGroup()
		defer g.batch.Close()
		ids := make([]event.ID, 1)
		if err := g.fill(s, []event.Event{{Target: "a", Type: "t"}}, ids); err != nil {
			return err
		}
		if len(s.coming.entries) != 1 {
			t.Errorf("%d entries are coming", len(s.coming.entries))
		}
		g.forget()
		return nil
	})
	if err != nil || s.coming.entries != nil || s.coming.size != 0 {
		t.Errorf("%v; left: %+v", err, s.coming)
	}
}
