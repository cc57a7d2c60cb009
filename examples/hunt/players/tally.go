package players

import (
	"math"
	"sync/atomic"
	"time"
)

// A Second is how things stood at one moment, as the players see it; what ends
// in "total" counts from the beginning on.
type Second struct {
	At        float64 `json:"at"`        // seconds since the beginning
	Waiting   int     `json:"waiting"`   // came, and weren't let in yet
	Playing   int     `json:"playing"`   // were let in
	Streams   int     `json:"streams"`   // of them have a live stream
	Throttled int     `json:"throttled"` // of them haven't, because it was refused
	Frozen    int     `json:"frozen"`    // play, and have seen no board for 5 s although it moved
	Refused   int64   `json:"refused"`   // streams, total
	Freezes   int64   `json:"freezes"`   // total
	Solved    int64   `json:"solved"`    // total
	Turned    int64   `json:"turned"`    // away with 503 by the game, after joining, total
	Faults    int64   `json:"faults"`    // requests that failed otherwise, total
	BoardP95  int     `json:"board_p95"` // ms from when the game read a board until a player saw it, of what came since the Second before
	WaitP95   int     `json:"wait_p95"`  // ms from an answer that was right to the next assignment
	Version   int64   `json:"version"`   // of the board, as the game says itself: answers that have counted
}

// A Report is what came of it.
type Report struct {
	Last      Second        `json:"last"`
	Joined    int           `json:"joined"`    // were let in, ever
	Longest   time.Duration `json:"longest"`   // that somebody had to wait for that
	Boards    Counts        `json:"boards"`    // ms, from when the game read a board until a player saw it
	Sights    Counts        `json:"sights"`    // ms, likewise from the oldest answer that was new in it: with the pause that the game makes between two boards
	Waits     Counts        `json:"waits"`     // ms, from an answer that was right to the next assignment
	Impatient int64         `json:"impatient"` // waited a minute for an assignment, with a stream, and asked
	Missing   int64         `json:"missing"`   // drops that never came to a player who had a stream to the end
	Drops     int64         `json:"drops"`     // drops that came
	Unread    int64         `json:"unread"`    // players whose last state couldn't be asked for
}

// Counts says how often a time was measured, in ms; 60,000 stands for all above.
type Counts map[int]int64

// Quantile is the time that part q of the measurements don't exceed; -1 without any.
func (c Counts) Quantile(q float64) int { return quantile(q, func(ms int) int64 { return c[ms] }) }

func quantile(q float64, times func(ms int) int64) int {
	var total int64
	for ms := range longest + 1 {
		total += times(ms)
	}
	if total == 0 {
		return -1
	}
	left := int64(math.Ceil(q * float64(total)))
	for ms := range longest + 1 {
		if left -= times(ms); left <= 0 && times(ms) > 0 {
			return ms
		}
	}
	return longest
}

// Add adds what others have counted.
func (c Counts) Add(other Counts) {
	for ms, n := range other {
		c[ms] += n
	}
}

// longest is the longest time that is told apart, in ms.
const longest = 60_000

// A clock counts times that were measured. Safe for concurrent use.
type clock struct {
	all    [longest + 1]atomic.Int64
	before [longest + 1]int64 // as lately told them; one goroutine's
}

func (c *clock) add(d time.Duration) {
	c.all[min(max(d.Milliseconds(), 0), longest)].Add(1)
}

// lately is the 95th percentile of what was added since it was called last; -1 without
// any. For one goroutine.
func (c *clock) lately() int {
	added := make([]int64, longest+1)
	for ms := range c.all {
		n := c.all[ms].Load()
		added[ms], c.before[ms] = n-c.before[ms], n
	}
	return quantile(0.95, func(ms int) int64 { return added[ms] })
}

func (c *clock) counts() Counts {
	all := make(Counts)
	for ms := range c.all {
		if n := c.all[ms].Load(); n > 0 {
			all[ms] = n
		}
	}
	return all
}

// A tally is what the players of this process count together.
type tally struct {
	freezes                         atomic.Int64
	refused, solved, turned, faults atomic.Int64
	impatient, drops                atomic.Int64
	longest                         atomic.Int64 // ns
	boards, sights, waits           clock
}

// second is what of it is told once a second. For one goroutine.
func (t *tally) second() Second {
	return Second{
		Refused: t.refused.Load(), Solved: t.solved.Load(), Turned: t.turned.Load(), Faults: t.faults.Load(),
		BoardP95: t.boards.lately(), WaitP95: t.waits.lately(),
	}
}

// raise lets v not be less than that.
func raise(v *atomic.Int64, least int64) {
	for {
		before := v.Load()
		if least <= before || v.CompareAndSwap(before, least) {
			return
		}
	}
}

// Plus is how two crowds stand together. The slower one's times count.
func (s Second) Plus(o Second) Second {
	return Second{
		At: max(s.At, o.At), Waiting: s.Waiting + o.Waiting, Playing: s.Playing + o.Playing, Streams: s.Streams + o.Streams,
		Throttled: s.Throttled + o.Throttled, Frozen: s.Frozen + o.Frozen, Refused: s.Refused + o.Refused,
		Freezes: s.Freezes + o.Freezes, Solved: s.Solved + o.Solved, Turned: s.Turned + o.Turned, Faults: s.Faults + o.Faults,
		BoardP95: max(s.BoardP95, o.BoardP95), WaitP95: max(s.WaitP95, o.WaitP95), Version: max(s.Version, o.Version),
	}
}

// Add adds another crowd's report. The maps of r must have been made.
func (r *Report) Add(o *Report) {
	r.Last = r.Last.Plus(o.Last)
	r.Joined, r.Longest = r.Joined+o.Joined, max(r.Longest, o.Longest)
	r.Boards.Add(o.Boards)
	r.Sights.Add(o.Sights)
	r.Waits.Add(o.Waits)
	r.Impatient, r.Missing = r.Impatient+o.Impatient, r.Missing+o.Missing
	r.Drops, r.Unread = r.Drops+o.Drops, r.Unread+o.Unread
}
