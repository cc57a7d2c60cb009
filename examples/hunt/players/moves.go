package players

import (
	"context"
	"sync"
	"time"
)

// freeze is how long a player sees no board, though it moves, before that counts.
const freeze = 5 * time.Second

// moves is when the board has moved, as the game says itself: the truth that what
// players see is measured by. Safe for concurrent use.
type moves struct {
	mu   sync.Mutex
	seen []move // in the order of time; the first is older than a freeze
}

type move struct {
	at      time.Time
	version int64
}

func (m *moves) note(now time.Time, version int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen = append(m.seen, move{now, version})
	for len(m.seen) > 1 && now.Sub(m.seen[1].at) > 2*freeze {
		m.seen = m.seen[1:]
	}
}

// latest is the version of the board; 0 before the first.
func (m *moves) latest() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.seen) == 0 {
		return 0
	}
	return m.seen[len(m.seen)-1].version
}

// before is the version that the board had at a time; 0 before the first.
func (m *moves) before(at time.Time) (version int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, one := range m.seen {
		if one.at.After(at) {
			break
		}
		version = one.version
	}
	return version
}

// look asks the game for its board, twice a second.
func (c *crowd) look(ctx context.Context) {
	for ctx.Err() == nil {
		if b, err := c.game.leaderboard(ctx); err == nil {
			c.moves.note(time.Now(), b.Version)
		}
		pause(ctx, 500*time.Millisecond)
	}
}
