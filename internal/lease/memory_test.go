package lease

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"downlink/internal/eventlog"
	"downlink/internal/ring"
)

// memory is a keeper whose clock a test can hold: TestKeepers holds it to what
// Redis does. Faults are per member, by nonce.
type memory struct {
	shards int

	mu      sync.Mutex
	leases  map[int]memoryLease
	records map[int]memoryRecord
	members map[string]memoryMember
	cut     map[string]bool // neither asked nor answered
	refused map[string]bool // told so at once
	deaf    map[string]bool // asked, but never answered
	behind  time.Duration   // of its clock; only generations tell
}

type memoryLease struct {
	owner string
	ends  time.Time // zero: never
}

type memoryRecord struct {
	generation uint64
	nonce      string
	ttl        time.Duration
	past       ring.Shard
}

type memoryMember struct {
	ends    time.Time
	nonce   string
	leaving bool
}

func newMemory(shards int) *memory {
	m := &memory{shards: shards, cut: map[string]bool{}, deaf: map[string]bool{}, refused: map[string]bool{}, records: map[int]memoryRecord{}}
	m.flush()
	return m
}

// flush forgets members and leases, as a server without a file does.
func (m *memory) flush() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leases, m.members = map[int]memoryLease{}, map[string]memoryMember{}
}

func (m *memory) Groups() [][]int {
	var even, odd []int
	for i := range m.shards {
		if i%2 == 0 {
			even = append(even, i)
		} else {
			odd = append(odd, i)
		}
	}
	return [][]int{even, odd}
}

func (m *memory) fault(ctx context.Context, nonce string) error {
	if m.refused[nonce] {
		return fmt.Errorf("%w: refused", eventlog.ErrUnavailable)
	}
	if !m.cut[nonce] {
		return nil
	}
	m.mu.Unlock()
	defer m.mu.Lock()
	<-ctx.Done()
	return fmt.Errorf("%w: cut off", eventlog.ErrUnavailable)
}

func (m *memory) Leases(ctx context.Context, who eventlog.Claimant, asks []eventlog.LeaseAsk) ([]eventlog.LeaseState, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.fault(ctx, who.Nonce); err != nil {
		return nil, err
	}
	states := make([]eventlog.LeaseState, len(asks))
	for i, a := range asks {
		states[i] = m.lease(who, a)
	}
	if m.deaf[who.Nonce] {
		return nil, fmt.Errorf("%w: no answer", eventlog.ErrUnavailable)
	}
	return states, nil
}

func (m *memory) lease(who eventlog.Claimant, a eventlog.LeaseAsk) eventlog.LeaseState {
	now := time.Now()
	l, there := m.leases[a.Shard]
	if there && !l.ends.IsZero() && !now.Before(l.ends) {
		delete(m.leases, a.Shard)
		l, there = memoryLease{}, false
	}
	r := m.records[a.Shard]
	mine := there && l.owner == who.Name && (r.nonce == who.Nonce || r.nonce == "")
	switch {
	case a.Want == eventlog.LeaseDrop:
		if mine && r.generation == a.Held {
			delete(m.leases, a.Shard)
			l, mine = memoryLease{}, false
		}
	case a.Want == eventlog.LeaseKeep && mine && r.generation == a.Held && a.Floor <= a.Held:
		m.leases[a.Shard] = memoryLease{who.Name, now.Add(who.TTL)}
	case a.Want != eventlog.LeaseLook && (mine || !there):
		r.generation = max(r.generation+1, a.Held+1, a.Floor+1, uint64(now.Add(-m.behind).UnixMilli()))
		r.nonce, r.ttl, r.past = who.Nonce, who.TTL, r.past.Taken(who.Name, r.generation)
		l, mine = memoryLease{who.Name, now.Add(who.TTL)}, true
		m.records[a.Shard], m.leases[a.Shard] = r, l
	case there && !mine && (l.ends.IsZero() || l.ends.After(now.Add(max(who.TTL, r.ttl)))):
		m.leases[a.Shard] = memoryLease{l.owner, now.Add(who.TTL)}
	}
	return eventlog.LeaseState{Owner: l.owner, Generation: r.generation, Mine: mine, Last: r.past.Last, Was: r.past.Was, Since: r.past.Since}
}

func (m *memory) Members(ctx context.Context, who eventlog.Claimant, says eventlog.Presence) (eventlog.Membership, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.fault(ctx, who.Nonce); err != nil {
		return eventlog.Membership{}, err
	}
	now := time.Now()
	for name, one := range m.members {
		if !now.Before(one.ends) {
			delete(m.members, name)
		}
	}
	known, there := m.members[who.Name]
	out := eventlog.Membership{Taken: there && known.nonce != who.Nonce}
	switch {
	case out.Taken || says == eventlog.PresenceLook:
	case says == eventlog.PresenceGone:
		delete(m.members, who.Name)
	default:
		m.members[who.Name] = memoryMember{now.Add(who.TTL), who.Nonce, says == eventlog.PresenceLeaving}
	}
	for name, one := range m.members {
		out.Members = append(out.Members, eventlog.MemberState{Name: name, Leaving: one.leaving})
		out.Known = out.Known || name == who.Name && !out.Taken
	}
	slices.SortFunc(out.Members, func(a, b eventlog.MemberState) int { return slices.Compare([]string{a.Name}, []string{b.Name}) })
	if m.deaf[who.Nonce] {
		return eventlog.Membership{}, fmt.Errorf("%w: no answer", eventlog.ErrUnavailable)
	}
	return out, nil
}

// owners lists who holds what now, as far as it lasts.
func (m *memory) owners() map[int]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[int]string{}
	for i, l := range m.leases {
		if l.ends.IsZero() || time.Now().Before(l.ends) {
			out[i] = l.owner
		}
	}
	return out
}

// change lets a test do what nobody should.
func (m *memory) change(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}
