package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"downlink/internal/backoff"
	"downlink/internal/config"
	"downlink/internal/frame"
	"downlink/internal/governor"
	"downlink/internal/governor/api"
)

// governorWatchCmd follows what a running governor does.
type governorWatchCmd struct {
	JSON    bool          `name:"json" help:"Print each event as one JSON object: event is state, change or gap, data what came."`
	Silence time.Duration `default:"45s" help:"Connect again when nothing comes for so long: three of the governor's keep-alives."`

	backendFlags `embed:""`
}

// Run prints changes until a signal: first those that the governor remembers. A
// connection that is lost is made again, and nothing is printed twice.
func (c *governorWatchCmd) Run(loader *config.Loader, io console) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	at, err := c.at(api.EventsPath)
	if err != nil {
		return usage(err)
	}
	client, err := c.client(loader, 0, "")
	if err != nil {
		return usage(err)
	}
	defer client.CloseIdleConnections()
	w := watcher{client: client, at: at, silence: c.Silence, out: io.out, notes: io.err, json: c.JSON}
	return w.follow(ctx)
}

// A watcher reads one stream after the other.
type watcher struct {
	client  *http.Client
	at      string
	silence time.Duration
	out     io.Writer
	notes   io.Writer // for a person: why nothing comes
	json    bool

	parser frame.Parser
	heard  int // events so far
}

var errNotPrinted = errors.New("what happened can't be printed")

// follow reads until ctx ends; then it returns nil. Another error is one that stays.
func (w *watcher) follow(ctx context.Context) error {
	pause := backoff.Backoff{Base: 500 * time.Millisecond, Max: 5 * time.Second}
	said := ""
	for try := 0; ; try++ {
		heard := w.heard
		err := w.once(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if _, lasting := errors.AsType[*coded](err); lasting || errors.Is(err, errNotPrinted) {
			return err
		}
		if w.heard > heard {
			try, said = 0, ""
		}
		if why, _, _ := strings.Cut(err.Error(), "\n"); why != said { // the hint says to do what is done here
			fmt.Fprintf(w.notes, "not connected: %s; trying on\n", why) //nolint:errcheck // nowhere else to complain
			said = why
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause.Delay(try)):
		}
	}
}

// once reads a stream until it ends; it always says why it did. An error that
// stays is *coded, or errNotPrinted.
func (w *watcher) once(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(w.silence, func() { cancel(fmt.Errorf("nothing came for %s", w.silence)) })
	defer silent.Stop()
	resp, err := w.ask(ctx)
	if err != nil {
		return because(ctx, err)
	}
	defer resp.Body.Close()
	w.parser.Reset(w.parser.LastID())
	buffer := make([]byte, 16<<10)
	for {
		n, err := resp.Body.Read(buffer)
		silent.Reset(w.silence)
		if err := w.parser.Feed(buffer[:n], w.print); err != nil {
			return err
		}
		switch {
		case errors.Is(err, io.EOF):
			return errors.New("the governor has ended the stream")
		case err != nil:
			return because(ctx, fmt.Errorf("the stream broke off: %w", err))
		}
	}
}

// because prefers what has cut a request off to what that looked like.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

func (w *watcher) ask(ctx context.Context) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.at, http.NoBody)
	if err != nil {
		return nil, usage(errors.New("--backend isn't an address of a back end"))
	}
	req.Header.Set("Accept", "text/event-stream")
	if last := w.parser.LastID(); last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return nil, unreachable(err)
	}
	media, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	if resp.StatusCode == http.StatusOK && media == "text/event-stream" {
		return resp, nil
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusOK:
		return nil, refused(errors.New("there is no governor at --backend; it has to be the back-end port of a gateway, or the port of downlink governor"))
	case err != nil:
		return nil, fmt.Errorf("the answer broke off: %w", err)
	}
	return nil, refusalOf(resp.StatusCode, answer)
}

// print writes an event. The state is told once: later ones only repeat what the
// changes have said.
func (w *watcher) print(e frame.Event) error {
	w.heard++
	text := ""
	switch {
	case w.json && json.Valid([]byte(e.Data)):
		line, _ := json.Marshal(map[string]any{"event": e.Type, "data": json.RawMessage(e.Data)})
		text = string(line) + "\n"
	case e.Type == "state" && w.heard == 1:
		text = levers(e.Data)
	case e.Type == "change":
		text = changeLine(e.Data)
	case e.Type == "gap":
		text = gapLine(e.Data)
	}
	if _, err := io.WriteString(w.out, text); err != nil {
		return fmt.Errorf("%w: %w", errNotPrinted, err)
	}
	return nil
}

func levers(data string) string {
	var v api.View
	if json.Unmarshal([]byte(data), &v) != nil {
		return ""
	}
	words := make([]string, 0, len(v.Levers))
	for _, l := range v.Levers {
		word := visible(l.Name) + " " + percent(l.Ratio)
		if l.Ratio < 1 {
			word += " by " + orDash(l.Signal)
		}
		words = append(words, word)
	}
	if !v.On {
		words = append(words, "the governor is off")
	}
	return "now: " + strings.Join(words, ", ") + "\n"
}

func changeLine(data string) string {
	var c governor.Change
	if json.Unmarshal([]byte(data), &c) != nil {
		return ""
	}
	allows := ""
	if c.Maximum != nil {
		allows = " (" + visible(bound(*c.Maximum, c.Unit)) + ")"
	}
	return fmt.Sprintf("%s  %s %s: %s to %s%s: %s\n", c.At.Local().Format(time.DateTime), visible(c.Lever), visible(string(c.Kind)), percent(c.Before), percent(c.After), allows, visible(c.Why))
}

func gapLine(data string) string {
	var g api.Gap
	if json.Unmarshal([]byte(data), &g) != nil {
		return ""
	}
	if g.Restarted {
		return "the governor was started again: what happened between isn't known\n"
	}
	return fmt.Sprintf("%d changes between aren't remembered any more\n", g.Next-g.After-1)
}
