package poll

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"downlink/internal/door"
	"downlink/internal/limits"
	"downlink/internal/session"
	"downlink/internal/testkit"
)

// TestAnAnswer: what a poll brings, member by member.
func TestAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(1<<20, nil)
		began := time.Now()
		first := r.get(t, "/poll?device=a", "")
		if len(first.Events) != 1 || first.Events[0].Type != "resync" || first.Events[0].ID != "1000-0" ||
			first.Events[0].Data != `{"reason":"no-cursor","after_ms":0}` || *first.Cursor != "1000-0" {
			t.Fatalf("%+v", first)
		}
		if first.Header.Get("Content-Type") != "application/json" || first.Header.Get("Cache-Control") != "no-store" ||
			first.Header.Get(door.GroupsHeader) != door.GroupsValue(nil) {
			t.Error(first.Header)
		}
		if took := time.Since(began); took > moment {
			t.Errorf("the answer took %v", took)
		}
		c := r.call("/poll?device=a", *first.Cursor)
		synctest.Wait()
		if n := r.roster.Len(); n != 1 {
			t.Errorf("%d sessions while it waits", n)
		}
		pass(10 * time.Second)
		r.publish("b", "for another")
		r.publish("a", "line 1\r\nline \"2\"\t\u2028")
		pass(moment / 2)
		last := r.publish("a", "") // in the same moment
		second := read(t, <-c.done)
		if want := []string{"line 1\nline \"2\"\t\u2028", ""}; !slices.Equal(second.datas(), want) || *second.Cursor != last.String() || second.Retry != 0 {
			t.Fatalf("%+v", second)
		}
		if took := time.Since(began); took < 10*time.Second || took > 10*time.Second+3*moment {
			t.Errorf("the answer took %v", took)
		}
	})
}

// TestNothingCame: an empty answer after wait, whose cursor has moved with the
// shard, so that a quiet device's never ages out.
func TestNothingCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(1<<20, nil)
		for target, wait := range map[string]time.Duration{
			"/poll?device=a": defaultWait, "/poll?device=a&wait=7": 7 * time.Second, "/poll?device=a&wait=60": time.Minute, "/poll?wait=0&device=a": 0,
		} {
			before, began := r.head, time.Now()
			c := r.call(target, before.String())
			moved := r.publish("b", "x")
			a := read(t, <-c.done)
			if took := time.Since(began); took != wait {
				t.Errorf("%s took %v", target, took)
			}
			if len(a.Events) != 0 || *a.Cursor != moved.String() && *a.Cursor != before.String() {
				t.Errorf("%s: %+v", target, a)
			}
			if wait > 0 && (*a.Cursor != moved.String() || a.Retry != 0) || wait == 0 && (a.Retry < 1500 || a.Retry > 4500) {
				t.Errorf("%s: cursor %s, retry %d", target, *a.Cursor, a.Retry)
			}
		}
	})
}

// TestManyEvents: an answer is bounded, and the next one goes on where it ended.
func TestManyEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(1<<20, nil)
		var want, got []string
		cursor := r.head.String()
		for i := range 23 {
			want = append(want, strings.Repeat("x", i))
			r.publish("a", want[i])
		}
		for polls := 0; len(got) < len(want); polls++ {
			a := r.get(t, "/poll?device=a", cursor)
			if len(a.Events) == 0 || len(a.Events) > 5 || polls > 10 {
				t.Fatalf("poll %d brings %d events", polls, len(a.Events))
			}
			got, cursor = append(got, a.datas()...), *a.Cursor
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q", got)
		}
	})
}

// TestNeverWaitingIsNoReasonToGetNothing: a client that asks with wait=0 and
// whose cursor only the log can serve gets its events all the same.
func TestNeverWaitingIsNoReasonToGetNothing(t *testing.T) {
	const cold = 1  // bytes of the hot window, which holds nothing then
	for range 200 { // it is asked whether all was read while it is being read
		synctest.Test(t, func(t *testing.T) {
			r := newRig(cold, nil)
			defer run(r)()
			cursor := r.head.String()
			r.publish("a", "one")
			if a := r.get(t, "/poll?device=a&wait=0", cursor); !slices.Equal(a.datas(), []string{"one"}) {
				t.Errorf("%+v", a)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(cold, nil)
		defer run(r)()
		cursor := r.head.String()
		r.publish("a", "one")
		r.log.away = true
		began := time.Now()
		a := r.get(t, "/poll?device=a&wait=0", cursor)
		if took := time.Since(began); took < patience || took > patience+glance || len(a.Events) > 0 || *a.Cursor != cursor || a.Retry == 0 {
			t.Errorf("with the log away: %+v after %v", a, took)
		}
		if a := r.get(t, "/poll?device=a&wait=0&from=earliest", ""); a.Cursor != nil || len(a.Events) > 0 {
			t.Errorf("nobody knows where the device stands, and it is told %+v", a)
		}
	})
}

// TestEnds: whatever ends a session ends its poll at once.
func TestEnds(t *testing.T) {
	for reason, status := range map[session.EndReason]int{
		session.Draining: 200, session.Disconnected: 200, session.Withdrawn: 200, session.Revoked: 204,
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(1<<20, nil)
			c := r.call("/poll?device=a", r.head.String())
			pass(time.Second)
			r.publish("a", "just before")
			if reason == session.Draining {
				r.endAll(reason)
			} else {
				session.EndDevice(r.shards.Of("a"), "a", reason, nil)
			}
			a := read(t, <-c.done)
			if a.Status != status || status == 200 && (!slices.Equal(a.datas(), []string{"just before"}) || a.Retry < 1500 || a.Retry > 4500) {
				t.Errorf("%s: %+v", reason, a)
			}
			if n := r.outcomes(string(reason)); n != 1 || !slices.Equal(r.ended, []session.EndReason{reason}) || r.left() {
				t.Errorf("%s: %v outcomes, %v", reason, n, r.ended)
			}
		})
	}
}

