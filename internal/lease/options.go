package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"downlink/internal/eventlog"
	"downlink/internal/ring"
)

// Options for a Member. The zero value of a field marked with a default means
// that default.
type Options struct {
	Keeper eventlog.LeaseKeeper // the log on Redis
	Name   string               // of this member, unique: printable ASCII without spaces, 1 to 128 bytes
	Shards int                  // as in the log
	// TTL is for how long leases and the membership outlive their last renewal,
	// 100 ms or more; default 15 s. They are renewed every TTL/3, and what
	// happens elsewhere is noticed within TTL/15. The same for all members.
	TTL time.Duration
	// Settle is how long a proposal must stand before a shard moves for it, so
	// that a member that comes and goes moves nothing; default TTL/5.
	Settle time.Duration
	// Moves is how many shards are on their way to other members at the same
	// time, from this one; default 4.
	Moves int
	// Leave bounds how long Let may take when this member leaves; default 10 s.
	Leave time.Duration
	// Haste is closed when somebody asks once more for the end: then a member that
	// leaves doesn't wait for a keeper that is away. Nil: nobody does.
	Haste <-chan struct{}
	// Owners proposes an owner for each shard: ring.Owners.
	Owners func(members []string, shards []ring.Shard) []string
	// Took is called when a shard has become ours: begin dialling. Member.Lease
	// knows the lease only after it has returned, so nothing is written before
	// that. It is called again, without a Let, when the lease has a new
	// generation: it was lost and taken again before anybody else had it; keep
	// the connections, and tell each device the generation before its next
	// event. It must not block.
	Took func(Lease)
	// Let is called when a shard isn't ours any more: stop dialling, close its
	// connections, and return when nothing of it will be written. Member.Lease
	// doesn't know the lease any more. If it was ours to give, it is released
	// after that. It may take its time, until ctx ends; Let of several shards
	// may run at once, but Took and Let of one shard never overlap.
	Let     func(ctx context.Context, shard int, why Loss)
	Metrics *Metrics // from NewMetrics
	Logger  *slog.Logger
}

const (
	leastTTL    = 100 * time.Millisecond
	longestName = 128
)

func (o *Options) fill() error {
	setDefault(&o.TTL, 15*time.Second)
	setDefault(&o.Settle, o.TTL/5)
	setDefault(&o.Moves, 4)
	setDefault(&o.Leave, 10*time.Second)
	switch {
	case o.TTL < leastTTL:
		return fmt.Errorf("lease TTL is %v: it must be at least %v", o.TTL, leastTTL)
	case o.Settle < 0 || o.Moves < 0 || o.Leave < 0:
		return errors.New("settle, moves and leave can't be negative")
	case o.Shards < 1:
		return fmt.Errorf("shards is %d: it must be at least 1", o.Shards)
	case o.Keeper == nil || o.Owners == nil || o.Took == nil || o.Let == nil || o.Logger == nil || o.Metrics == nil:
		return errors.New("a member needs a keeper, a ring, Took, Let, a logger and metrics")
	}
	return ValidateName(o.Name)
}

// ValidateName says what is wrong with a member's name.
func ValidateName(name string) error {
	if name == "" || len(name) > longestName {
		return fmt.Errorf("the member's name has %d bytes: it must have 1 to %d", len(name), longestName)
	}
	for i := range len(name) {
		if name[i] <= ' ' || name[i] > '~' {
			return fmt.Errorf("the member's name %q may have printable ASCII only, without spaces", name)
		}
	}
	return nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
