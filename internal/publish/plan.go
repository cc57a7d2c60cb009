package publish

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"io"
	"slices"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// A plan collects messages into one call of the log. The log may read it after
// the call has given up, so each call has its own.
type plan struct {
	shards  int
	appends []eventlog.Append
	slots   []slot
	events  []event.Event // room for the next ones
	bytes   int           // of payload
}

// A slot is where the result of one target of a message will be.
type slot struct {
	append, event int
	shard         int
	target        string
}

// newPlan has room for so many entries at once; more may come.
func newPlan(shards, room int) *plan {
	return &plan{shards: shards, appends: make([]eventlog.Append, 0, room), slots: make([]slot, 0, room), events: make([]event.Event, 0, room)}
}

// add plans a message and returns a slot for each of its entries, in the order
// of the answer.
func (p *plan) add(m *message, once *eventlog.Once) []slot {
	first := len(p.slots)
	switch {
	case event.ToAll(m.targets[0]) && !m.list:
		p.reserve(p.shards)
		for shard := range p.shards {
			p.put(shard, m, m.targets[0], once)
		}
	case once != nil && len(m.targets) > 1:
		p.group(m, once)
	default:
		p.reserve(len(m.targets))
		for _, device := range m.targets {
			p.put(event.Shard(device, p.shards), m, device, once)
		}
	}
	return p.slots[first:len(p.slots):len(p.slots)]
}

// reserve makes room for n more entries. Events that are planned stay where
// they are: appends point to them.
func (p *plan) reserve(n int) {
	if len(p.events)+n > cap(p.events) {
		p.events = make([]event.Event, 0, max(n, 2*cap(p.events)))
	}
	p.slots, p.appends = slices.Grow(p.slots, n), slices.Grow(p.appends, n)
}

// put gives an entry an append of its own.
func (p *plan) put(shard int, m *message, target string, once *eventlog.Once) {
	p.reserve(1)
	n := len(p.events)
	p.events = append(p.events, m.event(target))
	p.slots = append(p.slots, slot{append: len(p.appends), shard: shard, target: target})
	p.appends = append(p.appends, eventlog.Append{Shard: shard, Events: p.events[n : n+1 : n+1], Once: once})
	p.bytes += len(m.payload)
}

// group makes one append for each shard that a message with an idempotency key
// touches: the key stands for all of the message there.
func (p *plan) group(m *message, once *eventlog.Once) {
	places := make(map[int]int) // shard -> its append
	for _, device := range m.targets {
		shard := event.Shard(device, p.shards)
		i, ok := places[shard]
		if !ok {
			places[shard] = len(p.appends)
			p.put(shard, m, device, once)
			continue
		}
		a := &p.appends[i]
		p.slots = append(p.slots, slot{append: i, event: len(a.Events), shard: shard, target: device})
		a.Events = append(a.Events, m.event(device))
		p.bytes += len(m.payload)
	}
}

// once is the condition under which a message with an idempotency key is
// stored; nil without one.
func (m *message) once(scope string) *eventlog.Once {
	if m.idem == "" {
		return nil
	}
	return &eventlog.Once{Scope: scope, Key: m.idem, Fingerprint: m.fingerprint()}
}

// fingerprint tells messages under one key apart. The trace isn't part of it:
// a retry belongs to another span and is the same message all the same.
func (m *message) fingerprint() string {
	h := sha256.New()
	put := func(s string) {
		// The length first, so that no two lists of texts look alike.
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(s)))
		_, _ = h.Write(n[:])        // a hash takes everything
		_, _ = io.WriteString(h, s) // a hash takes everything
	}
	for _, t := range m.targets {
		put(t)
	}
	put(m.typ)
	put(m.payload)
	put(m.key)
	return hex.EncodeToString(h.Sum(nil)[:16])
}
