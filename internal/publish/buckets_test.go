package publish

import (
	"strconv"
	"testing"
	"time"
)

// There are buckets for the names of the last moments only, however many names
// there have been.
func TestIdleBucketsAreDropped(t *testing.T) {
	var bs buckets
	now := time.Unix(1000, 0)
	most := 0
	for i := range 200_000 {
		name := strconv.Itoa(i)
		if bs.wait(name, 10, now) != 0 {
			t.Fatal("a new name has to wait")
		}
		bs.take(name, 10, 1, now)
		now = now.Add(time.Millisecond)
		most = max(most, len(bs.byName))
	}
	// At 10/s a bucket that was used once is full again after 100 ms: 100 names.
	if most > leastPurge+1 {
		t.Errorf("there were %d buckets", most)
	}
	// A crowd leaves no more than a few, once somebody else comes.
	for i := range 100_000 {
		bs.take(strconv.Itoa(i), 10, 1, now)
	}
	now = now.Add(purgeEvery)
	bs.take("late", 10, 1, now)
	if n := len(bs.byName); n > 1 {
		t.Errorf("%d buckets are left", n)
	}
	if bs.wait("late", 0, now); len(bs.byName) != 0 {
		t.Error("without a rate there are buckets")
	}
}
