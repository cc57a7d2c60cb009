package eventlog

import (
	"time"

	"downlink/internal/event"
)

// A Glancer is a Tailer on a server that stores and reads in one round trip: it
// lets the tail have what this process appends as soon as it is stored. A log
// that can't promise what Glanced says is none.
type Glancer interface {
	// Follow names who is asked before each round trip of appends to a group.
	// Call it once, before the first append.
	Follow(group int, f Follower)
}

// A Follower decides what a round trip of appends reads besides. It is the
// tail's reader of a group. Its methods never block: a publisher waits.
// Shards are given by their place in Groups()[group].
type Follower interface {
	// Glance is called before a round trip that appends to the shards at these
	// places, once at a time. It must not keep the slice.
	Glance(appended []int) Glance
	// Glanced hands over what was read, in the order of the calls of Glance;
	// read decodes it. The server has stored the round trip's appends before,
	// over the same connection: it is no replica, and was not demoted. anew
	// says that it is another connection than last time: another server may
	// stand behind it. What couldn't be read is not reported.
	Glanced(g Glance, anew bool, read func() ([]Batch, error))
}

// A Glance is what is to be read, without waiting for anything.
type Glance struct {
	Places []int      // none: nothing is to be read
	After  []event.ID // exclusive; one for each of Places
	Asked  time.Time
	Turn   uint64 // the follower's own mark
}
