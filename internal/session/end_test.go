package session

import (
	"testing"
	"time"

	"downlink/internal/shard"
)

// TestEndDevice ends the sessions of one device, each with a time of its own to
// come back; the first reason of an end stands.
func TestEndDevice(t *testing.T) {
	r := newRig(t, roomy)
	second, other := New("a", &r.woken, r.s.opts), New("b", &r.woken, r.s.opts)
	for _, s := range []*Session{second, other} {
		if err := s.Attach(r.shards.Of(s.device), nil, shard.Start{Cursor: r.last}); err != nil {
			t.Fatal(err)
		}
	}
	woken := r.woken
	retry := 10 * time.Second
	n := EndDevice(r.shards.Of("a"), "a", Disconnected, func() time.Duration { retry += time.Second; return retry })
	if n != 2 || r.woken != woken+2 || r.s.Ended() != Disconnected || second.Ended() != Disconnected || other.Ended() != "" {
		t.Errorf("%d ended, %d woken: %q %q %q", n, r.woken-woken, r.s.Ended(), second.Ended(), other.Ended())
	}
	if a, b := string(r.s.Goodbye()), string(second.Goodbye()); a == b || a+b != "retry: 12000\n\nretry: 11000\n\n" && a+b != "retry: 11000\n\nretry: 12000\n\n" {
		t.Errorf("they say %q and %q", a, b)
	}
	EndDevice(r.shards.Of("a"), "a", Revoked, nil)
	if r.s.Ended() != Disconnected {
		t.Errorf("the reason is %q now", r.s.Ended())
	}
	EndDevice(r.shards.Of("b"), "b", Revoked, nil)
	if got := string(other.Goodbye()); other.Ended() != Revoked || got != "retry: 1500\n\n" {
		t.Errorf("the other ended as %q with %q", other.Ended(), got)
	}
	second.Detach()
	r.s.Detach()
	if n := EndDevice(r.shards.Of("a"), "a", Revoked, nil); n != 0 {
		t.Errorf("%d sessions of a device that has left", n)
	}
}
