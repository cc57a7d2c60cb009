package sse

import (
	"errors"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"downlink/internal/session"
)

// nobody is woken.
type nobody struct{}

func (nobody) Wake() {}

// TestStreamsEndWithTheirCredential: none before it expires, none later than
// expirySpread after, and not all at once. An earlier maximum age wins.
func TestStreamsEndWithTheirCredential(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(Options{Retry: time.Second})
		const hour = time.Hour
		began := time.Now()
		sessions := make([]*session.Session, 1000)
		for i := range sessions {
			sessions[i] = session.New("a", nobody{}, &session.Options{})
			defer h.age(sessions[i], began.Add(hour)).Stop()
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
		at(hour+expirySpread, 1000, 1000)
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
				h := New(Options{Retry: time.Second, MaxAge: c.maxAge})
				s := session.New("a", nobody{}, &session.Options{})
				var expires time.Time
				if c.expires != 0 {
					expires = time.Now().Add(c.expires)
				}
				if timer := h.age(s, expires); timer != nil {
					defer timer.Stop()
				}
				time.Sleep(2 * time.Minute) //nolint:forbidigo // in a bubble
				synctest.Wait()
				if got := s.Ended(); got != c.want {
					t.Errorf("%q, want %q", got, c.want)
				}
			})
		})
	}
}

// TestUnidentified: each kind of "no" has its answer, and none leaves a session.
func TestUnidentified(t *testing.T) {
	var answer error
	r := newRig(t, func(o *Options) {
		o.Identify = func(*http.Request) (Identity, error) { return Identity{}, answer }
	})
	for _, c := range []struct {
		err       error
		status    int
		challenge string
		refused   string
		body      string
	}{
		{&UnauthorizedError{Status: 401, Reason: "it is old", Challenge: "Bearer x"}, 401, "Bearer x", "", "it is old"},
		{&UnauthorizedError{Status: 400, Reason: "two of them", Challenge: "Bearer y"}, 400, "Bearer y", "", "two of them"},
		{&LaterError{RefusedNoKeys}, 200, "", "keys_unavailable", ": refused: keys_unavailable"},
		{&RefusedError{http.StatusNotFound, "not here"}, 404, "", "", "not here"},
		{errors.New("odd"), 400, "", "", "odd"},
	} {
		answer = c.err
		_, resp, body := r.get("/events")
		text, err := io.ReadAll(body)
		if err != nil || resp.StatusCode != c.status || resp.Header.Get("WWW-Authenticate") != c.challenge ||
			resp.Header.Get("Downlink-Refused") != c.refused || !strings.Contains(string(text), c.body) {
			t.Errorf("%v: %s %v %q, %v", c.err, resp.Status, resp.Header, text, err)
		}
		if c.status == 401 && resp.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("a 401 may be kept by a cache: %v", resp.Header)
		}
	}
	if n := testutil.ToFloat64(r.metrics.Connections); n != 0 {
		t.Errorf("%v streams were opened", n)
	}
	if n := testutil.ToFloat64(r.metrics.Rejected); n != 4 {
		t.Errorf("%v rejections are counted", n)
	}
}
