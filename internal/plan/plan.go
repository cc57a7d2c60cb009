// Package plan owns the arithmetic behind the choice of how to reach devices:
// three questions and where each answer leads, and what a change of a ring's
// size costs. It asks no server anything. Its invariant: a figure it gives for
// moves was counted, device by device, with the very functions that the gateway
// uses.
package plan

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"downlink/internal/event"
	"downlink/internal/ring"
)

// A Change is what is asked: what does it cost to go from Members to Members +
// Add or Members - Remove?
type Change struct {
	Members, Add, Remove int           // exactly one of Add and Remove isn't 0
	Devices              int           // 1 to 10 million, spread by their names: device-0 and so on
	Shards               int           // of the log
	TTL                  time.Duration // of leases and membership (lease_ttl)
	DialsPerSecond       int           // of each member (dials_per_second)
	Dial                 time.Duration // one dial, from its beginning to the device's hello
}

// Bounds of what can be asked: far over what makes sense, and soon computed.
const (
	maxMembers = 1000
	maxDevices = 10_000_000
	maxShards  = 4096
)

// Validate returns all that is wrong.
func (c Change) Validate() error {
	var wrong []error
	check := func(ok bool, text string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Errorf(text, args...))
		}
	}
	check(c.Members >= 1 && c.Members <= maxMembers, "members is %d: it must be 1 to %d", c.Members, maxMembers)
	check(c.Add >= 0 && c.Remove >= 0 && (c.Add == 0) != (c.Remove == 0), "say how the fleet changes: add N members, or remove N, and not both")
	check(c.Add <= maxMembers, "add is %d: it must be at most %d", c.Add, maxMembers)
	check(c.Remove < max(c.Members, 1), "remove is %d: of %d members at least one must stay", c.Remove, c.Members)
	check(c.Devices >= 1 && c.Devices <= maxDevices, "devices is %d: it must be 1 to %d", c.Devices, maxDevices)
	check(c.Shards >= 1 && c.Shards <= maxShards, "shards is %d: it must be 1 to %d", c.Shards, maxShards)
	check(c.TTL >= time.Second && c.TTL <= time.Hour, "ttl is %v: it must be 1s to 1h", c.TTL)
	check(c.DialsPerSecond >= 1, "dials-per-second is %d: it must be at least 1", c.DialsPerSecond)
	check(c.Dial >= 0 && c.Dial <= time.Hour, "dial is %v: it must be 0s to 1h", c.Dial)
	return errors.Join(wrong...)
}

// A Plan is what a change costs. Durations are in seconds.
type Plan struct {
	Members int     `json:"members"`
	After   int     `json:"after"`
	Devices int     `json:"devices"`
	Shards  int     `json:"shards"`
	TTL     float64 `json:"ttl_s"`
	Rate    int     `json:"dials_per_second"`
	Dial    float64 `json:"dial_s"`

	Ideal  int  `json:"ideal_moves"` // the fair share of who comes or goes, in devices
	Hash   Cost `json:"hash"`        // hash % members, device by device
	Static Cost `json:"static"`      // shard % members, as --owner static has it
	Ring   Cost `json:"ring"`

	// Crash is one of Members that vanishes, under the ring; nil if there is only
	// one. Under hash % members its devices wait until it is back.
	Crash *Cost `json:"crash"`

	PerShard  Renewals `json:"lease_per_shard"`
	PerDevice Renewals `json:"lease_per_device"`
}

// A Cost is what it takes until every device has its connection again.
type Cost struct {
	Moved    int     `json:"moved_devices"`
	Shards   int     `json:"moved_shards"`     // 0 where devices move one by one
	Diallers int     `json:"dialling_members"` // that have something to dial
	Wave     int     `json:"largest_wave"`     // most devices that one of them has to dial
	WaveS    float64 `json:"largest_wave_s"`   // how long that takes it
	Without  float64 `json:"longest_without_connection_s"`
}

// Renewals is what keeping leases asks of Redis, per second.
type Renewals struct {
	Leases   int     `json:"leases"`
	Renewals float64 `json:"renewals_per_second"`
}

