package players

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"downlink/internal/frame"
)

const (
	// reconnect is what an EventSource waits that was told nothing.
	reconnect = 3 * time.Second
	// restart is when a page makes a new EventSource after an answer that is final.
	restart = 10 * time.Second
	// silence is how long nothing at all may come before a page does the same:
	// three keep-alives of the gateway.
	silence = time.Minute
	// opening is how long an answer may take.
	opening = 20 * time.Second
)

// errFinal is the end of an EventSource.
var errFinal = errors.New("answered with something else than a stream")

// listen is the player's EventSource: it connects again whenever its stream ends,
// after the time that it was told, with the last ID that it got.
func (p *player) listen(ctx context.Context) {
	var parser frame.Parser
	luck := rand.New(rand.NewPCG(^p.crowd.opts.Load.Seed, uint64(p.index))) //nolint:gosec // players, not secrets
	for ctx.Err() == nil {
		err := p.stream(ctx, &parser)
		after, told := parser.Retry()
		switch {
		case errors.Is(err, errFinal):
			after = restart + time.Duration(luck.Float64()*float64(restart))
		case !told:
			after = reconnect
		}
		if link(p.link.Load()) == open {
			p.link.Store(int32(none))
		}
		if !pause(ctx, after) {
			return
		}
	}
}

// stream is one connection, from its request to its end.
func (p *player) stream(ctx context.Context, parser *frame.Parser) error {
	u, err := url.Parse(p.events)
	if err != nil {
		return fmt.Errorf("the game named no address: %w", err)
	}
	conn, err := p.crowd.opts.dial(ctx, "tcp", u.Host)
	if err != nil {
		p.crowd.tally.faults.Add(1)
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	id := ""
	if last := parser.LastID(); last != "" {
		id = "Last-Event-ID: " + last + "\r\n"
	}
	_ = conn.SetDeadline(time.Now().Add(opening))
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nAccept: text/event-stream\r\nAuthorization: Bearer %s\r\n%s\r\n", u.RequestURI(), u.Host, p.token, id); err != nil {
		return err
	}
	answer, err := http.ReadResponse(bufio.NewReaderSize(conn, 2048), nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK || !strings.HasPrefix(answer.Header.Get("Content-Type"), "text/event-stream") {
		p.crowd.tally.faults.Add(1)
		return errFinal
	}
	if answer.Header.Get("Downlink-Refused") != "" {
		p.crowd.tally.refused.Add(1)
		p.link.Store(int32(refusedLink))
	} else {
		p.link.Store(int32(open))
	}
	return p.read(ctx, conn, answer.Body, parser)
}

// read takes what comes until the stream ends.
func (p *player) read(ctx context.Context, conn net.Conn, body io.Reader, parser *frame.Parser) error {
	parser.Reset(parser.LastID())
	opened := time.Now()
	buffer := make([]byte, 2048)
	for {
		_ = conn.SetReadDeadline(time.Now().Add(silence))
		n, err := body.Read(buffer)
		if n > 0 {
			if err := parser.Feed(buffer[:n], func(e frame.Event) error { p.event(ctx, e, opened); return nil }); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

// event does with an event what a page does.
func (p *player) event(ctx context.Context, e frame.Event, opened time.Time) {
	switch e.Type {
	case "board":
		p.see(e.Data, opened)
	case "assignment":
		var c challenge
		if json.Unmarshal([]byte(e.Data), &c) == nil {
			p.take(c)
		}
	case "drop":
		var drop struct {
			Challenge int `json:"challenge"`
		}
		if json.Unmarshal([]byte(e.Data), &drop) == nil {
			p.crowd.tally.drops.Add(1)
			p.mu.Lock()
			p.drops[drop.Challenge] = true
			p.mu.Unlock()
		}
	case "resync":
		p.resync(ctx, frame.ParseResync(e.Data).After)
	}
}

// see notes a board. One from before the stream began is what he had missed: it
// is news to him, and says nothing of how long boards take.
func (p *player) see(data string, opened time.Time) {
	now := time.Now()
	raise(&p.board, member(data, `"version":`))
	p.seen.Store(int64(now.Sub(p.crowd.begin)))
	if since := time.UnixMilli(member(data, `"since":`)); since.After(opened) {
		p.crowd.tally.boards.add(now.Sub(time.UnixMilli(member(data, `"at":`))))
		p.crowd.tally.sights.add(now.Sub(since))
	}
}

// member is the first number of that name in a JSON text. A board goes to all
// players at once: to decode all of it each time would measure the decoding.
func member(data, name string) int64 {
	_, rest, _ := strings.Cut(data, name)
	end := bytes.IndexFunc([]byte(rest[:min(len(rest), 24)]), func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		return 0
	}
	n, err := strconv.ParseInt(rest[:end], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// resync asks for the full state, after the time that he was told, until he has it.
func (p *player) resync(ctx context.Context, after time.Duration) {
	for pause(ctx, after) {
		m, err := p.state(ctx)
		if err == nil {
			if m.Challenge.Number > 0 {
				p.take(m.Challenge)
			}
			return
		}
		after = reconnect
	}
}
