package redislog

import "testing"

// TestRouteIsFoundOnce: what one call appends to a shard goes to one server,
// though a failover is noticed while the call is put together. Found by a chaos
// run: the last event of each device was stored at the new primary, and those
// before it, refused by the old one, came behind it when they were repeated.
func TestRouteIsFoundOnce(t *testing.T) {
	old, next := &node{addr: "old"}, &node{addr: "new"}
	h, other := new(home), new(home)
	h.at.Store(&seat{node: old})
	other.at.Store(&seat{node: next})
	var way routes
	if n := way.to(h); n != old {
		t.Fatalf("it goes to %s first", n.addr)
	}
	h.at.Store(&seat{node: next})
	if n := way.to(other); n != next {
		t.Errorf("another home's goes to %s", n.addr)
	}
	if n := way.to(h); n != old {
		t.Errorf("what follows goes to %s", n.addr)
	}
	var later routes
	if n := later.to(h); n != next {
		t.Errorf("the next call's goes to %s", n.addr)
	}
}
