package push

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"downlink/internal/intake"
	"downlink/internal/problem"
)

// A line is the answer to one line of a batch: of one device as it is, of
// several as a list, or why the line can't be used.
type line struct {
	Line int `json:"line"` // counted from 1, blank ones left out
	*result
	*list
	Error any `json:"error,omitempty"` // in the place of result's
}

// A batch is the state of one NDJSON request. Its lines are pushed beside each
// other, and answered as they are done: in order, each would wait for the slowest
// device before it.
type batch struct {
	// Set at construction.
	h       *Handler
	request *http.Request
	key     string // Idempotency-Key of the request, may be empty
	lines   *intake.Lines
	body    *intake.Body

	sender Sender
	asked  time.Time // when it was last found out who sends
	number int       // of the line that was read last
	out    *intake.Answers
}

// batch answers NDJSON.
func (h *Handler) batch(w http.ResponseWriter, r *http.Request, body *intake.Body, sender Sender) {
	key, err := intake.Key(r)
	if err != nil {
		d := asProblem(err)
		h.metrics.refused(d)
		problem.Write(w, d)
		return
	}
	// Without it HTTP/1.1 would read the whole body before the first answer.
	// HTTP/2 is full duplex anyway and says "not supported".
	_ = body.Conn.EnableFullDuplex()
	b := &batch{
		h: h, request: r, key: key, body: body, sender: sender, asked: time.Now(),
		lines: intake.NewLines(bufio.NewReaderSize(body, intake.LinesBuffer), h.maxBody),
	}
	// Read first, answer then: a client that waits for "100 Continue" gets it
	// at the first read, and would never get it after a final status.
	first, err := b.lines.Next()
	w.Header().Set("Content-Type", intake.TypeBatch)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	b.out = intake.StartAnswers(w, body.Conn, h.opts.BodyTimeout)
	b.run(first, err)
	if b.out.Close() != nil {
		// The client took no answer in time. A clean end would tell it that
		// every line was answered.
		panic(http.ErrAbortHandler)
	}
}

// run pushes each line, and returns when all are answered.
func (b *batch) run(text []byte, err error) {
	ctx, cancel := context.WithCancel(b.request.Context())
	defer cancel()
	places := make(chan struct{}, perCallMost)
	var all sync.WaitGroup
	defer all.Wait()
	for ; err == nil || errors.Is(err, intake.ErrLineTooLong); text, err = b.lines.Next() {
		b.number++
		c, fault := b.read(text, err)
		if fault != nil {
			b.refuse(fault)
			continue
		}
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		number := b.number
		all.Go(func() {
			defer func() { <-places }()
			if b.answer(number, c, b.h.push(ctx, c)) != nil {
				cancel() // the client takes no more answers
			}
		})
	}
	if errors.Is(err, io.EOF) {
		return
	}
	d := b.body.Fault(err)
	b.number++
	b.refuse(d)
	if d.Code() != problem.RequestTimeout {
		cancel() // the client has gone
	}
}

// read makes a call of a line.
func (b *batch) read(text []byte, err error) (*call, *problem.Document) {
	if err != nil {
		return nil, b.h.bodyTooLarge()
	}
	c, err := parse(text, b.h.opts.MaxEventBytes())
	if err == nil {
		err = c.identify(b.key, b.number)
	}
	if err == nil {
		err = b.renew()
	}
	if err == nil {
		err = permit(b.sender, c)
	}
	if err != nil {
		return nil, asProblem(err)
	}
	c.traced(b.request)
	return c, nil
}

// renewEvery is how often it is asked again who sends: a batch may last for days,
// and must not outlive the right to send it.
const renewEvery = time.Second

func (b *batch) renew() error {
	if time.Since(b.asked) < renewEvery {
		return nil
	}
	sender, err := b.h.opts.Sender(b.request)
	if err == nil {
		b.sender, b.asked = sender, time.Now()
	}
	return err
}

// refuse answers a line that nothing was done for.
func (b *batch) refuse(d *problem.Document) {
	b.h.metrics.refused(d)
	_ = b.send(line{Line: b.number, Error: unsent(d)}) // it fails again at the next one
}

func (b *batch) answer(number int, c *call, results []result) error {
	l := line{Line: number}
	if c.list {
		all := listOf(results)
		l.list = &all
	} else {
		l.result = &results[0]
		if f := results[0].Error; f != nil {
			l.Error = f
		}
	}
	return b.send(l)
}

func (b *batch) send(l line) error {
	text, err := json.Marshal(l)
	if err != nil { // only a fault of the program
		text = []byte(`{"error":{"status":500,"title":"The gateway failed"}}`)
	}
	return b.out.Send(append(text, '\n'))
}
