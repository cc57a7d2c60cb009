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
	"syscall"
	"time"

	"downlink/internal/config"
	"downlink/internal/drain"
)

// drainCmd takes a running gateway out of service.
type drainCmd struct {
	Hasten  bool          `name:"hasten" xor:"what" help:"Close everything at once; devices are told to come back one after the other all the same."`
	Abort   bool          `name:"abort" xor:"what" help:"Take a drain back. It can't be once connections are being closed, or if a signal has begun it."`
	Show    bool          `name:"show" xor:"what" help:"Change nothing: print how far a drain has come, or what one would take now."`
	NoWait  bool          `name:"no-wait" help:"Begin, and don't wait for the end."`
	JSON    bool          `name:"json" help:"Print the gateway's last answer as it is."`
	Timeout time.Duration `default:"5s" help:"How long one request may take."`

	backendFlags `embed:""`
}

// Run asks the gateway, and waits until it is drained.
func (c *drainCmd) Run(loader *config.Loader, io console) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	at, err := c.at(drain.Path)
	if err != nil {
		return usage(err)
	}
	client, err := c.client(loader, c.Timeout, "")
	if err != nil {
		return usage(err)
	}
	defer client.CloseIdleConnections()
	method, body := http.MethodPost, []byte(nil)
	switch {
	case c.Show:
		method = http.MethodGet
	case c.Abort:
		method = http.MethodDelete
	case c.Hasten:
		body = []byte(`{"hasten":true}`)
	}
	a, err := ask(ctx, client, method, at, body)
	if err != nil {
		return err
	}
	if !c.Show && !c.Abort && !c.NoWait {
		w := follower{client: client, at: at, notes: io.err, line: newProgress(io.err).w != nil}
		if a, err = w.follow(ctx, a); err != nil {
			return err
		}
	}
	return c.tell(io.out, a)
}

// An account is what the gateway says of a drain.
type account struct {
	drain.Status
	raw []byte
}

func ask(ctx context.Context, client *http.Client, method, at string, body []byte) (account, error) {
	status, answer, err := exchange(ctx, client, method, at, body)
	if err != nil {
		return account{}, err
	}
	if status != http.StatusOK && status != http.StatusAccepted {
		return account{}, refusalOf(status, answer)
	}
	a := account{raw: answer}
	if json.Unmarshal(a.raw, &a.Status) != nil || a.Phase == "" {
		return account{}, errors.New("the answer is not a gateway's; is this its back-end port?")
	}
	return a, nil
}

// tell prints how it stands. Its error says so if a drain was begun that isn't
// there any more.
func (c *drainCmd) tell(out io.Writer, a account) error {
	text := sentence(a.Status) + "\n"
	if c.JSON {
		text = string(a.raw)
	}
	if _, err := io.WriteString(out, text); err != nil {
		return err
	}
	switch {
	case c.Show || c.Abort || c.NoWait:
		return nil
	case a.Phase == drain.Serving:
		return &coded{exitMissed, errors.New("the drain was aborted; the gateway serves")}
	case a.Phase == drain.Closed && a.Connections > 0:
		return &coded{exitMissed, fmt.Errorf("%d connections didn't close in time; they are cut", a.Connections)}
	}
	return nil
}

// sentence is for people.
func sentence(s drain.Status) string {
	p := s.Plan
	switch s.Phase {
	case drain.Serving:
		return fmt.Sprintf("serving: %d connections; a drain would take up to %s%s", s.Connections, duration(p.TotalS), surplus(s))
	case drain.Waiting:
		return fmt.Sprintf("waiting until nothing in front sends devices here: %d connections", s.Connections)
	case drain.Telling:
		return fmt.Sprintf("telling devices when to come back: %d of %d", s.Told, s.Found)
	case drain.Closing:
		return fmt.Sprintf("closing: %d of %d connections are left", s.Connections, s.Found)
	default:
		return fmt.Sprintf("drained: %d of %d connections are left", s.Connections, s.Found)
	}
}

// surplus says whether a gateway holds more than its share.
func surplus(s drain.Status) string {
	r := s.Rebalance
	if r == nil || r.Surplus == 0 {
		return ""
	}
	return fmt.Sprintf("; it holds %d more than each of %d gateways on the average, which are to be spread: %s", r.Surplus, r.Gateways, r.State)
}

func duration(seconds float64) time.Duration {
	return time.Duration(seconds * float64(time.Second)).Round(100 * time.Millisecond)
}

// A follower follows a drain.
type follower struct {
	client *http.Client
	at     string
	notes  io.Writer
	line   bool // a person watches: one line that changes

	said  string
	phase drain.Phase
	when  time.Time
}

const (
	// watchEvery is how often the gateway is asked, and sayEvery how often that is
	// told where nobody watches.
	watchEvery = 500 * time.Millisecond
	sayEvery   = 10 * time.Second
	// goneAfter is how many questions without an answer mean that the gateway is
	// gone.
	goneAfter = 3
)

// follow asks until the gateway is drained, or gone, which is what a drain comes
// to, or serves again.
func (w *follower) follow(ctx context.Context, a account) (account, error) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	defer w.end()
	for silent := 0; silent < goneAfter; {
		w.say(a.Status)
		if a.Phase == drain.Closed || a.Phase == drain.Serving {
			return a, nil
		}
		select {
		case <-ctx.Done():
			return a, nil
		case <-tick.C:
		}
		next, err := ask(ctx, w.client, http.MethodGet, w.at, nil)
		_, refused := errors.AsType[*coded](err)
		switch {
		case ctx.Err() != nil:
			return a, nil
		case refused:
			return a, err
		case err != nil:
			silent++
		default:
			a, silent = next, 0
		}
	}
	if !a.Final && a.Phase != drain.Closed { // it stays for a while to say that it is
		return a, fmt.Errorf("the gateway has ended before it was drained; %s", sentence(a.Status))
	}
	a.Phase, a.Connections = drain.Closed, 0 // nobody can be connected to it
	return a, nil
}

func (w *follower) say(s drain.Status) {
	text := sentence(s)
	if s.WithinS != nil {
		text += fmt.Sprintf(", at the latest %s from now", duration(*s.WithinS).Round(time.Second))
	}
	switch {
	case w.line:
		fmt.Fprintf(w.notes, "\r%-*s", len(w.said), text) //nolint:errcheck // nowhere else to complain
	case s.Phase != w.phase || time.Since(w.when) >= sayEvery:
		fmt.Fprintln(w.notes, text) //nolint:errcheck // nowhere else to complain
		w.when = time.Now()
	}
	w.said, w.phase = text, s.Phase
}

func (w *follower) end() {
	if w.line {
		fmt.Fprintln(w.notes) //nolint:errcheck // nowhere else to complain
	}
}
