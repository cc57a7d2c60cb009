package sse

import (
	"io"
	"sync/atomic"
	"testing"

	"downlink/internal/door"
	"downlink/internal/session"
)

// TestShutOutWhileItComesIn: between the question at the door and the session,
// whoever ends the sessions of a revoked device finds none.
func TestShutOutWhileItComesIn(t *testing.T) {
	var asked atomic.Int32
	r := newRigBehind(t, door.Options{
		Identify: door.Open,
		Revoked:  func(string) bool { return asked.Add(1) > 1 },
	}, nil)
	_, resp, body := r.get("/events?device=a")
	if rest, err := io.ReadAll(body); err != nil || resp.StatusCode != 200 {
		t.Errorf("%d %q %v", resp.StatusCode, rest, err)
	}
	eventually(t, "it ended as revoked", r.ended(session.Revoked))
}
