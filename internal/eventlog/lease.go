package eventlog

import (
	"context"
	"time"
)

// A Claimant is a gateway as the lease keeper knows it.
type Claimant struct {
	Name  string        // unique among the members: printable ASCII without spaces, 1 to 128 bytes
	Nonce string        // of this process, so that two with one name are told apart; without spaces
	TTL   time.Duration // of its membership and its leases, 1 ms or more
}

// A LeaseWant is what a claimant wants of a shard's lease.
type LeaseWant string

// The wants.
const (
	// LeaseLook only asks who holds it.
	LeaseLook LeaseWant = "look"
	// LeaseTake asks for one that nobody holds.
	LeaseTake LeaseWant = "take"
	// LeaseKeep renews the one of generation Held. If that is gone and nobody
	// has taken it, it is taken again, with a new generation.
	LeaseKeep LeaseWant = "keep"
	// LeaseDrop releases the one of generation Held.
	LeaseDrop LeaseWant = "drop"
)

// A LeaseAsk is about one shard.
type LeaseAsk struct {
	Shard int
	Want  LeaseWant
	Held  uint64 // the generation that the claimant holds; for LeaseKeep and LeaseDrop
	Floor uint64 // with LeaseTake and LeaseKeep: the generation must be over it, or be Held
}

// A LeaseState is how a shard's lease stands after what was asked.
type LeaseState struct {
	Err        error  // not nil: nobody knows, as after an error of the whole call
	Owner      string // a claimant's name; empty: nobody
	Generation uint64 // the highest so far
	Mine       bool   // this claimant's process holds it, with this generation
	// Who took it last, who had it before that other one, and with which
	// generation it went from the one to the other.
	Last, Was string
	Since     uint64
}

// A Presence is what a claimant says of itself to the other members.
type Presence string

// The presences.
const (
	PresenceLook    Presence = "look"    // nothing: it only looks
	PresenceStay    Presence = "stay"    // here, for the next TTL
	PresenceLeaving Presence = "leaving" // here, for the next TTL, and on its way out: nothing should be proposed to it
	PresenceGone    Presence = "gone"    // not here any more
)

// Membership is who is there.
type Membership struct {
	// Taken is true if another process is a member by the claimant's name; then
	// nothing was changed.
	Taken   bool
	Known   bool // the claimant itself is among the members
	Members []MemberState
}

// A MemberState is one member.
type MemberState struct {
	Name    string
	Leaving bool
}

// A LeaseKeeper knows who may write to the devices of each shard, and who could
// do it. What it keeps expires by its own clock; no claimant's clock matters.
// Safe for concurrent use.
type LeaseKeeper interface {
	// Groups lists which shards one call of Leases can be about.
	Groups() [][]int
	// Leases asks about shards of one group, about each in one atomic step, and
	// answers in the same order. A generation is higher than every one before it in the
	// shard, and at least the time in ms. With ErrUnavailable it may be carried
	// out or not, even later.
	Leases(ctx context.Context, who Claimant, asks []LeaseAsk) ([]LeaseState, error)
	// Members says who is there, after saying of the claimant what it says
	// itself. Errors are as those of Leases.
	Members(ctx context.Context, who Claimant, says Presence) (Membership, error)
}
