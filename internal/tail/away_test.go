package tail

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestAway: shards are away when their log couldn't be read for so long without a
// break, and not any more once it can.
func TestAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		tail := s.run(t)
		check := func(when string, want bool) {
			t.Helper()
			if got := slices.Contains(tail.Away(time.Minute), 0); got != want {
				t.Errorf("%s: away is %v", when, got)
			}
		}
		after(time.Hour)
		check("while all is well", false)
		for range 3 {
			s.do(func() { s.away = true })
			after(50 * time.Second)
			check("after less than a minute", false)
			s.do(func() { s.away = false })
			after(20 * time.Second)
		}
		check("after several short times", false)
		s.do(func() { s.away = true })
		after(2 * time.Minute)
		check("after two minutes", true)
		s.do(func() { s.away = false })
		after(20 * time.Second)
		check("once it is back", false)
	})
}