func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		r := newRig(1<<20, func(_ *Options, before *door.Options) {
			before.Identify = func(r *http.Request) (door.Identity, error) {
				return door.Identity{Device: r.Header.Get("Device"), Expires: began.Add(10 * time.Second)}, nil
			}
		})
		polls := []*call{r.call("/poll", r.head.String()), r.call("/poll", r.head.String())}
		for _, c := range polls {
			a := read(t, <-c.done)
			if took := time.Since(began); took < 10*time.Second || took > 10*time.Second+expirySpread || a.Retry == 0 || a.Status != 200 {
				t.Errorf("after %v: %+v", took, a)
			}
		}
		if n := r.outcomes("expired"); n != 2 {
			t.Errorf("%v ended so", n)
		}
	})
}

// TestHangUp: nothing is taken from a device that has hung up, and nothing is
// left of it here.
func TestHangUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(1<<20, nil)
		cursor := r.head.String()
		c := r.call("/poll?device=a", cursor)
		synctest.Wait()
		c.hangUp()
		<-c.done
		if r.left() || r.outcomes("client_gone") != 1 {
			t.Error("the session is left")
		}
		r.publish("a", "later")
		if a := r.get(t, "/poll?device=a", cursor); !slices.Equal(a.datas(), []string{"later"}) {
			t.Errorf("%+v", a)
		}
	})
}

// TestRefusals are documents that a program reads.
func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var identity error
		r := newRig(1<<20, func(_ *Options, before *door.Options) {
			before.Identify = func(r *http.Request) (door.Identity, error) {
				id, err := door.Open(r)
				return id, errors.Join(err, identity)
			}
		})
		check := func(target string, status int, header, value, says string) {
			t.Helper()
			w := <-r.call(target, "").done
			var doc struct {
				Title, Detail string
				Status        int
			}
			if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil || w.Code != status || doc.Status != status ||
				w.Header().Get("Content-Type") != "application/problem+json" || !strings.Contains(doc.Detail, says) {
				t.Errorf("%s: %d %v %q", target, w.Code, w.Header(), w.Body)
			}
			if got := w.Header().Get(header); !strings.Contains(got, value) {
				t.Errorf("%s: %s %q", target, header, got)
			}
		}
		check("/poll", 400, "", "", "name the device")
		check("/poll?device=a&wait=61", 400, "", "", "0 to 60")
		check("/poll?device=a&wait=-1", 400, "", "", "0 to 60")
		check("/poll?device=a&wait=1&wait=2", 400, "", "", "0 to 60")
		check("/poll?device=a&wait=", 400, "", "", "0 to 60")
		check("/poll?device=a&from=now", 400, "", "", "earliest")
		identity = &door.UnauthorizedError{Status: 401, Reason: "it is old", Challenge: "Bearer x"}
		check("/poll?device=a", 401, "WWW-Authenticate", "Bearer x", "it is old")
		identity = &door.LaterError{Refusal: door.RefusedNoKeys}
		check("/poll?device=a", 503, "Retry-After", "", "keys_unavailable")
		identity = nil
		one, two := r.call("/poll?device=a", "1000-0"), r.call("/poll?device=a", "1000-0")
		synctest.Wait()
		check("/poll?device=a", 503, "Downlink-Refused", "streams_per_device", "streams_per_device")
		one.hangUp()
		<-one.done
		if r.get(t, "/poll?device=a&wait=0", "1000-0").Status != 200 {
			t.Error("its place wasn't given back")
		}
		r.endAll(session.Draining)
		<-two.done
		check("/poll?device=a", 503, "Downlink-Refused", "draining", "draining")
		w := httptest.NewRecorder()
		Starting(r.handler.opts.Door).ServeHTTP(w, httptest.NewRequest(http.MethodGet, Path, nil))
		if w.Code != 503 || w.Header().Get("Downlink-Refused") != "starting" || w.Header().Get("Retry-After") == "" {
			t.Errorf("%d %v", w.Code, w.Header())
		}
	})
}

