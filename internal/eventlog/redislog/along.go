package redislog

import (
	"slices"
	"sync"
	"sync/atomic"

	"downlink/internal/event"
	"downlink/internal/eventlog"

	"github.com/redis/rueidis"
)

// alongBudget is how large what a round trip of appends reads along may be, in
// bytes, roughly: publishers wait for it. While events are larger than that
// the tail reads them by itself.
const alongBudget = 256 << 10

// An along brings a group's tail forward by what this process appends: in the
// pipeline of a round, behind the appends, stands the tail's next read of the
// shards that they go to.
type along struct {
	follower atomic.Pointer[eventlog.Follower]

	// Held from the question to the answer: rounds are one at a time at a
	// server, but a group may have moved while one is under way at the old one.
	mu sync.Mutex

	// Guarded by mu.
	appended []int    // places of the shards of this round
	keys     []string // of the command, for their room
	ids      []string // likewise
	known    asked    // positions as texts
	conn     link     // which connection the last one came over
}

// A link is one connection for appends.
type link struct {
	node *node
	made int
}

var _ eventlog.Glancer = (*Log)(nil)

// Follow names who is asked what rounds of appends read along.
func (l *Log) Follow(group int, f eventlog.Follower) {
	l.groups[group].along.follower.Store(&f)
}

// A look is what a round reads along for one group.
type look struct {
	group  *group
	to     eventlog.Follower
	glance eventlog.Glance
	count  int64 // entries of each shard at most
	cmd    rueidis.Completed
}

// look asks the tails of the groups that a round appends to.
func (c *combiner) look(pipes []*pipe) []look {
	bytes := 0
	for _, p := range pipes {
		bytes += p.bytes
	}
	if bytes > alongBudget {
		return nil
	}
	var looks []look
	for _, p := range pipes {
		for i := range p.takes {
			g := p.takes[i].shard.group
			to := g.along.follower.Load()
			if p.err != nil || to == nil {
				continue
			}
			if !slices.ContainsFunc(looks, func(k look) bool { return k.group == g }) {
				if g.home.node() != c.node || !g.along.mu.TryLock() {
					continue
				}
				looks = append(looks, look{group: g, to: *to})
			}
			g.along.appended = append(g.along.appended, p.takes[i].shard.place)
		}
	}
	kept := looks[:0]
	for _, k := range looks {
		if k.ask() {
			kept = append(kept, k)
		} else {
			k.group.along.mu.Unlock()
		}
	}
	return kept
}

// ask prepares the command, if something is to be read.
func (k *look) ask() bool {
	g := k.group
	k.glance = k.to.Glance(g.along.appended)
	g.along.appended = g.along.appended[:0]
	n := len(k.glance.Places)
	if n == 0 || !g.tail.sizes.fits(alongBudget, n) || !g.tail.sizes.surely(mostBudget, n) {
		return false
	}
	k.count = g.tail.sizes.count(alongBudget, n)
	a := &g.along
	a.keys, a.ids = a.keys[:0], a.ids[:0]
	for i, place := range k.glance.Places {
		a.keys, a.ids = append(a.keys, g.keys[place]), append(a.ids, a.known.at(place, k.glance.After[i]))
	}
	k.cmd = g.home.b().Xread().Count(k.count).Streams().Key(a.keys...).Id(a.ids...).Build()
	return true
}

// hand gives the tail what was read, over this connection.
func (k *look) hand(reply rueidis.RedisResult, conn link) {
	m, err := reply.ToMessage()
	none := rueidis.IsRedisNil(err)
	if err != nil && !none {
		return
	}
	g, count, asked := k.group, k.count, k.glance
	anew := g.along.conn != conn
	g.along.conn = conn
	k.to.Glanced(k.glance, anew, func() ([]eventlog.Batch, error) {
		if none {
			return nil, nil
		}
		return g.batches(m, count, func(place int) event.ID { return asked.After[slices.Index(asked.Places, place)] })
	})
}

// stored reports whether nothing of a round failed.
func stored(replies []rueidis.RedisResult) bool {
	return !slices.ContainsFunc(replies, func(r rueidis.RedisResult) bool {
		if r.Error() != nil {
			return true
		}
		inner, err := r.ToArray() // of a transaction
		return err == nil && slices.ContainsFunc(inner, func(m rueidis.RedisMessage) bool { return m.Error() != nil })
	})
}
