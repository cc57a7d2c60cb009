package shard

import (
	"slices"
	"testing"

	"downlink/internal/event"
)

// TestLook: who listens for a device, how, and what is still to come for it.
func TestLook(t *testing.T) {
	log := newMemlog()
	g := started(log)
	at := Start{Cursor: log.state.Head}
	_, first := attach(t, g, "a", at, "north", "south")
	slow := &listener{room: 1}
	if _, err := g.Attach(slow, "a", nil, at); err != nil {
		t.Fatal(err)
	}
	var ids []event.ID
	for _, target := range []string{"a", "*", "b", "@north", "a"} {
		ids = append(ids, log.append(to(target)))
	}
	g.follow(10)
	members, position := g.Look("a")
	if position != ids[4] || len(members) != 2 || g.Number() != 0 {
		t.Fatalf("%d members at %v", len(members), position)
	}
	if m := members[0]; m.Subscriber != slow || m.State != "stalled" || m.Missing != 2 || m.Oldest != ids[1] || m.Older || m.Groups != nil {
		t.Errorf("the slow one: %+v", m)
	}
	if m := members[1]; m.State != "live" || m.Missing != 0 || m.Older || !slices.Equal(m.Groups, []string{"north", "south"}) {
		t.Errorf("the other one: %+v", m)
	}
	attach(t, g, "old", Start{Cursor: event.ID{Ms: 1}})
	if members, _ := g.Look("old"); len(members) != 1 || members[0].State != "queued" || !members[0].Older {
		t.Errorf("one that waits for the log: %+v", members)
	}
	first.Detach()
	if members, _ := g.Look("a"); len(members) != 1 {
		t.Errorf("after a detach: %+v", members)
	}
	if members, _ := g.Look("nobody"); len(members) != 0 {
		t.Errorf("nobody: %+v", members)
	}
}

// TestStatesHaveNames for people.
func TestStatesHaveNames(t *testing.T) {
	var names []string
	for s := live; s <= gone; s++ {
		names = append(names, s.String())
	}
	if want := []string{"live", "stalled", "queued", "lapping", "gone"}; !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
}
