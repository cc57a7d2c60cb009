package inventory

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"downlink/internal/event"
)

// A List is what a source says.
type List struct {
	Entries []Entry
	// Used, if set, is called when the list counts: from then on Fetch may say
	// "as before" of it. What was refused is looked at again each time.
	Used func()
}

// An Entry is one device of a list, or what is wrong with it.
type Entry struct {
	Device Device // of a wrong entry the ID alone, if it has one
	Line   int    // where it stands; 0: nowhere in particular
	Err    error  // nil, or why it can't be used
}

func (e *Entry) fault(err error) error {
	what := "an entry without a usable id"
	if event.ValidateDevice(e.Device.ID) == nil {
		what = fmt.Sprintf("%q", e.Device.ID)
	}
	if e.Line > 0 {
		return fmt.Errorf("%s (line %d): %w", what, e.Line, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// A state is all devices, ordered by shard and ID. It is never changed.
type state struct {
	devices []Device
	begins  []int // of each shard, in devices; one more at the end
}

func (s *state) of(shard int) []Device { return s.devices[s.begins[shard]:s.begins[shard+1]] }

func (s *state) find(id string) (Device, bool) {
	part := s.of(event.Shard(id, len(s.begins)-1))
	i, found := slices.BinarySearchFunc(part, id, func(d Device, id string) int { return strings.Compare(d.ID, id) })
	if !found {
		return Device{}, false
	}
	return part[i], true
}

var errTwice = errors.New("it stands there twice, and nobody knows which of them counts")

// build makes a state of a list. A wrong entry is passed over, and if the device
// was known before, it stays as it was: a slip of the pen in one line must
// neither cut that device off nor keep the others from what is new. If no entry
// can be used, the list is something else, and an error.
func (v *Inventory) build(entries []Entry, before *state) (*state, []error, error) {
	byShard := make([][]Device, v.opts.Shards)
	var faults []error
	pass := func(e *Entry, err error) {
		faults = append(faults, e.fault(err))
		if before == nil || event.ValidateDevice(e.Device.ID) != nil {
			return
		}
		if d, known := before.find(e.Device.ID); known {
			i := event.Shard(d.ID, v.opts.Shards)
			byShard[i] = append(byShard[i], d)
		}
	}
	twice := doubles(entries)
	words := interned{}
	usable := 0
	for i := range entries {
		e := &entries[i]
		err := e.Err
		if err == nil {
			err = e.Device.check()
		}
		if err == nil {
			err = v.opts.Permit(e.Device.URL)
		}
		switch met, double := twice[e.Device.ID]; {
		case double && met:
			continue // named already
		case double:
			twice[e.Device.ID] = true
			pass(e, errTwice)
		case err != nil:
			pass(e, err)
		default:
			usable++
			at := event.Shard(e.Device.ID, v.opts.Shards)
			byShard[at] = append(byShard[at], v.same(e.Device, before, words))
		}
	}
	if len(faults) > 0 && usable == 0 {
		return nil, nil, fmt.Errorf("not one of its %d entries can be used; the first: %w", len(entries), faults[0])
	}
	return newState(byShard), faults, nil
}

// doubles are the IDs that stand in a list more than once.
func doubles(entries []Entry) map[string]bool {
	seen, twice := make(map[string]struct{}, len(entries)), map[string]bool{}
	for i := range entries {
		id := entries[i].Device.ID
		if _, met := seen[id]; met && id != "" {
			twice[id] = false
		}
		seen[id] = struct{}{}
	}
	return twice
}

// same is a device in as little memory as it can have: as it was before, if it
// is equal, and else free of the text that it was read from.
func (v *Inventory) same(d Device, before *state, words interned) Device {
	if before != nil {
		if old, known := before.find(d.ID); known && old.Equal(d) {
			return old
		}
	}
	d.ID, d.URL, d.Credential = strings.Clone(d.ID), strings.Clone(d.URL), words.word(d.Credential)
	for i, g := range d.Groups {
		d.Groups[i] = words.word(g)
	}
	return d
}

// interned are words that many devices share.
type interned map[string]string

func (m interned) word(w string) string {
	if known, ok := m[w]; ok {
		return known
	}
	w = strings.Clone(w)
	m[w] = w
	return w
}

func newState(byShard [][]Device) *state {
	n := 0
	for _, part := range byShard {
		n += len(part)
	}
	s := &state{devices: make([]Device, 0, n), begins: make([]int, 0, len(byShard)+1)}
	for _, part := range byShard {
		slices.SortFunc(part, func(a, b Device) int { return strings.Compare(a.ID, b.ID) })
		s.begins = append(s.begins, len(s.devices))
		s.devices = append(s.devices, part...)
	}
	s.begins = append(s.begins, len(s.devices))
	return s
}

// diff compares two states of the same shards; before may be nil.
func diff(before, after *state) Change {
	if before == nil {
		return Change{Added: slices.Clone(after.devices)}
	}
	var c Change
	for shard := range len(after.begins) - 1 {
		diffShard(&c, before.of(shard), after.of(shard))
	}
	return c
}

// diffShard walks over two ordered lists together.
func diffShard(c *Change, old, now []Device) {
	for len(old) > 0 || len(now) > 0 {
		switch {
		case len(old) == 0 || len(now) > 0 && now[0].ID < old[0].ID:
			c.Added = append(c.Added, now[0])
			now = now[1:]
		case len(now) == 0 || old[0].ID < now[0].ID:
			c.Removed = append(c.Removed, old[0])
			old = old[1:]
		default:
			if !old[0].Equal(now[0]) {
				c.Changed = append(c.Changed, now[0])
			}
			old, now = old[1:], now[1:]
		}
	}
}
