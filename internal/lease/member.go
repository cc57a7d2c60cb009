package lease

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"downlink/internal/backoff"
	"downlink/internal/eventlog"
)

// A Member is this gateway's part in the ring. Lease, Status and Outranked are
// safe for concurrent use.
type Member struct {
	// Set at construction.
	opts    Options
	who     eventlog.Claimant
	tick    time.Duration
	groups  []*group
	groupOf []*group // by shard

	// For everybody.
	leases []atomic.Pointer[Lease] // by shard; nil: none
	seen   []atomic.Uint64         // by shard: the highest generation that a device has named
	status atomic.Pointer[Status]

	// How calls come back: Run runs what they leave here.
	calls sync.WaitGroup
	back  chan func()

	// Owned by Run.
	shards   []shard
	view     view
	presence presence
	joined   bool
	away     int // how many calls in turn fail just now: the groups' and the members'
	leaving  bool
	exit     exit
	lets     context.Context // of Let
	endLets  context.CancelFunc
	failure  error
}

// A group is the shards that one call can be about.
type group struct {
	shards []int
	asked  bool      // a call is under way
	away   bool      // the last one failed
	due    time.Time // when the leases are to be renewed
	next   time.Time // nothing is asked before
	hurry  bool      // something is to be released: don't wait for next
}

// New makes a member; Run lets it join.
func New(o Options) (*Member, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	m := &Member{
		opts: o, who: eventlog.Claimant{Name: o.Name, Nonce: newNonce(), TTL: o.TTL}, tick: o.TTL / 15,
		groupOf: make([]*group, o.Shards),
		leases:  make([]atomic.Pointer[Lease], o.Shards),
		seen:    make([]atomic.Uint64, o.Shards),
		back:    make(chan func()),
		shards:  make([]shard, o.Shards),
		view:    newView(o.Shards),
	}
	for i := range m.shards {
		m.shards[i].index = i
	}
	for _, shards := range o.Keeper.Groups() {
		g := &group{shards: shards}
		m.groups = append(m.groups, g)
		for _, i := range shards {
			if i >= o.Shards {
				return nil, fmt.Errorf("the log has a shard %d: the member was told of %d shards", i, o.Shards)
			}
			m.groupOf[i] = g
		}
	}
	m.lets, m.endLets = context.WithCancel(context.Background())
	m.publish()
	return m, nil
}

// newNonce tells this process from every other.
func newNonce() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// Lease is the shard's lease, if it is ours. It may have run out: see Live.
func (m *Member) Lease(shard int) (Lease, bool) {
	if l := m.leases[shard].Load(); l != nil {
		return *l, true
	}
	return Lease{}, false
}

// Outranked tells that a device of the shard has refused us because it has seen
// a higher generation. If the shard is ours for the keeper too, its generation
// is raised over that one soon, and Took is called; otherwise we are about to
// learn that it isn't. A generation from the future is a mistake, and ignored.
func (m *Member) Outranked(shard int, generation uint64) {
	if generation > uint64(time.Now().Add(time.Hour).UnixMilli()) {
		return
	}
	for was := m.seen[shard].Load(); was < generation; was = m.seen[shard].Load() {
		if m.seen[shard].CompareAndSwap(was, generation) {
			return
		}
	}
}

func (m *Member) metrics() *Metrics { return m.opts.Metrics }

// Run joins and keeps what is proposed, until ctx ends. Then it leaves in
// order: says so, lets go of every shard, releases each lease, and is a member
// no more. It returns when Let has returned for every shard, within
// Options.Leave if Let obeys its context; ErrNameTaken if another process has
// our name.
func (m *Member) Run(ctx context.Context) error {
	defer m.over()
	ticker := time.NewTicker(m.tick)
	defer ticker.Stop()
	done, haste := ctx.Done(), m.opts.Haste
	for !m.exit.over {
		m.step(time.Now())
		m.publish()
		if m.exit.over {
			break
		}
		select {
		case <-done:
			done = nil
			m.leave(time.Now())
		case <-haste:
			haste, m.exit.haste = nil, true
		case f := <-m.back:
			f()
		case <-ticker.C:
		}
	}
	m.finish()
	m.publish()
	return m.failure
}

// over frees what waits for time.
func (m *Member) over() {
	m.endLets()
	if m.exit.late != nil {
		m.exit.late.Stop()
	}
}

// finish waits for calls that are still under way.
func (m *Member) finish() {
	go func() {
		m.calls.Wait()
		close(m.back)
	}()
	for f := range m.back {
		f()
	}
}

// step does what is due.
func (m *Member) step(now time.Time) {
	m.lapse(now)
	m.depart(now)
	m.move(now)
	m.meet(now)
	for _, g := range m.groups {
		m.consult(g, now)
	}
}

// lapse notes which leases have run out.
func (m *Member) lapse(now time.Time) {
	n := 0
	for i := range m.shards {
		s := &m.shards[i]
		if l, ok := m.Lease(i); ok && !s.lapsed && !l.Live(now) {
			s.lapsed = true
			m.count(LossExpired)
			n++
		}
	}
	if n > 0 {
		m.opts.Logger.Warn("leases have run out: no event is written until they are renewed; connections stay", "shards", n)
	}
}

