package sse

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"downlink/internal/door"
	"downlink/internal/session"
)

// nobody is woken.
type nobody struct{}

func (nobody) Wake() {}

func (nobody) Peer() (address, protocol string) { return "", "" }

// TestStreamsEndWithTheirCredential: none before it expires, none later than
// expirySpread after, and not all at once. An earlier maximum age wins.
func TestStreamsEndWithTheirCredential(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(Options{Retry: time.Second, Ages: book(t)})
		const hour = time.Hour
		began := time.Now()
		sessions := make([]*session.Session, 1000)
		for i := range sessions {
			sessions[i] = session.New("a", nobody{}, &session.Options{})
			defer h.age(sessions[i], began.Add(hour)).Strike()
		}
		ended := func() (n int) {
			for _, s := range sessions {
				if s.Ended() == session.Expired {
					n++
				}
			}
			return n
		}
		at := func(after time.Duration, least, most int) {
			t.Helper()
			time.Sleep(time.Until(began.Add(after))) //nolint:forbidigo // in a bubble
			synctest.Wait()
			if n := ended(); n < least || n > most {
				t.Errorf("after %v: %d have ended", after, n)
			}
		}
		at(hour-1, 0, 0)
		at(hour+time.Second, 100, 300)
		at(hour+expirySpread/2, 400, 600)
		at(hour+expirySpread+10*time.Millisecond, 1000, 1000) // the book's grain is 5 ms
	})
}

func TestWhatEndsFirst(t *testing.T) {
	for name, c := range map[string]struct {
		maxAge  time.Duration
		expires time.Duration // from now; 0: never
		want    session.EndReason
	}{
		"neither":           {0, 0, ""},
		"age alone":         {time.Minute, 0, session.Lifetime},
		"age first":         {time.Minute, time.Hour, session.Lifetime},
		"expiry first":      {time.Hour, time.Minute, session.Expired},
		"expired already":   {0, -time.Hour, session.Expired},
		"expires very late": {0, math.MaxInt64, ""},
		"late, with age":    {time.Minute, math.MaxInt64, session.Lifetime},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := New(Options{Retry: time.Second, MaxAge: c.maxAge, Ages: book(t)})
				s := session.New("a", nobody{}, &session.Options{})
				var expires time.Time
				if c.expires != 0 {
					expires = time.Now().Add(c.expires)
				}
				h.age(s, expires)
				time.Sleep(2 * time.Minute) //nolint:forbidigo // in a bubble
				synctest.Wait()
				if got := s.Ended(); got != c.want {
					t.Errorf("%q, want %q", got, c.want)
				}
			})
		})
	}
}

// TestNobodyPasses: each kind of "no" has its answer, and none leaves a session.
func TestNobodyPasses(t *testing.T) {
	var (
		answer, used error
		revoked      bool
		redeemed     atomic.Int32
		admit        = door.RefusedDraining
	)
	r := newRigBehind(t, door.Options{
		Identify: func(*http.Request) (door.Identity, error) {
			return door.Identity{Device: "a", Redeem: func(context.Context) (door.Identity, string, error) {
				redeemed.Add(1)
				return door.Identity{Device: "b", Groups: []string{"g"}}, "ticket=1", used
			}}, answer
		},
		Revoked: func(device string) bool { return revoked && device == "a" },
		Admit: func(*http.Request, door.Pass) door.No {
			return door.No{Why: admit, Retry: time.Second}
		},
	}, nil)
	check := func(err error, status int, header, value, says string) {
		t.Helper()
		answer = err
		_, resp, body := r.get("/events")
		text, err := io.ReadAll(body)
		if err != nil || resp.StatusCode != status || resp.Header.Get(header) != value || !strings.Contains(string(text), says) {
			t.Errorf("%v: %s %v %q, %v", answer, resp.Status, resp.Header, text, err)
		}
		if (status == 401 || status == 204) && resp.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("a %d may be kept by a cache: %v", status, resp.Header)
		}
		if got := resp.Header.Get("Set-Cookie"); got != "" {
			t.Errorf("%v sets the cookie %q", answer, got)
		}
	}
	check(&door.UnauthorizedError{Status: 401, Reason: "it is old", Challenge: "Bearer x"}, 401, "WWW-Authenticate", "Bearer x", "it is old")
	check(&door.UnauthorizedError{Status: 400, Reason: "two of them", Challenge: "Bearer y"}, 400, "WWW-Authenticate", "Bearer y", "two of them")
	check(&door.LaterError{Refusal: door.RefusedNoKeys}, 200, "Downlink-Refused", "keys_unavailable", ": refused: keys_unavailable")
	check(&door.RefusedError{Status: http.StatusNotFound, Reason: "not here"}, 404, "Downlink-Refused", "", "not here")
	check(errors.New("odd"), 400, "Downlink-Refused", "", "odd")
	check(nil, 200, "Downlink-Refused", "draining", ": refused: draining")
	revoked = true
	check(nil, 204, "Downlink-Refused", "", "")
	if redeemed.Load() != 0 {
		t.Errorf("what lets in once was used up %d times by who got nothing", redeemed.Load())
	}
	revoked, admit = false, ""
	used = &door.UnauthorizedError{Status: 401, Reason: "used before"}
	check(nil, 401, "Downlink-Refused", "", "used before")
	used = &door.LaterError{Refusal: door.RefusedNoTickets}
	check(nil, 200, "Downlink-Refused", "tickets_unavailable", ": refused: tickets_unavailable")
	for name, c := range map[string]struct {
		counter prometheus.Counter
		want    float64
	}{
		"streams":    {r.metrics.Connections, 0},
		"rejections": {r.refused.Rejected, 5},
		"revoked":    {r.refused.Revoked, 1},
	} {
		if n := testutil.ToFloat64(c.counter); n != c.want {
			t.Errorf("%s: %v are counted, want %v", name, n, c.want)
		}
	}
}

// TestRedeeming: what lets in once is used up by who gets something, whose
// identity is the one that it then has; and by nothing that holds nothing.
func TestRedeeming(t *testing.T) {
	var redeemed atomic.Int32
	r := newRigBehind(t, door.Options{Identify: func(*http.Request) (door.Identity, error) {
		return door.Identity{Device: "a", Redeem: func(context.Context) (door.Identity, string, error) {
			redeemed.Add(1)
			return door.Identity{Device: "b", Groups: []string{"g"}}, "ticket=1", nil
		}}, nil
	}}, nil)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodHead, r.server.URL+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := r.server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 || redeemed.Load() != 0 {
		t.Errorf("HEAD: %s, used up %d times", resp.Status, redeemed.Load())
	}
	// The cursor is held against the groups that it is redeemed with.
	_, resp, body := r.get("/events", "Last-Event-ID: 5-0", door.GroupsHeader+": "+door.GroupsValue(nil))
	line := ""
	for !strings.HasPrefix(line, "data: ") && err == nil {
		line, err = body.ReadString('\n')
	}
	if !strings.Contains(line, "groups-changed") {
		t.Errorf("%q, %v", line, err)
	}
	if resp.Header.Get("Set-Cookie") != "ticket=1" || resp.Header.Get(door.GroupsHeader) != door.GroupsValue([]string{"g"}) || redeemed.Load() != 1 {
		t.Errorf("%v, used up %d times", resp.Header, redeemed.Load())
	}
}
