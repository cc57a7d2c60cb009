package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// polls is a step that answers a poll after a while.
func polls(after time.Duration, body string, header ...string) step {
	return func(w http.ResponseWriter, r *http.Request) {
		pass(after)
		w.Header().Set("Content-Type", "application/json")
		answers(http.StatusOK, header...)(w, r)
		_, _ = io.WriteString(w, body) // a client that has gone is the test's intent
	}
}

func polled1(id, data string) string {
	return fmt.Sprintf(`{"events":[{"id":%q,"type":"t","data":%q}],"cursor":%q,"retry_ms":0}`, id, data, id)
}

// TestPolls: each answer is handled and committed, the next poll follows at once
// and says how far the device has come.
func TestPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t,
			polls(0, `{"events":[{"id":"1-0","type":"resync","data":"{\"reason\":\"no-cursor\",\"after_ms\":0}"}],"cursor":"1-0","retry_ms":0}`, "Downlink-Groups", "g1"),
			polls(time.Second, `{"events":[{"id":"2-0","type":"t","data":"a\nb"},{"id":"3-0","type":"u","data":""}],"cursor":"3-0","retry_ms":0,"later":[{}]}`, "Downlink-Groups", "g2"),
			polls(30*time.Second, `{"events":[],"cursor":"9-0","retry_ms":0}`, "Downlink-Groups", "g2"),
			polls(30*time.Second, `{"events":[],"retry_ms":0}`, "Downlink-Groups", "g3"),
		)
		g.client.Poll, g.client.Device = true, "a"
		var resyncs []string
		d := play(t, g, &device{}, 70*time.Second, func(_ context.Context, r Resync) error {
			resyncs = append(resyncs, r.ID+" "+r.Reason)
			return nil
		})
		wantEqual(t, "handled", d.seen, []string{"2-0=a\nb", "3-0="})
		wantEqual(t, "resyncs", resyncs, []string{"1-0 no-cursor"})
		wantEqual(t, "cursors", g.lastEventIDs(), []string{"", "1-0", "3-0", "9-0", "9-0"})
		wantEqual(t, "kept", d.store.Cursor, Cursor{ID: "9-0", Groups: "g2"})
		wantEqual(t, "waits", g.waits(), []time.Duration{0, time.Second, 30 * time.Second, 30 * time.Second})
		wantEqual(t, "status", d.status, []Status{{Connected: true}})
		r := g.requests[1]
		wantEqual(t, "request", r.URL.String(), "/poll?device=a")
		wantEqual(t, "Accept", r.Header.Get("Accept"), "application/json")
		wantEqual(t, "groups", r.Header.Get("Downlink-Groups"), "g1")
	})
}

// TestPollsCommitAfterHandling: what a handler hasn't finished comes again.
func TestPollsCommitAfterHandling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t, polls(0, `{"events":[{"id":"1-0","type":"t","data":"good"},{"id":"2-0","type":"t","data":"bad"}],"cursor":"2-0","retry_ms":0}`))
		g.client.Poll = true
		d := play(t, g, &device{}, time.Minute, nil)
		if !errors.Is(d.err, errBad) {
			t.Error(d.err)
		}
		wantEqual(t, "kept", d.store.Cursor, Cursor{ID: "1-0"})
		g.steps = []step{nil, polls(0, `{"events":[{"id":"1-0","type":"t","data":"again"},{"id":"2-0","type":"t","data":"now"}],"cursor":"2-0","retry_ms":0}`)}
		d2 := play(t, g, &device{store: d.store}, time.Minute, nil)
		wantEqual(t, "handled", d2.seen, []string{"2-0=now"})
	})
}

// TestPollsWaitAsAsked: after an end in order as long as its answer says, and
// after a refusal as long as Retry-After does.
func TestPollsWaitAsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t,
			polls(0, `{"events":[{"id":"1-0","type":"t","data":"a"}],"cursor":"1-0","retry_ms":8000}`),
			answers(503, "Retry-After", "20", "Downlink-Refused", "draining"),
			polls(0, polled1("2-0", "b")),
			polls(0, polled1("3-0", "c")),
			polls(0, `{"events":[{"id":"4-`), // cut
			polls(0, `<html>`),
			polls(0, polled1("4-0", "d")),
		)
		g.client.Poll = true
		d := play(t, g, &device{}, 5*time.Minute, nil)
		wantEqual(t, "handled", d.seen, []string{"1-0=a", "2-0=b", "3-0=c", "4-0=d"})
		waits := g.waits()
		wantBetween(t, "after an end", waits[0], 8*time.Second, 10*time.Second)
		wantBetween(t, "after a refusal", waits[1], 20*time.Second, 25*time.Second)
		wantEqual(t, "between polls", waits[2:4], []time.Duration{0, 0})
		wantBetween(t, "after a broken answer", waits[4], defaultRetry, 2*defaultRetry)
		wantBetween(t, "after another", waits[5], defaultRetry, 4*defaultRetry)
		if s := d.status[1]; s.Err != nil || s.Wait < 8*time.Second {
			t.Errorf("%+v", s)
		}
	})
}

// TestPollsThatEnd: what is final for a stream is final for a poll, and says
// why.
func TestPollsThatEnd(t *testing.T) {
	problem := func(w http.ResponseWriter, r *http.Request) {
		answers(401, "Content-Type", "application/problem+json")(w, r)
		_, _ = io.WriteString(w, `{"title":"Unauthorized","status":401,"detail":"the token expired"}`)
	}
	for name, c := range map[string]struct {
		step step
		want error
		says string
	}{
		"revoked":      {answers(204), ErrRevoked, ""},
		"unauthorized": {problem, ErrUnauthorized, `it says "the token expired"`},
		"login page":   {answers(200, "Content-Type", "text/html"), ErrContentType, "text/html"},
		"a stream":     {sends("data: x\n\n"), ErrContentType, "event-stream"},
		"too large":    {polls(0, polled1("1-0", strings.Repeat("x", 2000))), ErrEventTooLarge, "1000"},
		"endless":      {polls(0, strings.Repeat(" ", 7<<20)), ErrEventTooLarge, "1000"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGateway(t, c.step)
				g.client.Poll, g.client.MaxEventBytes = true, 1000
				d := play(t, g, &device{}, time.Minute, nil)
				if !errors.Is(d.err, c.want) || !strings.Contains(d.err.Error(), c.says) {
					t.Error(d.err)
				}
			})
		})
	}
}

// TestSilentPoll: no answer long after one was due counts as a dead connection.
func TestSilentPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t, holds(""), polls(0, polled1("1-0", "a")))
		g.steps[0] = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		g.client.Poll, g.client.Silence = true, time.Minute
		d := play(t, g, &device{}, 5*time.Minute, nil)
		wantEqual(t, "handled", d.seen, []string{"1-0=a"})
		wantBetween(t, "the wait", g.waits()[0], pollWait+time.Minute, pollWait+time.Minute+2*defaultRetry)
	})
}
