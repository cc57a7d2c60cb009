package client

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestFinalAnswers(t *testing.T) {
	for code, want := range map[int]error{
		401: ErrUnauthorized, 204: ErrRevoked, 403: ErrRefused, 404: ErrRefused, 400: ErrRefused, 405: ErrRefused, 206: ErrRefused, 304: ErrRefused,
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newGateway(t, answers(code, "Content-Type", "text/event-stream"))
			d := play(t, g, &device{}, time.Hour, nil)
			if !errors.Is(d.err, want) || len(g.requests) != 1 {
				t.Errorf("%d: Run: %v after %d requests, want %v after one", code, d.err, len(g.requests), want)
			}
		})
	}
}

// TestFinalAnswersSayWhy: what the gateway says about its answer is shown, as
// far as it is plain text, in bounded length and without steering a terminal.
func TestFinalAnswersSayWhy(t *testing.T) {
	says := func(code int, kind, text string) step {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(code)
			_, _ = w.Write([]byte(text))
		}
	}
	for want, s := range map[string]step{
		`again; it says "the token expired"`: says(401, "text/plain; charset=utf-8", "the token expired\n"),
		`Bad Request); it says "two tokens"`: says(400, "text/plain", "two tokens"),
		`it says "\x1b[2Jx"`:                 says(403, "text/plain", "\x1b[2Jx"),
		`Not Found)`:                         says(404, "text/html", "<p>"),
		strings.Repeat("y", maxReason) + `"`: says(401, "text/plain", strings.Repeat("y", 1000)),
		`it says "plain"`: func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			w.WriteHeader(400)
			_, _ = w.Write([]byte("plain"))
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := play(t, newGateway(t, s), &device{}, time.Hour, nil)
			if !strings.HasSuffix(d.err.Error(), want) || !(errors.Is(d.err, ErrUnauthorized) || errors.Is(d.err, ErrRefused)) {
				t.Errorf("%v, want …%s", d.err, want)
			}
		})
	}
}

func TestContentTypes(t *testing.T) {
	for value, ok := range map[string]bool{
		"text/event-stream": true, "Text/Event-Stream; charset=utf-8": true, "text/event-stream;": true, " text/event-stream ;x": true,
		"text/html; charset=utf-8": false, "text/event-stream2": false, "": false, "x y": false,
	} {
		err := checkContentType(value, eventStream)
		if ok != (err == nil) || (!ok && !errors.Is(err, ErrContentType)) {
			t.Errorf("%q: %v", value, err)
		}
	}
}

func TestRefusalsAreTriedAgain(t *testing.T) {
	for _, code := range []int{500, 502, 503, 504, 429, 408, 425} {
		synctest.Test(t, func(t *testing.T) {
			g := newGateway(t, answers(code, "Retry-After", "20", "Downlink-Refused", "draining"), holds("data: a\n\n"))
			d := play(t, g, &device{}, time.Hour, nil)
			wantEqual(t, "events", d.seen, []string{"=a"})
			wantBetween(t, "wait", g.waits()[0], 20*time.Second, 25*time.Second)
			if text := d.status[0].Err.Error(); !strings.Contains(text, "draining") {
				t.Errorf("status %q doesn't name the gateway's reason", text)
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for value, want := range map[string]time.Duration{
			"": 0, "0": 0, "7": 7 * time.Second, "-7": 0, "7.5": 0, "soon": 0, "99999999999999999999": 0,
			time.Now().Add(90 * time.Second).UTC().Format(http.TimeFormat): 90 * time.Second,
			time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat):       0,
		} {
			if got := retryAfter(value); got != want {
				t.Errorf("%q: %v, want %v", value, got, want)
			}
		}
	})
}

// TestBackoff: delays grow while the gateway fails, up to a bound, and start
// anew after a stream.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		steps := []step{sends("retry: 1000\n\n")}
		for range 200 {
			steps = append(steps, answers(502))
		}
		g := newGateway(t, append(steps, sends(""))...)
		play(t, g, &device{}, 24*time.Hour, nil)
		waits := g.waits()
		if len(waits) != 202 {
			t.Fatalf("%d requests, want all", len(waits)+1)
		}
		wantBetween(t, "after the stream", waits[0], time.Second, 1250*time.Millisecond)
		wantBetween(t, "after the first failure", waits[1], time.Second, 1250*time.Millisecond)
		wantBetween(t, "after the second failure", waits[2], time.Second, 2250*time.Millisecond)
		var longest time.Duration
		for _, w := range waits {
			longest = max(longest, w)
		}
		wantBetween(t, "longest", longest, 40*time.Second, time.Minute+1250*time.Millisecond)
		wantBetween(t, "after the next stream", waits[201], time.Second, 1250*time.Millisecond)
	})
}

