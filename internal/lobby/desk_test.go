package lobby

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// TestTurns: no more work than may; of those who wait first those from where few
// come, then the newest; and who is cut, or leaves, waits no longer.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(Options{Waiting: is(100)})
		l.desk.most = 1
		first := arrive(l, "192.0.2.1")
		if begun, again := first.guest.Work(), first.guest.Work(); !begun || !again { // it has a turn, and has it still
			t.Fatal("there is a turn free")
		}
		var served []string
		working, over := first, atomic.Int32{}
		wait := func(name, from string) *client {
			c := arrive(l, from)
			go func() {
				if c.guest.Work() {
					served, working = append(served, name), c
				}
				over.Add(1)
			}()
			synctest.Wait()
			return c
		}
		for i := range 4 {
			wait(fmt.Sprint("flood ", i), "192.0.2.1")
		}
		wait("early", "192.0.2.2")
		wait("late", "192.0.2.3")
		gone, cut := wait("gone", "192.0.2.4"), wait("cut", "192.0.2.5")
		gone.close()
		l.mu.Lock()
		cut.guest.cut = true
		l.unwaitLocked(cut.guest)
		l.mu.Unlock()
		synctest.Wait()
		if len(served) > 0 || over.Load() != 2 || cut.guest.Work() || gone.guest.Work() {
			t.Fatalf("%v were served, and %d wait no longer", served, over.Load())
		}
		for range 6 {
			was := working
			was.guest.Rest()
			was.guest.Rest() // gives up no other's turn
			synctest.Wait()
		}
		want := []string{"late", "early", "flood 1", "flood 0", "flood 3", "flood 2"} // 2 and 3 of them were there; 4 and 5
		if !slices.Equal(served, want) {
			t.Errorf("served %v, want %v", served, want)
		}
		if working.guest.Rest(); l.desk.working != 0 {
			t.Errorf("at last %d work", l.desk.working)
		}
	})
}
