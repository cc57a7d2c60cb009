package testkit

import "testing"

// TestLastingPortsAreOnesOwn: a port on which nobody listens at the moment, as of a
// server that is being restarted, is given to no other test.
func TestLastingPortsAreOnesOwn(t *testing.T) {
	given := make(map[int]bool)
	for range 600 { // of 18,000: by chance, ten of them would be given twice
		port := lastingPort(t)
		if given[port] {
			t.Fatalf("port %d was given twice", port)
		}
		given[port] = true
	}
}
