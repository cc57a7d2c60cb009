package lease

import (
	"slices"
	"time"

	"downlink/internal/eventlog"
)

// A view is who is there, and what the ring makes of it. Owned by Run.
type view struct {
	members  []eventlog.MemberState // by name
	eligible []string               // those who don't leave, sorted
	heard    time.Time
	asked    time.Time   // when the keeper was asked what it last said
	patient  time.Time   // until when members may still come back that couldn't be heard
	proposed []string    // by shard; empty: nobody
	since    []time.Time // since when it counts that this is proposed
}

func newView(shards int) view {
	return view{proposed: make([]string, shards), since: make([]time.Time, shards)}
}

// meet notes who is there, and since when what the ring makes of it counts. Who
// is missing after a gap, in which nobody could say anything, may only be slow to
// come back: that counts from later on. asked is when the keeper was asked.
func (v *view) meet(asked, now time.Time, members []eventlog.MemberState, gap, later time.Duration) (since time.Time) {
	if !v.heard.IsZero() && now.Sub(v.heard) > gap {
		v.patient = now.Add(later)
	}
	var eligible, leaving []string
	for _, m := range members {
		if m.Leaving {
			leaving = append(leaving, m.Name)
		} else {
			eligible = append(eligible, m.Name)
		}
	}
	slices.Sort(eligible)
	since = now
	if !slices.Equal(eligible, v.eligible) && announced(v.eligible, eligible, leaving) {
		since = time.Time{} // no doubt: they said so
	}
	v.members, v.eligible, v.heard, v.asked = members, eligible, now, asked
	return since
}

// propose takes over what the ring proposes.
func (v *view) propose(owners []string, since time.Time) {
	if !since.IsZero() && since.Before(v.patient) {
		since = v.patient
	}
	for i, owner := range owners {
		if owner != v.proposed[i] {
			v.proposed[i], v.since[i] = owner, since
		}
	}
}

// announced reports whether all that happened is that some said that they leave.
func announced(was, is, leaving []string) bool {
	for _, name := range was {
		if !slices.Contains(is, name) && !slices.Contains(leaving, name) {
			return false
		}
	}
	for _, name := range is {
		if !slices.Contains(was, name) {
			return false
		}
	}
	return true
}

// standing reports whether the proposal for a shard has stood for so long. The clock
// alone doesn't say so: who was there the last time may have gone since, and whoever
// was held up himself knows nothing of that time. So the keeper must have been asked
// at its end.
func (v *view) standing(shard int, settle time.Duration) bool {
	return v.asked.Sub(v.since[shard]) >= settle
}
