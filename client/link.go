package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"downlink/internal/frame"
)

// subprotocol is what both ends of a dialled WebSocket have to name.
const subprotocol = "downlink.v1"

const (
	// waitingFrames is how many messages are read ahead of the handler. It goes on
	// reading while the handler works, so that the gateway's pings are answered.
	waitingFrames = 16
	// writeWait is how long the gateway may take to take a message of the device.
	writeWait = 10 * time.Second
	// commitEvery is how often commits are sent while events are waiting.
	commitEvery = time.Second
	// escaped is how many bytes one byte of an event takes at most in JSON.
	escaped = 6
)

// codeNewerOwner closes a connection whose owner is of the past.
const codeNewerOwner websocket.StatusCode = 4409

// A link is one dialled WebSocket.
type link struct {
	// Set at construction.
	receiver *Receiver
	member   string
	ctx      context.Context // ends when the link is left
	leave    context.CancelCauseFunc
	frames   chan message

	generation uint64 // guarded by Receiver.mu

	conn      *websocket.Conn
	groups    string // of the welcome
	committed time.Time

	silence  *time.Timer // leaves the link
	quiet    sync.Mutex  // guards patience
	patience time.Duration
}

// A message is what a gateway sends, whichever kind it is.
type message struct {
	Welcome    *welcome `json:"welcome"`
	Generation uint64   `json:"generation"`
	ID         string   `json:"id"`
	Type       string   `json:"type"`
	Data       string   `json:"data"`
}

type welcome struct {
	Generation  uint64  `json:"generation"`
	Groups      string  `json:"groups"`
	KeepaliveMs float64 `json:"keepalive_ms"`
}

type hello struct {
	Cursor string `json:"cursor,omitempty"`
	Groups string `json:"groups,omitempty"`
	From   string `json:"from,omitempty"`
}

// closing is an error with the code that tells the gateway of it.
type closing struct {
	code   websocket.StatusCode
	reason string // for the gateway
	err    error
}

func (c *closing) Error() string { return c.err.Error() }
func (c *closing) Unwrap() error { return c.err }

func violation(text string) error {
	return &closing{websocket.StatusProtocolError, "", errors.New("the gateway breaks the protocol: " + text)}
}

// websocket serves one dialled WebSocket to its end.
func (r *Receiver) websocket(w http.ResponseWriter, req *http.Request, generation uint64) {
	if !offers(req.Header, subprotocol) {
		http.Error(w, "this device speaks "+subprotocol+" only", http.StatusBadRequest)
		return
	}
	l := &link{receiver: r, member: req.Header.Get(headerMember), frames: make(chan message, waitingFrames), patience: DefaultSilence}
	l.ctx, l.leave = context.WithCancelCause(r.ctx)
	defer l.leave(nil)
	highest, ok := r.admit(generation, l)
	if !ok {
		refuseOlder(w, highest)
		return
	}
	defer r.forget(l)
	l.silence = time.AfterFunc(l.patience, func() { l.leave(errSilent) })
	defer l.silence.Stop()
	var err error
	l.conn, err = websocket.Accept(w, req, &websocket.AcceptOptions{
		Subprotocols:   []string{subprotocol},
		OnPingReceived: func(context.Context, []byte) bool { l.heard(); return true },
	})
	if err != nil {
		return // Accept has answered
	}
	l.conn.SetReadLimit(int64(r.opts.MaxEventBytes)*escaped + 4096)
	r.status(Status{Err: l.serve(generation)})
}

func offers(h http.Header, protocol string) bool {
	for _, value := range h.Values("Sec-WebSocket-Protocol") {
		if slices.ContainsFunc(strings.Split(value, ","), func(p string) bool { return strings.TrimSpace(p) == protocol }) {
			return true
		}
	}
	return false
}

func refuseOlder(w http.ResponseWriter, highest uint64) {
	w.Header().Set(headerGeneration, strconv.FormatUint(highest, 10))
	http.Error(w, "the device has a newer owner", http.StatusConflict)
}

// serve greets the gateway, takes what it sends until something ends that, and
// closes the connection. It returns why, or nil if the gateway did it in order.
func (l *link) serve(generation uint64) error {
	said, err := l.greeting(generation)
	if err == nil {
		err = l.write(struct {
			Hello hello `json:"hello"`
		}{said})
	}
	if err != nil {
		return l.end(err)
	}
	read := make(chan error, 1)
	go func() { read <- l.read() }()
	err = l.end(l.takeAll(read))
	for range l.frames { // lets go of a reader that waits for room
	}
	return err
}

// end closes the connection, with a code if there is one that tells why.
func (l *link) end(err error) error {
	defer func() { _ = l.conn.CloseNow() }() // it fails if that was done
	if cause := context.Cause(l.ctx); cause != nil {
		return cause // at once: it is superseded, or silent, or the device stops
	}
	if c, ok := errors.AsType[*closing](err); ok {
		_ = l.conn.Close(c.code, c.reason) // how that goes changes nothing
	}
	l.leave(nil)
	switch websocket.CloseStatus(err) {
	case websocket.StatusNormalClosure, websocket.StatusGoingAway:
		return nil
	}
	return err
}

