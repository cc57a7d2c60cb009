package eventlog

import (
	"slices"
	"time"

	"downlink/internal/event"
)

// Figures of the contract.
const (
	// NotesKept is how long the notes of removed entries are kept.
	NotesKept = 7 * 24 * time.Hour
	// MaxBreaks is how many breaks a shard remembers; older ones are merged
	// to the side of caution.
	MaxBreaks = 16
	// ReachSlack is how far into the future (by the log's clock) a break
	// reaches at most. An ID beyond it is ahead of any sane log anyway.
	ReachSlack = time.Hour
)

// State is what a shard's record says, read in one atomic look.
type State struct {
	Head    event.ID // the last ID issued; Founded in a shard without entries
	Swept   event.ID // the highest ID that sweeping has removed
	Since   event.ID // the notes are complete for cursors from here on
	Founded event.ID // the head when the record was begun; another one means another record
	Breaks  []Break  // oldest first, at most MaxBreaks
}

// A Break is a moment at which part of the log was lost, or may have been.
type Break struct {
	// Boundary was the head right after it, an ID that no device had before:
	// cursors from before are in doubt.
	Boundary event.ID
	// Reach is the highest ID that was given out on the lost branch. IDs in
	// (Boundary, Reach] may be of either branch; those that the log holds are of this one.
	Reach event.ID
	// Reason is LogRewound or LogUncertain; or WindowExpired where someone has
	// deleted entries between others, Boundary being the last of them.
	Reason event.Reason
	// Gap says that nothing up to Boundary is in doubt: the IDs in
	// (Boundary, Reach] are simply none that this log ever gave out. A log
	// that issues its own IDs notes one at each start: in a directory that was
	// restored from an older copy, the cursors of the lost time lie there.
	Gap bool
}

// covers reports whether a cursor is in doubt because of the break.
func (b Break) covers(cursor event.ID, held bool) bool {
	if cursor.Less(b.Boundary) {
		return !b.Gap
	}
	return cursor != b.Boundary && cursor.Compare(b.Reach) <= 0 && !held
}

// Covers reports whether a break already puts a cursor in doubt that the log
// doesn't hold, so that nobody needs to record it again.
func (s State) Covers(cursor event.ID) bool {
	for _, b := range s.Breaks {
		if b.covers(cursor, false) {
			return true
		}
	}
	return false
}

// Judge is the one rule by which a cursor is served (docs/protocol.md, Cursors). held says
// that the log holds that very entry; noted is the highest removed ID for any
// of the device's targets. The empty reason means: nothing is missing.
//
// "Greater than the first ID" is no proof: after a failover that lost its
// tail, new IDs soon pass a cursor of the lost branch.
func (s State) Judge(cursor event.ID, held bool, noted event.ID) event.Reason {
	if s.Head.Less(cursor) {
		return event.LogRewound
	}
	for _, b := range s.Breaks {
		if b.covers(cursor, held) {
			return b.Reason
		}
	}
	switch {
	case held || cursor == s.Head: // nothing was issued after the head
		return ""
	case cursor.Less(s.Since):
		return event.WindowExpired
	case s.Swept.Less(cursor) && cursor != s.Since:
		return event.LogRewound // an ID that this log never held, or no longer knows
	case cursor.Less(noted):
		return event.WindowExpired
	}
	return ""
}

// AddBreak remembers a break, drops those that Since has overtaken, and merges
// the oldest when there are too many. It leaves other copies of s alone.
func (s *State) AddBreak(b Break) {
	kept := s.Breaks[:0:0]
	for _, old := range append(slices.Clip(s.Breaks), b) {
		past := event.Max(old.Boundary, old.Reach)
		if past.Compare(s.Since) <= 0 && past.Compare(s.Swept) <= 0 && old != b {
			continue
		}
		kept = append(kept, old)
	}
	for len(kept) > MaxBreaks {
		kept[1] = merge(kept[0], kept[1])
		kept = kept[1:]
	}
	s.Breaks = kept
}

// merge covers what a or the later b covers, except b's boundary, which was a
// head of this branch.
func merge(a, b Break) Break {
	m := Break{Boundary: event.Max(a.Boundary, b.Boundary), Reach: event.Max(a.Reach, b.Reach), Reason: b.Reason}
	switch {
	case a.Gap && b.Gap: // doubts the IDs between the two that aren't held
		m.Gap, m.Boundary = true, minID(a.Boundary, b.Boundary)
	case b.Gap: // the gap's boundary says nothing of what came before it
		m.Boundary = a.Boundary
	case a.Gap:
		m.Boundary = b.Boundary
	}
	if a.Reason == event.LogRewound {
		m.Reason = a.Reason // the stronger word
	}
	return m
}

func minID(a, b event.ID) event.ID {
	if a.Less(b) {
		return a
	}
	return b
}
