package eventlog

import (
	"context"
	"errors"

	"downlink/internal/event"
)

// ErrFenced means that somebody has kept positions of the shard under a higher generation
// since. Nothing of the call was kept, and no repeat will be.
var ErrFenced = errors.New("the shard has a newer owner: it keeps the positions now")

// A Positioner keeps for devices, which can't do it themselves, how far they
// have come: for as long as the log itself lasts, not only for its window. A
// position is only ever behind what its device has finished: a crash or a
// failover may set it back, which repeats events, and it is a cursor that has to
// be judged like any other. Safe for concurrent use.
type Positioner interface {
	// Positions reads what is kept for devices of the shard, from the primary.
	// A device of which nothing is known has no entry in the map.
	Positions(ctx context.Context, shard int, devices []string) (map[string]event.ID, error)
	// KeepPositions keeps positions of devices of the shard. One that is lower
	// than what is kept changes nothing, unless that is ahead of the shard's
	// head: an ID that the log doesn't know any more. It answers ErrFenced if the
	// generation is lower than the highest that it was called with for the shard;
	// 0 is of an owner that never changes, and is neither fenced nor fences. With no
	// positions it only fences. With another error some may be kept, and it may
	// be repeated.
	KeepPositions(ctx context.Context, shard int, generation uint64, positions map[string]event.ID) error
}
