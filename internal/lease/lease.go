// Package lease owns which shards this gateway may write to: its membership,
// and a lease for each shard that the ring proposes to it. It owns neither the
// ring nor a connection. Its invariant: a lease that it hands out ends here
// before it ends for anybody else, and a shard is let go of here before another
// can have it.
package lease

import (
	"errors"
	"time"
)

// A Lease allows event writes to the devices of one shard, until its deadline.
// It gates writes, never a connection. It is a value: whoever writes asks
// Member.Lease for the present one each time, and checks that it is Live.
type Lease struct {
	Shard int
	Owner string // the member's name
	// Generation rises with each time that the shard is taken, by whomever, and
	// is at least the time of then in ms. A device refuses one that is lower
	// than what it has seen.
	Generation uint64
	Deadline   time.Time // with its monotonic reading; zero: for ever
}

// Live reports whether events may be written at now, which must be of
// time.Now. Both clocks count: the monotonic one stops while a machine is
// suspended, the other one is set now and then. One that is set forward stops
// events until the next renewal.
func (l Lease) Live(now time.Time) bool {
	if l.Deadline.IsZero() {
		return true
	}
	return now.Before(l.Deadline) && now.Round(0).Before(l.Deadline.Round(0))
}

// Loss says why a lease ended. It is the label of a metric too.
type Loss string

// The losses. Only the first three make a gateway let go of a shard.
const (
	LossMoved   Loss = "moved"   // the ring proposes another member
	LossTaken   Loss = "taken"   // another member holds it
	LossLeaving Loss = "leaving" // this gateway leaves
	LossExpired Loss = "expired" // not renewed in time: nothing is written until it is; connections stay
	LossGone    Loss = "gone"    // the lease had vanished from Redis, and was taken again at once
)

// Losses lists every loss, for metrics and documentation.
func Losses() []Loss { return []Loss{LossMoved, LossTaken, LossLeaving, LossExpired, LossGone} }

// ErrNameTaken means that another process is a member by our name.
var ErrNameTaken = errors.New("another gateway is a member by the same name: give each a name of its own")