// greeting is the hello. It waits for what an earlier connection has under way,
// which decides where this one begins.
func (l *link) greeting(generation uint64) (hello, error) {
	r := l.receiver
	if err := r.begin(l.ctx); err != nil {
		return hello{}, err
	}
	defer r.end()
	r.notice(generation)
	if err := r.desk.cursor.flush(); err != nil {
		return hello{}, &closing{websocket.StatusInternalError, "", err}
	}
	h := hello{Cursor: r.desk.cursor.now.ID, Groups: r.desk.cursor.now.Groups}
	if h.Cursor == "" && r.opts.Earliest {
		h.From = "earliest"
	}
	return h, nil
}

// read reads messages until the connection ends, and closes frames.
func (l *link) read() error {
	defer close(l.frames)
	for {
		l.heard()
		kind, text, err := l.conn.Read(l.ctx)
		l.silence.Stop() // the handler may take its time
		if err != nil {
			return err
		}
		if kind != websocket.MessageText {
			return violation("a binary message")
		}
		var m message
		if err := json.Unmarshal(text, &m); err != nil {
			return violation("a message that is no JSON object of ours")
		}
		select {
		case l.frames <- m:
		case <-l.ctx.Done():
			return context.Cause(l.ctx)
		}
	}
}

// heard counts the silence anew.
func (l *link) heard() {
	l.quiet.Lock()
	defer l.quiet.Unlock()
	l.silence.Reset(l.patience)
}

// takeAll takes messages in their order until one can't be taken, or the
// connection has ended; then the error is the reader's.
func (l *link) takeAll(read <-chan error) error {
	greeted := false
	for m := range l.frames {
		switch {
		case m.Welcome != nil && !greeted:
			greeted = true
			if err := l.welcome(m.Welcome); err != nil {
				return err
			}
			l.receiver.status(Status{Connected: true})
		case m.ID == "" && m.Generation == 0: // unknown to this version
			continue
		case !greeted:
			return violation("an event before the welcome")
		case m.Generation > 0 && m.ID == "":
			if err := l.renew(m.Generation); err != nil {
				return err
			}
		default:
			if err := l.take(m); err != nil {
				return err
			}
		}
	}
	return <-read
}

func (l *link) welcome(w *welcome) error {
	l.groups = w.Groups
	if alive := time.Duration(min(w.KeepaliveMs, float64(maxRetry.Milliseconds()))) * time.Millisecond; alive > 0 {
		l.quiet.Lock()
		l.patience = 3 * alive
		l.quiet.Unlock()
	}
	return l.renew(w.Generation)
}

// renew takes the generation under which the same owner goes on; 0 is none.
func (l *link) renew(generation uint64) error {
	if generation == 0 {
		return nil
	}
	if highest, ok := l.receiver.admit(generation, l); !ok {
		return &closing{codeNewerOwner, strconv.FormatUint(highest, 10), fmt.Errorf("the owner of generation %d is of the past, there was %d", generation, highest)}
	}
	return nil
}

// take takes an event, a resync or a position in its turn.
func (l *link) take(m message) error {
	r := l.receiver
	if len(m.Data) > r.opts.MaxEventBytes {
		return &closing{websocket.StatusMessageTooBig, "", fmt.Errorf("%w (%d bytes)", ErrEventTooLarge, len(m.Data))}
	}
	if err := r.begin(l.ctx); err != nil {
		return err // what has come over a connection that was left doesn't count
	}
	sender := Sender{l.member, r.generationOf(l)}
	r.notice(sender.Generation)
	r.desk.cursor.groups = l.groups
	before := r.desk.cursor.now.ID
	err := r.desk.take(withSender(r.ctx, sender), l.ctx, frame.Event{
		ID: m.ID, HasID: true, Position: m.Type == "", Type: m.Type, Data: m.Data,
	})
	cursor := r.desk.cursor.now.ID
	r.end()
	if err != nil {
		return &closing{websocket.StatusInternalError, "", err}
	}
	if cursor != before {
		return l.commit(cursor)
	}
	return nil
}

// commit tells the gateway how far the device has come, if it should know.
func (l *link) commit(cursor string) error {
	if !l.receiver.opts.Commits || len(l.frames) > 0 && time.Since(l.committed) < commitEvery {
		return nil
	}
	l.committed = time.Now()
	return l.write(struct {
		Commit string `json:"commit"`
	}{cursor})
}

func (l *link) write(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(l.ctx, writeWait)
	defer cancel()
	return l.conn.Write(ctx, websocket.MessageText, text)
}

// gives reports whether the link gives way to what comes with a generation, or
// to another link without one. The caller holds Receiver.mu.
func (l *link) gives(generation uint64, other *link) bool {
	return generation > 0 || other != nil && l.generation == 0 && l.member != "" && l.member == other.member
}