// What package lease does within a TTL: it renews every third of it, and looks
// every fifteenth. A crash shows within one look, must stand for a fifth, and is
// acted on with the next look. A shard that is let go of is taken within two.
const (
	renewals = 3
	detect   = 3
	looks    = 15
)

// Ring computes what a change costs.
func Ring(c Change) (Plan, error) {
	if err := c.Validate(); err != nil {
		return Plan{}, err
	}
	after := c.Members + c.Add - c.Remove
	devices := devicesByShard(c.Devices, c.Shards)
	p := Plan{
		Members: c.Members, After: after, Devices: c.Devices, Shards: c.Shards,
		TTL: c.TTL.Seconds(), Rate: c.DialsPerSecond, Dial: c.Dial.Seconds(),
		Ideal:     c.Devices * (max(c.Members, after) - min(c.Members, after)) / max(c.Members, after),
		PerShard:  c.renewals(c.Shards),
		PerDevice: c.renewals(c.Devices),
	}
	p.Hash = c.cost(hashWaves(c.Devices, c.Members, after), 0)
	p.Static = c.static(after, devices)
	fleet := settled(c.Members, c.Shards)
	moves := func(members []string, before time.Duration) Cost {
		owners := ring.Owners(members, fleet)
		cost := c.cost(ringWaves(fleet, owners, devices), before)
		cost.Shards = moved(fleet, owners)
		return cost
	}
	p.Ring = moves(names(after), 2*c.TTL/looks)
	if c.Members > 1 {
		crash := moves(names(c.Members-1), c.TTL+c.TTL/detect)
		p.Crash = &crash
	}
	return p, nil
}

func (c Change) renewals(leases int) Renewals {
	return Renewals{Leases: leases, Renewals: float64(leases) * renewals / c.TTL.Seconds()}
}

// cost sums up waves, the devices that each member has to dial, which lost their
// connection so long before the first dial.
func (c Change) cost(waves []int, before time.Duration) Cost {
	var cost Cost
	for _, n := range waves {
		cost.Moved += n
		cost.Wave = max(cost.Wave, n)
		if n > 0 {
			cost.Diallers++
		}
	}
	cost.WaveS = float64(cost.Wave) / float64(c.DialsPerSecond)
	if cost.Moved > 0 {
		cost.Without = (before + c.Dial).Seconds() + cost.WaveS
	}
	return cost
}

// device is the name of one of the devices that a plan is made for.
func device(i int) string { return "device-" + strconv.Itoa(i) }

// names are those of n members.
func names(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = "dial-" + strconv.Itoa(i)
	}
	return all
}

func devicesByShard(devices, shards int) []int {
	count := make([]int, shards)
	for i := range devices {
		count[event.Shard(device(i), shards)]++
	}
	return count
}

// hashWaves counts, for each member, the devices that come to it.
func hashWaves(devices, before, after int) []int {
	waves := make([]int, after)
	for i := range devices {
		if to := event.Shard(device(i), after); to != event.Shard(device(i), before) {
			waves[to]++
		}
	}
	return waves
}

// static is what the same change costs without a ring.
func (c Change) static(after int, devices []int) Cost {
	waves := make([]int, after)
	shards := 0
	for shard, n := range devices {
		if to := shard % after; to != shard%c.Members {
			waves[to] += n
			shards++
		}
	}
	cost := c.cost(waves, 0)
	cost.Shards = shards
	return cost
}

// settled is a ring whose members came one after the other.
func settled(members, shards int) []ring.Shard {
	fleet := make([]ring.Shard, shards)
	for n := range members {
		for i, owner := range ring.Owners(names(n+1), fleet) {
			if owner != fleet[i].Owner {
				fleet[i] = fleet[i].Taken(owner, uint64(n)+1)
			}
		}
	}
	return fleet
}

// ringWaves counts, for each member that gets any, the devices that come to it.
func ringWaves(fleet []ring.Shard, owners []string, devices []int) []int {
	to := make(map[string]int)
	for i, owner := range owners {
		if owner != fleet[i].Owner {
			to[owner] += devices[i]
		}
	}
	return slices.Collect(maps.Values(to))
}

func moved(fleet []ring.Shard, owners []string) int {
	n := 0
	for i, owner := range owners {
		if owner != fleet[i].Owner {
			n++
		}
	}
	return n
}
