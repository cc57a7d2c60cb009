package chaos

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"downlink/internal/event"
)

// slack is how long after a fault is mended its consequences may show: the
// watchdogs look every 2 s, a gateway that was frozen reports late, resyncs are
// paced.
const slack = 15 * time.Second

// An incident is a fault that may cost devices something.
type incident struct {
	kind    string
	reasons []event.Reason       // that devices may be told
	loses   bool                 // events may be gone, and be stored anew by a repeat
	keeps   bool                 // but none that was acknowledged
	expired bool                 // only cursors that are older than the window are in doubt
	shard   int                  // the one that it concerns; -1: all
	from    time.Duration        // of the run
	until   time.Duration        // when it was mended; forever as long as it lasts
	known   time.Duration        // when the last gateway could know of it, if that is later
	told    map[int]string       // by shard: one device that was told log-rewound
	spared  func(shard int) bool // said afterwards: nothing of that shard can be lost
}

const forever = 1000 * time.Hour

func (i *incident) concerns(shard int) bool { return i.shard == -1 || i.shard == shard }

// A chronicle holds what happened in a run, and by that says what is justified.
// Safe for concurrent use.
type chronicle struct {
	window time.Duration

	mu        sync.Mutex
	incidents []*incident
	faults    []string // what the product did wrong
	stored    map[int][]holding
}

// A holding is an entry that the log said it holds.
type holding struct {
	id event.ID
	at time.Duration
}

func newChronicle(window time.Duration) *chronicle {
	return &chronicle{window: window, stored: make(map[int][]holding)}
}

// open notes that a fault begins, before it strikes.
func (c *chronicle) open(i *incident, now time.Duration) *incident {
	c.mu.Lock()
	defer c.mu.Unlock()
	i.from, i.until, i.known, i.told = now, forever, 0, make(map[int]string)
	c.incidents = append(c.incidents, i)
	return i
}

// close notes that a fault is mended.
func (c *chronicle) close(i *incident, now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i.until = now
}

// blind notes that a gateway couldn't see the log for a while, until now: it
// tells devices late what has happened meanwhile, those too that have come since.
func (c *chronicle) blind(from, now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, i := range c.incidents {
		if i.until >= from-5*time.Second { // it may not have looked yet
			i.known = now
		}
	}
}

// spare says, after the fact, which shards can't have lost anything by an
// incident: whoever was told so there was told without need.
func (c *chronicle) spare(i *incident, spared func(shard int) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i.spared = spared
	for shard, device := range i.told {
		if spared(shard) {
			c.faultLocked("%s: unjustified resync log-rewound: %s lost nothing in shard %d", device, i.kind, shard)
		}
	}
}

// excuses reports whether a device whose cursor is from the time since may be
// told a reason now. A cursor from after a fault is never in doubt because of it.
func (c *chronicle) excuses(device string, shard int, reason event.Reason, since, now time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, i := range c.incidents {
		if !i.concerns(shard) || !slices.Contains(i.reasons, reason) || now < i.from || since > max(i.until, i.known)+slack {
			continue
		}
		if i.expired && now-since < c.window {
			continue
		}
		if reason == event.LogRewound && i.spared != nil && i.spared(shard) {
			continue
		}
		if reason == event.LogRewound {
			i.told[shard] = device
		}
		return true
	}
	return false
}

// lost reports whether an event that was sent at a time, and perhaps
// acknowledged, may be gone.
func (c *chronicle) lost(shard int, sent, now time.Duration, acked bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.incidents, func(i *incident) bool {
		return i.loses && !(i.keeps && acked) && i.concerns(shard) && i.from <= now && sent <= i.until+slack &&
			(i.spared == nil || !i.spared(shard))
	})
}

// hold notes that an entry was acknowledged or delivered.
func (c *chronicle) hold(shard int, id event.ID, now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := append(c.stored[shard], holding{id, now})
	if len(all) > 4096 {
		all = slices.DeleteFunc(all, func(h holding) bool { return h.at < now-10*time.Second })
	}
	c.stored[shard] = all
}

// heldSince lists what a shard should hold of a time on.
func (c *chronicle) heldSince(shard int, from time.Duration) (ids []event.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.stored[shard] {
		if h.at >= from {
			ids = append(ids, h.id)
		}
	}
	return ids
}

func (c *chronicle) fault(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faultLocked(format, args...)
}

func (c *chronicle) faultLocked(format string, args ...any) {
	if len(c.faults) < 1000 {
		c.faults = append(c.faults, fmt.Sprintf(format, args...))
	}
}

func (c *chronicle) found() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.faults)
}
