package lease

import "time"

// A Status is how a member sees leases and members.
type Status struct {
	Name    string
	TTL     time.Duration
	Leaving bool
	Members []MemberStatus // by name
	Heard   time.Time      // when the keeper last said who is there; zero: never yet
	Shards  []ShardStatus  // in order
	Moving  int            // shards whose owner isn't the proposed one
}

// A MemberStatus is one member as the others see it.
type MemberStatus struct {
	Name    string
	Leaving bool
}

// A ShardStatus is one shard: who should have it, and who has.
type ShardStatus struct {
	Shard      int
	Proposed   string // by the ring; empty: nobody
	Owner      string // by the keeper, when it was last asked; empty: nobody
	Generation uint64 // the highest that is known
	Held       bool   // by this member
	Live       bool   // held, and events may be written
	Letting    bool   // this member is letting go of it
}
