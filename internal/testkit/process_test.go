package testkit

import (
	"math"
	"testing"
)

// TestStopped: who is stopped stands still when Stop returns, and not any more
// when he goes on.
func TestStopped(t *testing.T) {
	r := StartRedis(t)
	for range 20 {
		r.Stop()
		if pid := r.cmd.Process.Pid; !still(pid) {
			t.Fatal("it runs on")
		}
		r.Cont()
		r.Do("PING")
	}
	if still(r.cmd.Process.Pid) {
		t.Error("it answers, and is said to stand still")
	}
	if !still(math.MaxInt32) {
		t.Error("a process that isn't there runs")
	}
}

// TestStates as Linux and macOS say them.
func TestStates(t *testing.T) {
	for text, want := range map[string]bool{" T 1 2 3": true, "T+\n": true, " Z 1": true, "": true, " S 1 2": false, "R+\n": false, "Ss\n": false} {
		if stands(text) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}
