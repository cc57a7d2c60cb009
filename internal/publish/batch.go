package publish

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/intake"
	"downlink/internal/problem"
)

// batch answers NDJSON: a line for a line, in order, while it reads. Memory is
// bounded by what one call of the log takes and by what the client leaves
// unread of its answer.
func (h *Handler) batch(w http.ResponseWriter, r *http.Request, body *intake.Body, sender Sender) {
	key, err := intake.Key(r)
	if err != nil {
		d := asProblem(err)
		h.metrics.count(d)
		problem.Write(w, d)
		return
	}
	// Without it HTTP/1.1 would read the whole body before the first answer.
	// HTTP/2 is full duplex anyway and says "not supported".
	_ = body.Conn.EnableFullDuplex()
	in, _ := h.readers.Get().(*bufio.Reader)
	in.Reset(body)
	b := &batch{
		h:       h,
		request: r,
		body:    body,
		key:     key,
		sender:  sender,
		lines:   intake.NewLines(in, h.maxBody),
		whole:   0 < r.ContentLength && r.ContentLength <= intake.LinesBuffer,
		entries: firstRound,
	}
	// Read first, answer then: a client that waits for "100 Continue" gets it
	// at the first read, and would never get it after a final status.
	first := b.round()
	w.Header().Set("Content-Type", intake.TypeBatch)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	err = b.run(first, intake.StartAnswers(w, body.Conn, h.opts.BodyTimeout))
	in.Reset(nil)
	h.readers.Put(in)
	if err != nil {
		// The client took no answer in time. A clean end would tell it that
		// every line was answered.
		panic(http.ErrAbortHandler)
	}
}

// A batch is the state of one NDJSON request.
type batch struct {
	// Set at construction.
	h       *Handler
	request *http.Request
	body    *intake.Body
	key     string // Idempotency-Key of the request, may be empty
	lines   *intake.Lines
	// The client has announced a short body, so all of it is on its way: it
	// doesn't wait for an answer in between.
	whole bool

	sender  Sender
	number  int               // of the line that was read last; the first is 1
	broken  *problem.Document // why nothing more is stored: the log failed, the publisher is too fast, or may no longer
	limited map[string]bool   // addressees of lines that were refused for their rate
	again   *message          // was too fast in the last round, and is tried once more
	done    bool
	waiting []pending // of the round
	stored  []stored  // room for outcomeOf
	entries int       // of the last round, as the room for the next
}

// Room that a round begins with: entries, and bytes of answer for a line.
const (
	firstRound = 64
	lineAnswer = 48
)

// A pending line waits for its result. Exactly one of m and fault is set.
type pending struct {
	m     *message
	slots []slot
	fault *problem.Document
}

// run answers until the input ends or the client is gone.
func (b *batch) run(answer []byte, out *intake.Answers) (err error) {
	defer func() { err = out.Close() }()
	for out.Send(answer) == nil && !b.done {
		answer = b.round()
	}
	return nil
}

// round reads lines until the client makes us wait or a bound is reached,
// stores them in one call, and returns their answers.
func (b *batch) round() []byte {
	p := newPlan(b.h.opts.Shards, b.entries)
	b.waiting = b.waiting[:0]
	for len(b.waiting) < batchLines && len(p.slots) < batchEntries && p.bytes < batchBytes && !b.done {
		if len(b.waiting) > 0 && !b.whole && b.again == nil && b.lines.Waits() {
			break
		}
		line, more := b.read(p)
		if b.again != nil {
			break
		}
		if more {
			b.waiting = append(b.waiting, line)
		}
	}
	b.entries = len(p.slots)
	var results []eventlog.Result
	if len(p.appends) > 0 {
		results = b.h.append(p)
	}
	answer := make([]byte, 0, lineAnswer*len(b.waiting))
	for _, line := range b.waiting {
		answer = b.answer(answer, line, results)
	}
	return answer
}

