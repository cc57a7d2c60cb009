package players

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"downlink/examples/hunt/game"
)

// A stage is how far a player has come.
type stage int32

const (
	absent stage = iota
	waiting
	playing
)

// A link is how a player's stream stands.
type link int32

const (
	none        link = iota // it begins, or has just ended
	refusedLink             // it was refused, and the player waits as he was told
	open
)

// A player is one of the crowd.
type player struct {
	crowd *crowd
	index int
	luck  *rand.Rand // of the goroutine that plays; that of the stream has its own

	token, events string // as the game said
	assigned      chan challenge

	// For all.
	stage, link atomic.Int32
	board       atomic.Int64 // the version of the last one seen
	seen        atomic.Int64 // when that was, in ns since the beginning
	answered    atomic.Int64 // when the last answer was accepted, likewise; 0 once the next assignment has come
	known       atomic.Int64 // how many are solved, as the game has said itself
	frozen      bool         // the watch's own

	mu    sync.Mutex
	drops map[int]bool // by challenge
}

func newPlayer(c *crowd, index int) *player {
	return &player{
		crowd: c, index: index, luck: rand.New(rand.NewPCG(c.opts.Load.Seed, uint64(index))), //nolint:gosec // players, not secrets
		assigned: make(chan challenge, 1), drops: make(map[int]bool),
	}
}

// live is a player's whole life: he comes at his time, waits until he is let in,
// plays until ctx ends, and listens until whole does.
func (p *player) live(ctx, whole context.Context, listening *sync.WaitGroup) {
	at := p.crowd.begin.Add(time.Duration(p.luck.Float64() * float64(p.crowd.opts.Load.Arrive)))
	if !pause(ctx, time.Until(at)) {
		return
	}
	p.stage.Store(int32(waiting))
	next, ok := p.join(ctx)
	raise(&p.crowd.tally.longest, int64(time.Since(at)))
	if !ok {
		return
	}
	raise(&p.board, p.crowd.moves.latest()) // what was before he came, he hasn't missed
	p.seen.Store(int64(time.Since(p.crowd.begin)))
	p.stage.Store(int32(playing))
	listening.Go(func() { p.listen(whole) })
	for p.search(ctx) {
		if !p.solve(ctx, next) {
			return
		}
		if next, ok = p.await(ctx, next.Number); !ok {
			return
		}
	}
}

// join asks until he is let in, each time when he was told.
func (p *player) join(ctx context.Context) (first challenge, ok bool) {
	for {
		j, err := p.crowd.game.join(ctx, fmt.Sprintf("player %d", p.index+1))
		if err == nil {
			p.token, p.events = j.Token, j.Events
			return j.Challenge, true
		}
		if !pause(ctx, p.again(err)) {
			return challenge{}, false
		}
	}
}

// again is when to repeat what was answered so; what was no refusal is counted.
func (p *player) again(err error) time.Duration {
	after := 2 * time.Second
	if r, ok := errors.AsType[*refusal](err); ok && r.after > 0 {
		after = r.after
	} else {
		p.crowd.tally.faults.Add(1)
	}
	return after + time.Duration(p.luck.Float64()*float64(after)/4) // nobody comes back together with others
}

// search is the time that he looks for the cross: a second at least, and its
// length drawn as waiting times are.
func (p *player) search(ctx context.Context) bool {
	mean := p.crowd.opts.Load.Think - time.Second
	return pause(ctx, time.Second+time.Duration(p.luck.ExpFloat64()*float64(mean)))
}

// solve sends the answer until it counts, or it turns out that it has before.
func (p *player) solve(ctx context.Context, c challenge) bool {
	answer := game.Answer(c.Map, c.Side)
	for {
		err := p.crowd.game.solve(ctx, p.token, c.Number, answer)
		r, refused := errors.AsType[*refusal](err)
		switch {
		case err == nil:
			p.answered.Store(int64(time.Since(p.crowd.begin)))
			p.crowd.tally.solved.Add(1)
			return true
		case refused && r.word == "other-challenge":
			return true // an answer that he never saw has counted: he asks what is next
		case ctx.Err() != nil:
			return false
		case refused && r.status == 503:
			p.crowd.tally.turned.Add(1)
		}
		if !pause(ctx, p.again(err)) {
			return false
		}
	}
}

// impatience is how long he trusts his stream to bring the next assignment.
const impatience = time.Minute

// await is the next challenge: it comes by the stream. Who has none asks now and
// then, and so does who has waited for very long.
func (p *player) await(ctx context.Context, solved int) (challenge, bool) {
	look := time.NewTicker(p.crowd.opts.Load.Look)
	defer look.Stop()
	for since := time.Now(); ; {
		select {
		case c := <-p.assigned:
			if c.Number > solved {
				return c, true
			}
		case <-look.C:
			trusting := link(p.link.Load()) == open
			if trusting && time.Since(since) < impatience {
				continue
			}
			if trusting {
				p.crowd.tally.impatient.Add(1)
				since = time.Now()
			}
			if m, err := p.state(ctx); err == nil && m.Challenge.Number > solved {
				p.answered.Store(0)
				return m.Challenge, true
			}
		case <-ctx.Done():
			return challenge{}, false
		}
	}
}

// state asks the game how things are for him.
func (p *player) state(ctx context.Context) (me, error) {
	m, err := p.crowd.game.me(ctx, p.token)
	if err != nil {
		if r, ok := errors.AsType[*refusal](err); ok && r.status == 503 {
			p.crowd.tally.turned.Add(1)
		} else if ctx.Err() == nil {
			p.crowd.tally.faults.Add(1)
		}
		return m, err
	}
	raise(&p.known, int64(m.Solved))
	return m, nil
}

// take hands on what is next to who plays; only the newest counts.
func (p *player) take(c challenge) {
	if at := p.answered.Swap(0); at > 0 {
		p.crowd.tally.waits.add(time.Since(p.crowd.begin) - time.Duration(at))
	}
	select {
	case <-p.assigned:
	default:
	}
	select {
	case p.assigned <- c:
	default: // who plays can only take, so there is room; a second stream there isn't
	}
}

// count adds how he stands now. missed is the board that everybody should have seen.
func (p *player) count(s *Second, now time.Time, missed int64) {
	switch stage(p.stage.Load()) {
	case absent:
		return
	case waiting:
		s.Waiting++
		return
	case playing:
		s.Playing++
	}
	switch link(p.link.Load()) {
	case open:
		s.Streams++
	case refusedLink:
		s.Throttled++
	case none:
	}
	before := p.frozen
	if p.frozen = p.freezes(now, missed); !p.frozen {
		return
	}
	s.Frozen++
	if !before {
		p.crowd.tally.freezes.Add(1)
	}
}

// freezes reports whether he has got no board for so long although it has moved.
// Who plays without a stream is no exception: he sees nothing move.
func (p *player) freezes(now time.Time, missed int64) bool {
	return now.Sub(p.crowd.begin)-time.Duration(p.seen.Load()) > freeze && missed > p.board.Load()
}

// missing is how many drops never came to him, of which he didn't know otherwise.
func (p *player) missing(ctx context.Context) (n int, err error) {
	known := p.known.Load() // what the game told him when he had to ask
	m, err := p.crowd.game.me(ctx, p.token)
	if err != nil {
		return 0, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for number := int(known) + 1; number <= m.Solved; number++ {
		if !p.drops[number] {
			n++
		}
	}
	return n, nil
}
