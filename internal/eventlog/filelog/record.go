package filelog

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// A record is what a shard remembers beside its entries and notes. Its JSON is
// a stored format: a changed name is a new formatVersion. Slices are never
// changed in place, so that a copy is a snapshot.
type record struct {
	Founded event.ID
	Since   event.ID
	Swept   event.ID
	Breaks  []eventlog.Break `json:",omitempty"`
	Marks   []mark           `json:",omitempty"` // of the head, oldest first
	Days    []mark           `json:",omitempty"` // of Swept, oldest first
}

// A mark is where the head, or Swept, stood at a moment.
type mark struct {
	At uint64 // ms of the log's clock
	ID event.ID
}

// Bounds of the lists. A clock that jumps about could fill them; dropping the
// oldest mark only keeps entries and notes for longer.
const (
	maxMarks = 128
	maxDays  = 16
	day      = 24 * time.Hour
)

func newRecord(now uint64) record {
	founded := event.ID{Ms: now}
	return record{Founded: founded, Since: founded, Swept: founded}
}

func (r record) state(head event.ID) eventlog.State {
	return eventlog.State{Head: head, Swept: r.Swept, Since: r.Since, Founded: r.Founded, Breaks: r.Breaks}
}

// floor is the highest ID that the record itself knows as given out: Swept is
// the head of an emptied shard, and a break's boundary an ID without an entry.
func (r record) floor() event.ID {
	highest := event.Max(r.Swept, r.Founded)
	for _, b := range r.Breaks {
		if !b.Gap {
			highest = event.Max(highest, b.Boundary)
		}
	}
	return highest
}

func (r record) encode() []byte {
	b, err := json.Marshal(r)
	if err != nil { // no value of these types fails
		panic(err)
	}
	return b
}

func decodeRecord(b []byte) (record, error) {
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return record{}, fmt.Errorf("%w: shard record: %w", errCorrupt, err)
	}
	return r, nil
}

// withBreak returns the record with one more break.
func (r record) withBreak(head event.ID, b eventlog.Break) record {
	s := r.state(head)
	s.AddBreak(b)
	r.Breaks = s.Breaks
	return r
}

// opened notes the IDs between the head and now: this directory never gave them
// out. If it was restored from an older copy, the devices' cursors of the lost
// time are among them. It returns the ID above which new ones must lie.
func (r record) opened(head event.ID, now uint64) (record, event.ID) {
	if now == 0 {
		return r, head
	}
	reach := event.ID{Ms: now - 1, Seq: math.MaxUint64}
	if !head.Less(reach) {
		return r, head
	}
	gap := eventlog.Break{Boundary: head, Reach: reach, Reason: event.LogRewound, Gap: true}
	if n := len(r.Breaks); n > 0 && r.Breaks[n-1].Gap && r.Breaks[n-1].Boundary == head {
		r.Breaks = append(slices.Clone(r.Breaks[:n-1]), gap) // nothing was stored since the last start
		return r, reach
	}
	return r.withBreak(head, gap), reach
}

// addMark appends a mark unless the last one is younger than every or says the
// same. A last mark from the future is one of a clock that has gone back since.
func addMark(marks []mark, m mark, every time.Duration, most int) (list []mark, added bool) {
	if n := len(marks); n > 0 {
		last := marks[n-1]
		if last.ID == m.ID || (m.At >= last.At && m.At-last.At < millis(every)) {
			return marks, false
		}
	}
	marks = append(slices.Clip(marks), m)
	return marks[max(0, len(marks)-most):], true
}

// due is the newest mark that is at least age old, or the zero ID. Marks stand
// in the order in which they were made: whatever the clock did, what stands
// before a mark is older than it.
func due(marks []mark, now uint64, age time.Duration) event.ID {
	for _, m := range slices.Backward(marks) {
		if now >= m.At && now-m.At >= millis(age) {
			return m.ID
		}
	}
	return event.ID{}
}

// dropMarks drops those that don't lie above id.
func dropMarks(marks []mark, id event.ID) []mark {
	i := 0
	for i < len(marks) && marks[i].ID.Compare(id) <= 0 {
		i++
	}
	return marks[i:]
}

func millis(d time.Duration) uint64 { return uint64(d.Milliseconds()) }