// read takes one line; more is false at the end of the input. One that is too
// fast is left in again if the round has others: some of them may be repeated,
// which costs nothing once that is known.
func (b *batch) read(p *plan) (line pending, more bool) {
	if m := b.again; m != nil {
		b.again = nil
		return b.plan(p, m), true
	}
	late := b.number > 0 && (len(b.waiting) == 0 || b.whole && b.lines.Waits())
	text, err := b.lines.Next()
	switch {
	case errors.Is(err, io.EOF):
		b.done = true
		return pending{}, false
	case errors.Is(err, intake.ErrLineTooLong):
		b.number++
		return pending{fault: b.h.bodyTooLarge()}, true
	case err != nil:
		b.done = true
		return pending{fault: b.h.readFault(b.body, err)}, true
	}
	if late {
		b.renew()
	}
	b.number++
	m, err := parse(text, b.h.opts.MaxEventBytes())
	if err == nil {
		err = b.identify(m)
	}
	if err == nil {
		err = permit(b.sender, m)
	}
	if err != nil {
		return pending{fault: asProblem(err)}, true
	}
	b.h.ask(m)
	return b.plan(p, m), true
}

// plan plans a line, or refuses it.
func (b *batch) plan(p *plan, m *message) pending {
	if b.broken != nil {
		return pending{fault: b.broken}
	}
	if err := b.admit(m); err != nil {
		return pending{fault: asProblem(err)}
	}
	if b.again != nil {
		return pending{}
	}
	return pending{m: m, slots: p.add(m, m.once(b.sender.Name()))}
}

// renew asks again who sends, for a line that had to be waited for and for the
// first of each round: a batch may last for days, and must not outlive the right
// to send it.
func (b *batch) renew() {
	sender, err := b.h.opts.Sender(b.request)
	if err == nil {
		b.sender = sender
		return
	}
	if b.broken == nil {
		b.broken = asProblem(err)
	}
}

// admit holds a line to the rates. What comes behind a refused line must not
// overtake it: later lines for its addressees are refused as well, and after
// the publisher's own rate all of them.
func (b *batch) admit(m *message) error {
	for _, t := range m.targets {
		if b.limited[t] || event.ToAll(t) && len(b.limited) > 0 {
			return problem.New(problem.TooManyEvents, "an earlier line for an addressee of this one was refused for its rate, and must not be overtaken").After(1)
		}
	}
	r := b.h.rates.admit(b.sender.Name(), m, b.h.opts.Shards)
	if r == nil {
		return nil
	}
	if len(b.waiting) > 0 {
		b.again = m
		return nil
	}
	if r.target == "" || event.ToAll(r.target) || len(b.limited)+len(m.targets) > maxLimited {
		b.broken = problem.New(problem.TooManyEvents, "an earlier line was refused for its rate, so this one was not tried; repeat from the first line that was refused").After(1)
		return r.problem()
	}
	if b.limited == nil {
		b.limited = make(map[string]bool)
	}
	for _, t := range m.targets {
		b.limited[strings.Clone(t)] = true // t is a part of the whole line
	}
	return r.problem()
}

// maxLimited is how many addressees of refused lines a batch remembers. With
// more it stores nothing any more.
const maxLimited = 10000

// identify gives a line without an idempotency key of its own the request's
// key and its number, so that the whole batch can be repeated.
func (b *batch) identify(m *message) error {
	if m.idem != "" || b.key == "" {
		return nil
	}
	m.idem = b.key + "#" + strconv.Itoa(b.number)
	if len(m.idem) > event.MaxIdemBytes {
		return problem.New(problem.InvalidIdempotency,
			fmt.Sprintf("%s with the line's number has %d bytes, allowed are %d", intake.KeyHeader, len(m.idem), event.MaxIdemBytes))
	}
	return nil
}

// answer adds a line's answer, and remembers when the log has failed: were
// later lines stored, a retry would put the failed ones behind them.
func (b *batch) answer(dst []byte, line pending, results []eventlog.Result) []byte {
	if line.fault != nil {
		b.h.metrics.count(line.fault)
		return appendProblem(dst, line.fault)
	}
	o := outcomeOf(b.stored, line.slots, results)
	b.stored = o.stored
	b.h.account(line.m, o)
	b.h.giveBack(b.sender, line.m, o)
	if o.fault == nil {
		return appendOutcome(dst, line.m, o, true)
	}
	b.h.logTrouble(o)
	if o.fault.Status >= http.StatusInternalServerError && b.broken == nil {
		b.broken = problem.New(o.fault.Code(), "the log failed at an earlier line, so this one was not tried; repeat from the first line that failed if every line has an idem of its own, else the whole batch")
	}
	return appendProblem(dst, o.problem(line.m))
}
