package redislog

import (
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"

	"github.com/google/go-cmp/cmp"
)

// Raw writers write what they like. It is read as it is, or named, and never
// stops a shard.
func TestRawEntries(t *testing.T) {
	r := newRig(t, func(o *Options) { o.MaxEventBytes = func() int { return 100 } })
	good := []string{"dev", "a", "type", "t", "payload", "p"}
	with := func(more ...string) []string { return append(append([]string(nil), good...), more...) }
	large := strings.Repeat("x", 101)
	cases := []struct {
		name   string
		fields []string
		want   event.Event
		fault  eventlog.Fault
	}{
		{"good", good, event.Event{Target: "a", Type: "t", Payload: "p"}, ""},
		{"all fields, in another order", []string{"trace", "tr", "payload", "p", "idem", "i", "type", "t", "key", "k", "dev", "@g"},
			event.Event{Target: "@g", Type: "t", Payload: "p", Key: "k", Idem: "i", Trace: "tr"}, ""},
		{"unknown fields", with("x", "y", "", ""), event.Event{Target: "a", Type: "t", Payload: "p"}, ""},
		{"the first of two counts", with("dev", "b", "payload", "q"), event.Event{Target: "a", Type: "t", Payload: "p"}, ""},
		{"an empty payload", []string{"dev", "*", "type", "t", "payload", ""}, event.Event{Target: "*", Type: "t"}, ""},
		{"field names are exact", []string{"Dev", "a", "type", "t", "payload", "p"}, event.Event{}, eventlog.FaultNoField},
		{"no device", good[2:], event.Event{}, eventlog.FaultNoField},
		{"no type", []string{"dev", "a", "payload", "p"}, event.Event{}, eventlog.FaultNoField},
		{"no payload", good[:4], event.Event{}, eventlog.FaultNoField},
		{"nothing", []string{"", ""}, event.Event{}, eventlog.FaultNoField},
		{"an empty device", []string{"dev", "", "type", "t", "payload", "p"}, event.Event{}, eventlog.FaultDevice},
		{"a device with a line", []string{"dev", "a\nb", "type", "t", "payload", "p"}, event.Event{}, eventlog.FaultDevice},
		{"a forged type", []string{"dev", "a", "type", "t\n\ndata: x", "payload", "p"}, event.Event{}, eventlog.FaultType},
		{"our own type", []string{"dev", "a", "type", "resync", "payload", "p"}, event.Event{}, eventlog.FaultType},
		{"not UTF-8", []string{"dev", "a", "type", "t", "payload", "\xff\xfe"}, event.Event{}, eventlog.FaultPayload},
		{"a bad key", with("key", "a\nb"), event.Event{}, eventlog.FaultOptional},
		{"a long trace", with("trace", strings.Repeat("x", 1000)), event.Event{}, eventlog.FaultOptional},
		{"too large", []string{"dev", "a", "type", "t", "payload", large}, event.Event{Target: "a"}, eventlog.FaultTooLarge},
		{"too large and not UTF-8", []string{"dev", "a", "type", "t", "payload", large + "\xff"}, event.Event{Target: "a"}, eventlog.FaultTooLarge},
	}
	var want []eventlog.Entry
	for _, c := range cases {
		id := xadd(t, r.redis, stream0, "*", c.fields...)
		want = append(want, eventlog.Entry{ID: id, Event: c.want, Fault: c.fault})
	}
	page, err := r.Range(t.Context(), 0, event.ID{}, event.MaxID, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range page.Entries {
		if diff := cmp.Diff(want[i], e); diff != "" {
			t.Errorf("%s: %s", cases[i].name, diff)
		}
	}
	var read []eventlog.Entry
	for len(read) < len(want) {
		after := make([]event.ID, r.Shards())
		if n := len(read); n > 0 {
			after[0] = read[n-1].ID
		}
		batches, err := r.Read(t.Context(), 0, after)
		if err != nil || len(batches) != 1 {
			t.Fatalf("%v, %v", batches, err)
		}
		read = append(read, batches[0].Entries...)
	}
	if diff := cmp.Diff(page.Entries, read); diff != "" {
		t.Errorf("Read and Range differ: %s", diff)
	}
}

// A faulty entry whose device can be read is noted when it is swept.
func TestSweptFaultsAreNoted(t *testing.T) {
	r := newRig(t, func(o *Options) { shortWindow(o); o.MaxEventBytes = func() int { return 100 } })
	founded := r.state().Founded
	xadd(t, r.redis, stream0, "*", "rubbish", "x")
	xadd(t, r.redis, stream0, "*", "dev", "large", "type", "t", "payload", strings.Repeat("x", 101))
	last := xadd(t, r.redis, stream0, "*", "payload", "\xff")
	if sum := r.sweepTo(last); sum.Removed != 3 || sum.Foreign != 0 {
		t.Errorf("%+v", sum)
	}
	r.want("too large for it", founded, "large", event.WindowExpired)
	r.want("not its business", founded, "other", "")
}

func FuzzFault(f *testing.F) {
	f.Add("a", "t", "p", "k", "i", "tr", 0)
	f.Add("@", "resync", "\xff", "", "", "", 1)
	f.Fuzz(func(t *testing.T, dev, typ, payload, key, idem, trace string, most int) {
		e := event.Event{Target: dev, Type: typ, Payload: payload, Key: key, Idem: idem, Trace: trace}
		fault := faultOf(&e, [3]bool{true, true, true}, most)
		if valid := e.Validate(max(most, 0)) == nil; valid != (fault == "") {
			t.Errorf("%+v: valid is %v, the fault %q", e, valid, fault)
		}
	})
}

// Replies stay near their budget whatever the entries' sizes.
func TestSizer(t *testing.T) {
	s := newSizer()
	for range 10_000 {
		s.add(1000)
	}
	if n := s.count(8<<20, 64); n < 100 || n > 150 {
		t.Errorf("64 streams of 1 KB entries: count %d", n)
	}
	s.add(1 << 20)
	if n := s.count(8<<20, 64); n > worstFold {
		t.Errorf("after one of 1 MiB: count %d, a reply could have %d MiB", n, 64*n)
	}
	for range 10_000 {
		s.add(100)
	}
	if n := s.count(8<<20, 64); n < 500 {
		t.Errorf("the large one is never forgotten: count %d", n)
	}
	if n := s.count(-5, 1); n != 1 {
		t.Errorf("without a budget: count %d", n)
	}
}

// TestDecodingAllocatesOnce: every gateway decodes every event.
func TestDecodingAllocatesOnce(t *testing.T) {
	r := newRig(t, nil)
	for range 50 {
		r.app("a")
	}
	s := &r.byShard[0]
	reply, err := s.home.do(t.Context(), callRange, s.home.b().Xrange().Key(s.stream).Start("-").End("+").Build())
	if err != nil {
		t.Fatal(err)
	}
	sizes := newSizer()
	n := math.Inf(1)
	for range 5 { // the fewest: what the client does in the background counts too
		n = min(n, testing.AllocsPerRun(50, func() { _, _, err = entries(reply, 1000, sizes) }))
	}
	if n > 1 || err != nil {
		t.Errorf("%v allocations for 50 entries, %v", n, err)
	}
}

// A limit that is raised while a read is blocked counts for what the read brings.
func TestALimitThatIsRaisedDuringARead(t *testing.T) {
	var most atomic.Int64
	most.Store(10)
	r := newRig(t, func(o *Options) {
		o.MaxEventBytes = func() int { return int(most.Load()) }
		o.BlockTime = 20 * time.Second
	})
	head := r.state().Head
	got := make(chan []eventlog.Batch, 1)
	go func() {
		batches, err := r.Read(t.Context(), 0, []event.ID{head, event.MaxID, event.MaxID, event.MaxID})
		if err != nil {
			t.Error(err)
		}
		got <- batches
	}()
	r.eventually(func() bool {
		info, _ := r.redis.Do("INFO", "clients").(string)
		return strings.Contains(info, "blocked_clients:1")
	})
	most.Store(1000)
	xadd(t, r.redis, stream0, "*", "dev", "a", "type", "t", "payload", strings.Repeat("x", 500))
	if b := <-got; len(b) != 1 || b[0].Entries[0].Fault != "" {
		t.Errorf("%+v", b)
	}
}