// move lets go of shards that are proposed to others, a few at a time.
func (m *Member) move(now time.Time) {
	if m.leaving {
		return
	}
	under := 0
	for i := range m.shards {
		s := &m.shards[i]
		if !s.moved.IsZero() && now.Sub(s.moved) > m.opts.TTL {
			s.moved = time.Time{} // the other one may be gone
		}
		if s.phase == letting || s.phase == dropping || !s.moved.IsZero() {
			under++
		}
	}
	for i := range m.shards {
		s := &m.shards[i]
		if to := m.view.proposed[i]; s.phase == held && under < m.opts.Moves &&
			to != m.who.Name && to != "" && m.view.standing(i, m.opts.Settle) {
			under++
			m.lose(s, LossMoved)
		}
	}
}

// consult asks about the shards of a group, if it is time.
func (m *Member) consult(g *group, now time.Time) {
	if g.asked || now.Before(g.next) && !g.hurry {
		return
	}
	due := !now.Before(g.due)
	asks := make([]eventlog.LeaseAsk, len(g.shards))
	for k, i := range g.shards {
		asks[k] = m.ask(&m.shards[i])
		due = due || m.pressing(&asks[k])
	}
	if !due {
		return
	}
	g.asked, g.hurry = true, false
	m.calls.Go(func() {
		ctx, cancel := m.brief()
		defer cancel()
		sent := time.Now() // before it is sent: the lease must end here first
		states, err := m.opts.Keeper.Leases(ctx, m.who, asks)
		m.back <- func() { m.consulted(g, sent, asks, states, err) }
	})
}

// brief bounds one call.
func (m *Member) brief() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), m.opts.TTL/5)
}

// consulted takes over an answer.
func (m *Member) consulted(g *group, sent time.Time, asks []eventlog.LeaseAsk, states []eventlog.LeaseState, err error) {
	g.asked, g.next = false, m.pause(sent)
	g.due = m.renewal(sent)
	for k := range states {
		if err == nil {
			err = states[k].Err
		}
	}
	if err != nil {
		g.due = time.Time{}
	}
	m.metrics().renewals[err == nil].Inc()
	m.heard(&g.away, err)
	if states == nil {
		return
	}
	// What another has taken is let go of before anything else.
	for k := range asks {
		s := &m.shards[asks[k].Shard]
		if asks[k].Want != eventlog.LeaseKeep || s.phase != held || states[k].Err != nil {
			continue
		}
		if by := takenBy(s, states[k]); by != "" {
			m.opts.Logger.Warn("another gateway has taken a shard that was ours", "shard", s.index, "owner", by)
			m.lose(s, LossTaken)
		}
	}
	for k := range asks {
		if states[k].Err != nil {
			continue
		}
		m.heed(&m.shards[asks[k].Shard], &asks[k], states[k], sent)
	}
	m.propose(time.Now())
}

// takenBy is who has had a shard since we took it, or empty. He may have given it
// back while we couldn't ask: it is ours again, with a new generation, but its
// devices have closed our connections when he greeted them.
func takenBy(s *shard, state eventlog.LeaseState) string {
	switch {
	case !state.Mine && state.Owner == "":
		return "(nobody)"
	case !state.Mine:
		return state.Owner
	case state.Since > s.held:
		return state.Was // empty if the record was lost with what it knew
	}
	return ""
}

// pause is until when nothing is asked again: a little less than a tick, so
// that the next one isn't missed by a hair.
func (m *Member) pause(sent time.Time) time.Time { return sent.Add(m.tick * 3 / 4) }

// renewal is when to renew what was renewed: TTL/3 later, but for the jitter
// and the tick that notices.
func (m *Member) renewal(sent time.Time) time.Time {
	return sent.Add(backoff.Jitter(m.opts.TTL*4/15, 0.1))
}

// heard says once when the keeper can't be asked, and once when all of it can
// again. away is of the kind of call whose answer this is.
func (m *Member) heard(away *bool, err error) {
	was := m.away
	switch {
	case err != nil && !*away:
		m.away++
	case err == nil && *away:
		m.away--
	}
	*away = err != nil
	switch {
	case was == 0 && m.away > 0:
		m.opts.Logger.Warn("leases can't be renewed; asking on. Nothing is taken, and connections stay", "error", err)
	case was > 0 && m.away == 0:
		m.opts.Logger.Info("leases can be renewed again")
	}
}

// publish makes the status that everybody sees.
func (m *Member) publish() {
	s := &Status{Name: m.who.Name, TTL: m.opts.TTL, Leaving: m.leaving, Heard: m.view.heard, Shards: make([]ShardStatus, len(m.shards))}
	for _, one := range m.view.members {
		s.Members = append(s.Members, MemberStatus(one))
	}
	ours := 0
	for i := range m.shards {
		at := &m.shards[i]
		s.Shards[i] = ShardStatus{
			Shard: i, Proposed: m.view.proposed[i], Owner: at.owner, Generation: at.generation,
			Held: at.phase == held, Letting: at.phase == letting || at.phase == dropping,
		}
		if at.owner != m.view.proposed[i] {
			s.Moving++
		}
		if at.phase == held {
			ours++
		}
	}
	m.metrics().held.Set(float64(ours))
	m.metrics().members.Set(float64(len(s.Members)))
	m.status.Store(s)
}

// Status is how this member sees leases and members now.
func (m *Member) Status() Status {
	s := *m.status.Load()
	now := time.Now()
	shards := make([]ShardStatus, len(s.Shards))
	copy(shards, s.Shards)
	for i := range shards {
		l, ok := m.Lease(i)
		shards[i].Live = ok && l.Live(now)
	}
	s.Shards = shards
	return s
}
