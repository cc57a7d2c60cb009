package game

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"
)

// A publisher tells Downlink what there is to tell: the board, of which only the
// newest counts, and players' letters, each of which must arrive. When Downlink
// asks for patience it waits, sends the board first, and then goes on in order.
type publisher struct {
	// Set at construction.
	store    *store
	board    *board
	turns    *turns
	downlink *downlink
	metrics  *metrics
	logger   *slog.Logger
	woken    chan struct{} // there is something new

	// Owned by run.
	nextBoard time.Time // not before
	waiting   bool      // the log has said that publishing is held up
}

// Events, as the page and other players' programs know them.
const (
	everybody = "*"
	boardType = "board"
	boardKey  = "hunt:board" // conflation: of boards, the newest is enough
)

const (
	// batch is the most letters in one request.
	batch = 256
	// lookEvery is how often the outbox is looked at unasked: another process may
	// have put something in.
	lookEvery = time.Second
)

// wake says that there is something new. It never waits.
func (p *publisher) wake() {
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

// run publishes until ctx ends.
func (p *publisher) run(ctx context.Context) {
	for {
		more, err := p.round(ctx)
		wait := lookEvery
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if !p.rest(ctx, p.patience(err), nil) {
				return
			}
			continue
		case more:
			wait = 0
		case p.board.stale():
			wait = time.Until(p.nextBoard)
		}
		if p.waiting {
			p.waiting = false
			p.logger.Info("publishing goes on")
		}
		if wait > 0 && !p.rest(ctx, wait, p.woken) {
			return
		}
	}
}

// rest waits for so long, or until it is woken; false: it is over.
func (p *publisher) rest(ctx context.Context, wait time.Duration, woken <-chan struct{}) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-woken:
	}
	return true
}

// Error says what is held, for the log.
func (h held) Error() string { return h.detail }

// patience is how long to wait after an error, which is said once.
func (p *publisher) patience(err error) time.Duration {
	h := held{heldAway, time.Second, ""}
	_ = errors.As(err, &h)
	p.metrics.held.WithLabelValues(h.why).Inc()
	if !p.waiting {
		p.waiting = true
		p.logger.Warn("publishing has to wait; players' events stay in Redis until then", "why", h.why, "for", h.wait, "error", err)
	}
	return h.wait + rand.N(h.wait/4) //nolint:gosec // no secret
}

// round sends the board, if it is due, and a batch of letters; more: there are more.
func (p *publisher) round(ctx context.Context) (more bool, err error) {
	if now := time.Now(); p.board.stale() && !now.Before(p.nextBoard) {
		if err := p.sendBoard(ctx, now); err != nil {
			return false, err
		}
	}
	letters, all, err := p.store.letters(ctx, batch)
	if err != nil {
		return false, err
	}
	p.metrics.outbox.Set(float64(all))
	p.metrics.oldest.Set(0)
	if len(letters) == 0 {
		return false, nil
	}
	p.metrics.oldest.Set(time.Since(letters[0].at).Seconds())
	return all > int64(len(letters)), p.sendLetters(ctx, letters)
}

func (p *publisher) sendBoard(ctx context.Context, now time.Time) error {
	payload, since, err := p.board.take(ctx)
	if err != nil {
		return err
	}
	replies, err := p.downlink.send(ctx, []message{{Device: everybody, Type: boardType, Payload: payload, Key: boardKey}})
	if err == nil && len(replies) == 0 {
		err = errors.New("Downlink didn't answer")
	}
	if err != nil {
		p.board.putBack(since)
		return err
	}
	if r := replies[0]; !r.stored() {
		h, again := r.again()
		if again {
			p.board.putBack(since)
			return h
		}
		p.complain(1, r.Error.Detail)
	} else {
		p.metrics.published.WithLabelValues(whatBoard).Inc()
		p.metrics.update.WithLabelValues(whatBoard).Observe(time.Since(since).Seconds())
	}
	p.nextBoard = now.Add(p.board.every)
	return nil
}

// sendLetters sends a batch, and strikes out what Downlink has, or will never take.
func (p *publisher) sendLetters(ctx context.Context, letters []letter) error {
	var lines []message
	var sent []letter
	var done []string
	for _, l := range letters {
		if !json.Valid([]byte(l.payload)) { // one such line would spoil the batch
			p.complain(1, "its payload isn't JSON")
			done = append(done, l.id)
			continue
		}
		sent = append(sent, l)
		lines = append(lines, message{Device: l.player, Type: l.kind, Payload: json.RawMessage(l.payload), Idem: p.store.key(l.id)})
	}
	replies, err := p.downlink.send(ctx, lines)
	if err == nil && len(replies) < len(sent) {
		err = fmt.Errorf("Downlink answered for %d of %d events", len(replies), len(sent))
	}
	settled, h := p.settle(sent, replies)
	p.turns.took(len(settled), time.Now())
	if err == nil && h != nil {
		err = *h
	}
	return errors.Join(err, p.store.strike(ctx, append(done, settled...)))
}

// settle takes what Downlink says of letters: which of them are done with, and
// why others have to wait; nil: none has to.
func (p *publisher) settle(sent []letter, replies []reply) (done []string, wait *held) {
	refused, why := 0, ""
	for i, r := range replies[:min(len(replies), len(sent))] {
		if r.stored() {
			p.metrics.published.WithLabelValues(whatPlayer).Inc()
			p.metrics.update.WithLabelValues(whatPlayer).Observe(time.Since(sent[i].at).Seconds())
		} else if h, again := r.again(); again {
			if wait == nil {
				wait = &h
			}
			continue
		} else {
			refused, why = refused+1, r.Error.Detail
		}
		done = append(done, sent[i].id)
	}
	if refused > 0 {
		p.complain(refused, why)
	}
	return done, wait
}

// complain is for events that no repetition gets through. To keep them would
// stop all that come after them.
func (p *publisher) complain(n int, why string) {
	p.metrics.refused.Add(float64(n))
	p.logger.Error("events can't be published, ever; they are dropped", "events", n, "why", why)
}
