package shard

import (
	"math"
	"strings"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// A topic is a conflation key of one target: of its events only the newest
// matters to whoever hasn't got them yet. The same key for another target is
// another topic, because not everybody who gets the one gets the other. Its name
// never changes.
type topic struct {
	topicName
	newest event.ID // of the hot window, guarded by the shard's mutex; or of a lap's page
}

type topicName struct{ target, key string }

// topicBytes is what a topic costs beside its texts, with its place in the map.
// Measured (TestHotWindowIsCountedTruly).
const topicBytes = 168

// size is about what the topic costs in memory, in bytes.
func (t *topic) size() int { return topicBytes + len(t.target) + len(t.key) }

// topics are those of a row of entries.
type topics map[topicName]*topic

// keyOf is an entry's conflation key. One that is told to nobody, or otherwise
// than it was meant, takes no other's place.
func keyOf(e *eventlog.Entry) string {
	if e.Fault != "" {
		return ""
	}
	return e.Event.Key
}

// at finds or makes a topic.
func (t topics) at(target, key string) (found *topic, made bool) {
	name := topicName{target, key}
	if found = t[name]; found != nil {
		return found, false
	}
	// It outlives the entry, whose texts may be parts of something larger.
	name = topicName{strings.Clone(target), strings.Clone(key)}
	found = &topic{topicName: name}
	t[name] = found
	return found, true
}

// topicsOf are those of a page, nil if none of its entries has a key.
func topicsOf(entries []eventlog.Entry) topics {
	var all topics
	for i := range entries {
		e := &entries[i]
		key := keyOf(e)
		if key == "" {
			continue
		}
		if all == nil {
			all = make(topics)
		}
		t, _ := all.at(e.Event.Target, key)
		t.newest = e.ID
	}
	return all
}

// pastLocked is the topic of an entry in a page, nil without a key, and whether a
// newer event of it is known, in the page or in the hot window: whoever reads on
// gets that one.
func (s *Shard) pastLocked(e *eventlog.Entry, page topics) (t *topic, needless bool) {
	if page == nil || keyOf(e) == "" {
		return nil, false
	}
	name := topicName{e.Event.Target, e.Event.Key}
	t = page[name]
	newest := t.newest
	if hot := s.hot.topics[name]; hot != nil {
		newest = event.Max(newest, hot.newest)
	}
	return t, e.ID.Less(newest)
}

// needless reports whether a newer event of the message's topic is known. Call it
// under the mutex of the shard whose hot window holds the message.
func (m *Message) needless() bool { return m.topic != nil && m.ID.Less(m.topic.newest) }

// Keyed reports whether the event has a conflation key.
func (m *Message) Keyed() bool { return m.topic != nil }

// Replaces reports whether who gets m has no use for an older message any more:
// both are for the same target and have the same conflation key. Safe for
// concurrent use.
func (m *Message) Replaces(older *Message) bool {
	a, b := m.topic, older.topic
	return a != nil && b != nil && (a == b || a.topicName == b.topicName) && older.ID.Less(m.ID)
}

// conflated counts a message that a member is spared: it was given back for a newer
// one, or one is still to come.
func (s *Shard) conflated(m *Member) {
	s.opts.Metrics.Conflated.Inc()
	if m.spared < math.MaxUint32 {
		m.spared++
	}
}

// Spared is how many messages the member wasn't offered, or gave back, because
// newer ones of their conflation keys made them needless; at most what the type
// can hold.
func (m *Member) Spared() uint32 {
	m.shard.mu.Lock()
	defer m.shard.mu.Unlock()
	return m.spared
}
