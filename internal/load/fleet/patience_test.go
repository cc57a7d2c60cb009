package fleet

import (
	"fmt"
	"math"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// TestMovesOfManyAreNoWave: however many begin at the same moment, from the
// first window on each has as many moves as any other, and the average is one
// in the time of patience.
func TestMovesOfManyAreNoWave(t *testing.T) {
	const (
		patience = time.Second
		devices  = 600
		window   = patience / 10
		windows  = 300
	)
	var moves [windows]int
	total := 0
	for range devices {
		for at := restless(patience); at < windows*window; at += restless(patience) {
			moves[at/window]++
			total++
		}
	}
	each := float64(devices) * float64(window) / float64(patience)
	if average := float64(total) / windows; math.Abs(average-each) > each/20 {
		t.Errorf("%.1f moves in a window on average, want %.1f", average, each)
	}
	for n, got := range moves {
		if math.Abs(float64(got)-each) > 7*math.Sqrt(each) { // of 10^9 windows of strangers, one is further off
			t.Errorf("window %d has %d moves, the average one %.0f", n, got, each)
		}
	}
}

// TestThoseCutOffTogetherComeBackApart: it is the schedule that they follow. A machine
// that stands still for a moment sees them all at once, but not each time.
func TestThoseCutOffTogetherComeBackApart(t *testing.T) {
	both(t, func(t *testing.T, portable bool) {
		const patience = 400 * time.Millisecond
		took := time.Duration(0)
		for range 5 {
			// Strangers take 1.4 times their patience for that; who waits as long as
			// all others do comes with them.
			if took = max(took, comingBack(t, portable, patience)); took >= patience/2 {
				return
			}
		}
		t.Errorf("most came back within %v", took)
	})
}

// comingBack is within what time most of those come back who were cut off together.
func comingBack(t *testing.T, portable bool, patience time.Duration) time.Duration {
	t.Helper()
	const devices, enough = 60, 45
	back := make(chan time.Time, devices)
	var came sync.Map
	s := serve(t, func(c net.Conn, r *http.Request) {
		_, before := came.LoadOrStore(r.URL.Path, false)
		if before && came.CompareAndSwap(r.URL.Path, false, true) {
			back <- time.Now()
		}
		fmt.Fprint(c, ok+": hello\n\n")
		hang(c) // until it closes its half
	})
	f, _ := start(t, s, portable, func(o *Options) {
		o.Devices, o.Connecting, o.Patience = devices, devices, patience
		o.Manner = func(int) Manner { return HalfClose }
	})
	defer f.Close()
	connect(t, f, 0, devices)
	first, last := <-back, time.Time{}
	for range enough - 1 {
		last = <-back
	}
	return last.Sub(first)
}
