package shard

import (
	"strings"

	"downlink/internal/event"
)

// A View is a member as people see it.
type View struct {
	Subscriber Subscriber
	Groups     []string // without prefix
	State      string   // live, stalled, queued or lapping: docs/architecture.md, Words
	Missing    int      // messages in the hot window that it is still to be offered
	Oldest     event.ID // of those; zero without
	// Older says that it stands before the hot window: only the log knows what
	// else there is for it.
	Older bool
}

// Look shows a device's members, the latest first, and the shard's position.
func (s *Shard) Look(device string) (members []View, position event.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for m := s.devices[device]; m != nil; m = m.sibling {
		members = append(members, s.viewLocked(m))
	}
	return members, s.pos
}

// Number is the shard's place in the log.
func (s *Shard) Number() int { return s.number }

func (s *Shard) viewLocked(m *Member) View {
	v := View{Subscriber: m.sub, State: m.state.String()}
	for _, g := range m.groups {
		v.Groups = append(v.Groups, strings.TrimPrefix(g, event.GroupPrefix))
	}
	if m.state == live {
		return v
	}
	v.Older = m.read.Less(s.hot.floor)
	var room [4]*Message
	walk := s.hot.after(m.read, m, room[:0])
	for next := walk.peek(); next != nil; next = walk.peek() {
		walk.pop()
		if next.needless() {
			continue
		}
		if v.Missing++; v.Missing == 1 {
			v.Oldest = next.ID
		}
	}
	return v
}

func (s state) String() string {
	switch s {
	case live:
		return "live"
	case stalled:
		return "stalled"
	case queued:
		return "queued"
	case lapping:
		return "lapping"
	default:
		return "gone"
	}
}
