package publish

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"io"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// A plan collects messages into one call of the log.
type plan struct {
	shards  int
	appends []eventlog.Append
	last    map[int]int // shard -> its newest append
	entries int
	bytes   int
}

// A slot is where the result of one target of a message will be.
type slot struct {
	append, event int
	shard         int
	target        string
}

func newPlan(shards int) *plan {
	return &plan{shards: shards, last: make(map[int]int)}
}

// add plans a message and returns a slot for each of its entries, in the order
// of the answer. With an idempotency key the message gets appends of its own,
// one for each shard it touches: the key stands for all of it there.
func (p *plan) add(m *message, once *eventlog.Once) []slot {
	first := len(p.appends)
	if event.ToAll(m.targets[0]) && !m.list {
		slots := make([]slot, p.shards)
		for shard := range slots {
			slots[shard] = p.put(shard, m, m.targets[0], once, first)
		}
		return slots
	}
	slots := make([]slot, len(m.targets))
	for i, device := range m.targets {
		slots[i] = p.put(event.Shard(device, p.shards), m, device, once, first)
	}
	return slots
}

// put adds one event to the newest append of its shard if it may share that:
// events without a key share any append without one, events with a key only
// those of their own message, which start at first. An older append isn't
// looked for, because that would change the order of a device's events.
func (p *plan) put(shard int, m *message, target string, once *eventlog.Once, first int) slot {
	i, ok := p.last[shard]
	if !ok || (once == nil && p.appends[i].Once != nil) || (once != nil && i < first) {
		i = len(p.appends)
		p.appends = append(p.appends, eventlog.Append{Shard: shard, Once: once})
		p.last[shard] = i
	}
	a := &p.appends[i]
	a.Events = append(a.Events, m.event(target))
	p.entries++
	p.bytes += len(m.payload)
	return slot{append: i, event: len(a.Events) - 1, shard: shard, target: target}
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