func TestRetryBounds(t *testing.T) {
	for field, want := range map[string]time.Duration{
		"retry: 0": minRetry, "retry: 99999999999999": maxRetry, "": defaultRetry, "retry: 700": 700 * time.Millisecond,
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newGateway(t, sends(field+"\n\n"))
			play(t, g, &device{}, 2*time.Hour, nil)
			wantBetween(t, field, g.waits()[0], want, want*5/4)
		})
	}
}

// TestJitter: devices that were cut off together don't come back together.
func TestJitter(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			g := newGateway(t, sends("retry: 1000\n\n"))
			play(t, g, &device{}, time.Minute, nil)
			seen[g.waits()[0]] = true
		})
	}
	if len(seen) < 10 {
		t.Errorf("20 devices waited %d different times", len(seen))
	}
}

func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t, holds("retry: 1000\n\n"))
		g.client.Silence = 0 // the default
		d := play(t, g, &device{}, 100*time.Second, nil)
		wantBetween(t, "wait", g.waits()[0], DefaultSilence+time.Second, DefaultSilence+1250*time.Millisecond)
		if !errors.Is(d.status[1].Err, errSilent) {
			t.Errorf("status %v, want errSilent", d.status[1].Err)
		}
	})
}

func TestSilenceBeforeTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		g.client.Silence = 10 * time.Second
		d := play(t, g, &device{}, 15*time.Second, nil)
		if len(g.requests) != 2 || !errors.Is(d.status[0].Err, errSilent) {
			t.Errorf("%d requests, status %+v", len(g.requests), d.status)
		}
	})
}

func TestKeepAlivesAreNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t, func(w http.ResponseWriter, r *http.Request) {
			for range 60 {
				stream(w, ": ping\n\n")
				pass(20 * time.Second)
			}
		})
		g.client.Silence = 30 * time.Second
		play(t, g, &device{}, 10*time.Minute, nil)
		if len(g.requests) != 1 {
			t.Errorf("%d requests, want one", len(g.requests))
		}
	})
}

// TestSlowHandlerIsNoSilence: while the device works nothing is read, and that
// isn't the gateway's fault.
func TestSlowHandlerIsNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t, func(w http.ResponseWriter, r *http.Request) {
			stream(w, "id: 1-0\ndata: a\n\n")
			pass(5 * time.Minute)
			stream(w, "id: 2-0\ndata: b\n\n")
			<-r.Context().Done()
		})
		g.client.Silence = time.Minute
		var seen int
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute+10*time.Second)
		defer cancel()
		_ = g.client.Run(ctx, Handler{Event: func(context.Context, Event) error {
			seen++
			if seen == 1 {
				pass(5*time.Minute - time.Second)
			}
			return nil
		}})
		if seen != 2 || len(g.requests) != 1 {
			t.Errorf("%d events over %d connections, want 2 over one", seen, len(g.requests))
		}
	})
}

func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t, sends("retry: 1000\n\n"), answers(404))
		d := play(t, g, &device{}, time.Minute, nil)
		if len(d.status) != 2 || !d.status[0].Connected || d.status[1].Connected || d.status[1].Err != nil {
			t.Fatalf("status %+v, want connected, then ended in order", d.status)
		}
		wantBetween(t, "announced wait", d.status[1].Wait, time.Second, 1250*time.Millisecond)
		if got := g.waits()[0]; got != d.status[1].Wait {
			t.Errorf("waited %v and announced %v", got, d.status[1].Wait)
		}
	})
}
