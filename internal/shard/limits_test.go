package shard

import (
	"errors"
	"fmt"
	"testing"

	"downlink/internal/event"
)

// A lower limit refuses the next stream and ends none; a higher one lets it in.
func TestStreamsPerDeviceIsAskedAtEachAttach(t *testing.T) {
	most := 4
	g := started(newMemlog())
	g.opts.StreamsPerDevice = func() int { return most }
	var streams []*listener
	for range 4 {
		l, _ := attach(t, g, "a", Start{Reason: event.NoCursor})
		streams = append(streams, l)
	}
	most = 2
	if _, err := g.Attach(&listener{}, "a", nil, Start{}); !errors.Is(err, ErrTooManyStreams) {
		t.Errorf("got %v", err)
	}
	id := g.log.append(to("a"))
	g.follow(1)
	for i, l := range streams {
		if ids := l.ids(); len(ids) != 1 || ids[0] != id {
			t.Errorf("stream %d has %v", i, ids)
		}
	}
	most = 5
	attach(t, g, "a", Start{Reason: event.NoCursor})
}

// The hot window shrinks with the next entry, keeps what is newest, and grows.
func TestHotWindowFollowsItsLimit(t *testing.T) {
	limit := 100_000
	log := newMemlog()
	g := newGateway(log, 0)
	g.opts.HotBytes = func() int { return limit }
	g.Start(log.state.Founded)
	fill := func(n int) {
		for i := range n {
			log.append(to(fmt.Sprint("d", i%7)))
		}
		g.follow(n)
	}
	fill(500)
	before := len(g.hot.window())
	limit = 10_000
	fill(1)
	after := len(g.hot.window())
	if before != 500 || after >= before || g.hot.bytes > 10_000 || g.hot.window()[after-1].ID != g.pos {
		t.Errorf("%d entries, then %d with %d bytes", before, after, g.hot.bytes)
	}
	limit = 100_000
	fill(100)
	if n := len(g.hot.window()); n != after+100 {
		t.Errorf("%d entries after it grew", n)
	}
}