// watched is a ResponseWriter that is looked at while it is used.
type watched struct {
	recorder
	deadlines []time.Time
	writes    func()
}

func (w *watched) SetWriteDeadline(at time.Time) error {
	w.deadlines = append(w.deadlines, at)
	return nil
}

func (w *watched) Write(b []byte) (int, error) {
	w.writes()
	return w.recorder.Write(b)
}

// TestAnAnswerIsNoSession: a client that asks again as soon as it has its answer
// never meets its own last poll.
func TestAnAnswerIsNoSession(t *testing.T) {
	r := newRig(1<<20, nil)
	r.publish("a", "x")
	w := &watched{recorder: recorder{httptest.NewRecorder()}, writes: func() {
		if r.left() {
			t.Error("the session is there while its answer goes out")
		}
	}}
	r.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/poll?device=a", nil))
	if w.Code != http.StatusOK || w.Body.Len() == 0 {
		t.Error(w.Code)
	}
}

// TestDeadlines: none while it waits, whatever was set before, and write_timeout
// for each part of the answer.
func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(1<<20, nil)
		began := time.Now()
		w := &watched{recorder: recorder{httptest.NewRecorder()}, writes: func() {}}
		req := httptest.NewRequest(http.MethodGet, "/poll?device=a&wait=60", nil)
		req.Header.Set("Last-Event-ID", r.head.String())
		time.AfterFunc(time.Minute-time.Second, func() { r.publish("a", strings.Repeat("x", 2*chunk)) })
		r.handler.ServeHTTP(w, req)
		at := began.Add(time.Minute - time.Second + moment + 10*time.Second)
		if want := []time.Time{{}, at, at, at}; !slices.EqualFunc(w.deadlines, want, time.Time.Equal) {
			t.Errorf("%v, want %v", w.deadlines, want)
		}
	})
}

// TestRevokedWhileItComesIn: the order finds no session yet, and the door has let
// it pass.
func TestRevokedWhileItComesIn(t *testing.T) {
	asked := 0
	r := newRig(1<<20, func(_ *Options, before *door.Options) {
		before.Revoked = func(string) bool { asked++; return asked > 1 }
	})
	w := httptest.NewRecorder()
	r.handler.ServeHTTP(recorder{w}, httptest.NewRequest(http.MethodGet, "/poll?device=a", nil))
	if w.Code != http.StatusNoContent || w.Body.Len() > 0 || w.Header().Get("Content-Type") != "" {
		t.Errorf("%d %q", w.Code, w.Body)
	}
}

// TestOtherMethods: HEAD holds nothing.
func TestOtherMethods(t *testing.T) {
	r := newRig(1<<20, nil)
	for method, status := range map[string]int{"HEAD": 200, "OPTIONS": 204, "POST": 405, "DELETE": 405} {
		w := httptest.NewRecorder()
		r.handler.ServeHTTP(recorder{w}, httptest.NewRequest(method, "/poll?device=a", nil))
		if w.Code != status || r.left() {
			t.Errorf("%s: %d", method, w.Code)
		}
	}
}

func TestNotAcceptable(t *testing.T) {
	r := newRig(1<<20, nil)
	req := httptest.NewRequest(http.MethodGet, "/poll?device=a", nil)
	req.Header.Set("Accept", "text/event-stream")
	w := httptest.NewRecorder()
	if r.handler.ServeHTTP(recorder{w}, req); w.Code != http.StatusNotAcceptable {
		t.Error(w.Code)
	}
}

// TestSlowClient is cut when it takes nothing of its answer for write_timeout:
// over a real connection.
func TestSlowClient(t *testing.T) {
	r := newRig(64<<20, func(o *Options, _ *door.Options) {
		o.WriteTimeout = 300 * time.Millisecond
		o.Session.MaxBytes = limits.Always(64 << 20)
	})
	server := httptest.NewServer(r.handler)
	defer server.Close()
	cursor := r.head.String()
	r.publish("a", strings.Repeat("x", 32<<20)) // more than the kernel holds
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/poll?device=a", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Last-Event-ID", cursor)
	if resp, err := http.DefaultClient.Do(req); err == nil { // or it was cut before its header had come
		defer resp.Body.Close()
	}
	testkit.Eventually(t, "it is cut", func() bool { return r.outcomes("write_timeout") > 0 })
	http.DefaultClient.CloseIdleConnections()
}

func (r *rig) outcomes(of string) float64 {
	return testutil.ToFloat64(r.handler.opts.Metrics.outcomes.WithLabelValues(of))
}

// left reports whether anything of a poll is left.
func (r *rig) left() bool {
	return r.roster.Len() != 0 || r.shards.Members() != 0 || testutil.ToFloat64(r.handler.opts.Metrics.Active) != 0
}

// pass lets virtual time pass.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // always inside a synctest bubble
	synctest.Wait()
}
