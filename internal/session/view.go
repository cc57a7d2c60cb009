package session

import (
	"time"
	"unique"

	"downlink/internal/event"
)

// Facts are what is known of a session from its beginning, for people who ask.
type Facts struct {
	Since      time.Time // whole seconds
	Expires    time.Time // of the credential, whole seconds; zero: never
	Credential string    // which kind of proof said who the device is; one of a few words
}

// Dialled is the Credential of a device that doesn't have to say who it is, because
// it is we who come to it.
const Dialled = "inventory"

// facts are Facts in the room that they may take: there are tens of thousands.
type facts struct {
	since, expires uint32 // Unix seconds, until the year 2106; expires 0: never
	credential     unique.Handle[string]
}

// Know notes the facts. Call it before Attach.
func (s *Session) Know(f Facts) {
	s.facts = facts{since: seconds(f.Since), expires: seconds(f.Expires), credential: unique.Make(f.Credential)}
}

func seconds(t time.Time) uint32 {
	if s := t.Unix(); s > 0 && s < 1<<32 {
		return uint32(s)
	}
	return 0
}

// A View is a session as people see it.
type View struct {
	Facts
	Address  string // of the peer: the device's, or of what stands before the gateway
	Protocol string
	Cursor   event.ID // what the device is known to have, or was at least written to it
	Pending  int      // events that wait for the sink
	Bytes    int      // their size in memory
	Oldest   event.ID // of what is pending; zero without
	Resync   bool     // a resync waits for the sink
	Spared   uint32   // events that newer ones of their keys made needless: shard.Member.Spared
	Ended    EndReason
	JSON     bool // see Options
}

// Device is whose session it is.
func (s *Session) Device() string { return s.device }

// Since is when it began, in whole seconds.
func (s *Session) Since() time.Time { return time.Unix(int64(s.facts.since), 0) }

// View looks at the session.
func (s *Session) View() View {
	v := View{JSON: s.opts.JSON}
	v.Address, v.Protocol = s.sink.Peer()
	v.Since = s.Since()
	if s.facts.expires > 0 {
		v.Expires = time.Unix(int64(s.facts.expires), 0)
	}
	if s.facts != (facts{}) {
		v.Credential = s.facts.credential.Value()
	}
	v.Ended = s.Ended()
	if s.member != nil {
		v.Spared = s.member.Spared() // without our lock: the shard's comes first
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v.Cursor, v.Pending, v.Bytes, v.Resync = s.cursor, len(s.pending), s.bytes, s.resync != nil
	if len(s.pending) > 0 {
		v.Oldest = s.pending[0].ID
	}
	return v
}
