package filelog

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"downlink/internal/eventlog"
)

// TestOrdersWithAFullDisk: a device must be kept out exactly then, too.
func TestOrdersWithAFullDisk(t *testing.T) {
	o := testOptions(t)
	o.MinFreeBytes = math.MaxUint64
	l := open(t, o)
	if res := l.Append(t.Context(), one("lost"))[0]; !errors.Is(res.Err, eventlog.ErrFull) {
		t.Fatalf("Append: %+v", res)
	}
	for _, kind := range eventlog.ControlKinds() {
		if receipt, err := l.Control(t.Context(), 0, eventlog.Control{Kind: kind, Device: "a"}); err != nil || !receipt.Changed {
			t.Errorf("%s: %+v, %v", kind, receipt, err)
		}
	}
	if _, err := l.Claim(t.Context(), 0, "ticket", time.Hour); !errors.Is(err, eventlog.ErrFull) {
		t.Errorf("Claim: %v", err)
	}
}

// TestClaimsLeave: sweeping forgets names that are free again, and no other;
// nor one that was claimed again since.
func TestClaimsLeave(t *testing.T) {
	c := &clock{}
	o := testOptions(t)
	o.Now = c.now
	l := open(t, o)
	claim := func(name string, ttl time.Duration) {
		t.Helper()
		if first, err := l.Claim(t.Context(), 0, name, ttl); err != nil || !first {
			t.Fatalf("%s: %v, %v", name, first, err)
		}
	}
	stored := func() (n int) {
		for _, prefix := range []byte{claimPrefix, freePrefix} {
			it, err := l.db.NewIter(&pebble.IterOptions{LowerBound: key(prefix, 0), UpperBound: endOf(prefix, 0)})
			if err != nil {
				t.Fatal(err)
			}
			for ok := it.First(); ok; ok = it.Next() {
				n++
			}
			if err := it.Close(); err != nil {
				t.Fatal(err)
			}
		}
		return n
	}
	many, until := l.db.NewBatch(), l.clock()+1 // more than one step takes
	for i := range stepEntries + 10 {
		hash := [hashBytes]byte{byte(i), byte(i >> 8)}
		if err := errors.Join(
			many.Set(claimKey(0, hash), binary.BigEndian.AppendUint64(nil, until), nil),
			many.Set(freeKey(0, until, hash), nil, nil),
		); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(many.Commit(pebble.Sync), many.Close()); err != nil {
		t.Fatal(err)
	}
	claim("again", time.Minute)
	claim("long", 24*time.Hour)
	c.move(2 * time.Minute)
	claim("again", time.Hour)
	sweepAll(t, l, 0)
	if n := stored(); n != 4 {
		t.Errorf("%d keys are left of two claims", n)
	}
	for _, name := range []string{"again", "long"} {
		if first, err := l.Claim(t.Context(), 0, name, time.Hour); err != nil || first {
			t.Errorf("%s was given away: %v, %v", name, first, err)
		}
	}
}

// TestStoredOrdersAreRead: what can't be is an error, and no list.
func TestStoredOrdersAreRead(t *testing.T) {
	l := open(t, testOptions(t))
	if _, err := l.Control(t.Context(), 0, eventlog.Control{Kind: eventlog.Revoke, Device: "a"}); err != nil {
		t.Fatal(err)
	}
	for _, device := range []string{"", "a"} {
		k := revokedKey(0, device)
		good, err := l.get(k)
		if err != nil {
			t.Fatal(err)
		}
		for n := range good {
			if device == "a" && n >= idBytes {
				break
			}
			if err := l.db.Set(k, good[:n], pebble.Sync); err != nil {
				t.Fatal(err)
			}
			if list, err := l.Revoked(t.Context(), 0); !errors.Is(err, errCorrupt) {
				t.Errorf("%d bytes for %q: %+v, %v", n, device, list, err)
			}
		}
		if err := l.db.Set(k, good, pebble.Sync); err != nil {
			t.Fatal(err)
		}
	}
}
