package explain_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/explain"
	"downlink/internal/limits"
	"downlink/internal/openapi/openapitest"
	"downlink/internal/problem"
	"downlink/internal/server"
	"downlink/internal/session"
	"downlink/internal/shard"
	"downlink/internal/trail"
)

// away is a log that never answers.
type away struct{}

func (away) Range(context.Context, int, event.ID, event.ID, int) (eventlog.Page, error) {
	return eventlog.Page{}, eventlog.ErrUnavailable
}

func (away) Judge(context.Context, int, []eventlog.Question) ([]event.Reason, eventlog.State, error) {
	return nil, eventlog.State{}, eventlog.ErrUnavailable
}

type sink struct{}

func (sink) Wake()                            {}
func (sink) Peer() (address, protocol string) { return "192.0.2.1:4711", "HTTP/1.1, TLS" }

type rig struct {
	shards  *shard.Set
	trail   *trail.Trail
	handler *explain.Handler
}

func newRig() *rig {
	r := &rig{
		shards: shard.NewSet(away{}, shard.Options{Shards: 1, HotBytes: limits.Always(1 << 20), MaxLaps: 1, Pacer: shard.NewPacer(0), Metrics: shard.NewMetrics(nil)}),
		trail:  trail.New(trail.Options{Entries: limits.Always(100), Metrics: trail.NewMetrics(nil)}),
	}
	r.shards.Start(0, event.ID{Ms: 1000})
	r.handler = explain.New(explain.Options{
		Gateway: "gateway-1", Instance: "ABC", Version: "1", Address: "192.0.2.9:8080",
		Ready: func() (bool, string) { return false, "going out of service" },
		Revoked: func(device string) (eventlog.Revocation, bool) {
			r, revoked := map[string]eventlog.Revocation{
				"bad": {ID: event.ID{Ms: 1_764_471_600_123}, Reason: "stolen"}, "by hand": {},
			}[device]
			return r, revoked
		},
		Shards: r.shards, Trail: r.trail,
	})
	return r
}

func (r *rig) attach(t *testing.T, device string, o session.Options, groups ...string) *session.Session {
	t.Helper()
	o.MaxPending, o.MaxBytes = limits.Always(2), limits.Always(1<<20)
	s := session.New(device, sink{}, &o)
	s.Know(session.Facts{Since: time.Now(), Expires: time.Now().Add(time.Hour), Credential: "jwt"})
	if err := s.Attach(r.shards.Of(device), groups, shard.Start{Cursor: event.ID{Ms: 1000}}); err != nil {
		t.Fatal(err)
	}
	return s
}

func (r *rig) publish(device string, ms uint64) {
	r.shards.Dispatch(0, []eventlog.Entry{{ID: event.ID{Ms: ms}, Event: event.Event{Target: device, Type: "t", Payload: "p"}}})
}

// TestConflated: what newer events of a key made needless is neither waiting nor
// missing, but told.
func TestConflated(t *testing.T) {
	r := newRig()
	s := r.attach(t, "a", session.Options{})
	defer s.Detach()
	for ms := range uint64(9) {
		r.shards.Dispatch(0, []eventlog.Entry{{ID: event.ID{Ms: 2000 + ms}, Event: event.Event{Target: "a", Type: "t", Key: "k"}}})
	}
	if got := r.handler.Report("a").Sessions[0]; got.Conflated != 8 || got.Pending != 1 || got.Behind.Events != 1 || got.State != "live" {
		t.Errorf("%+v", got)
	}
}

func TestBehind(t *testing.T) {
	r := newRig()
	stream := r.attach(t, "a", session.Options{}, "north")
	poll := r.attach(t, "a", session.Options{JSON: true})
	for ms := range uint64(5) {
		r.publish("a", 2000+1000*ms)
	}
	stream.Next(nil, 1) // it takes one, and there is room for another
	report := r.handler.Report("a")
	if len(report.Sessions) != 2 || report.Position != "6000-0" || report.Gateway.Ready || report.Gateway.Why == "" {
		t.Fatalf("%+v", report)
	}
	p, s := report.Sessions[0], report.Sessions[1] // the latest first
	if p.Kind != "poll" || p.Behind != (explain.Behind{Events: 5, MS: 4000}) || p.Pending != 2 || p.State != "stalled" || p.Cursor != "1000-0" {
		t.Errorf("%+v", p)
	}
	if s.Kind != "stream" || s.Behind != (explain.Behind{Events: 4, MS: 3000}) || s.Pending != 2 || s.Cursor != "2000-0" || s.Groups[0] != "north" {
		t.Errorf("%+v", s)
	}
	poll.Detach()
	stream.Detach()
	if report := r.handler.Report("a"); len(report.Sessions) != 0 {
		t.Errorf("%+v", report)
	}
}

// TestEveryDocumentedAnswerIsReal, and the other way round.
func TestEveryDocumentedAnswerIsReal(t *testing.T) {
	doc, r := openapitest.Read(t), newRig()
	defer r.attach(t, "매장/12", session.Options{}, "north").Detach()
	for ms := range uint64(2) {
		r.shards.Dispatch(0, []eventlog.Entry{{ID: event.ID{Ms: 2000 + ms}, Event: event.Event{Target: "매장/12", Type: "t", Key: "k"}}})
	}
	r.trail.Note("매장/12", false, trail.Entry{Kind: trail.Ended, Word: "client_gone", Address: "192.0.2.1:1", Since: time.Now()})
	r.trail.Note("매장/12", true, trail.Entry{Kind: trail.Refused, Word: "token_expired", Detail: "it expired"})
	r.trail.Note("", true, trail.Entry{Kind: trail.Refused, Word: "token_missing"})
	admin := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			code := problem.Code(r.Header.Get("X-Test-Refuse"))
			if code == "" {
				h.ServeHTTP(w, r)
				return
			}
			if code == problem.Unauthorized {
				w.Header().Set("WWW-Authenticate", "Bearer")
			}
			problem.Write(w, problem.New(code, "for a test"))
		})
	}
	backend := server.Backend([]server.Route{{Method: "GET", Path: explain.Path, Handler: admin(r.handler)}}, admin, func() (bool, string) { return true, "" })
	for _, c := range []struct{ device, refuse string }{
		{"%EB%A7%A4%EC%9E%A5%2F12", ""}, {"nobody", ""}, {"bad", ""}, {"by%20hand", ""}, {"*", ""}, {"%2E%2E", ""},
		{"a", "unauthorized"}, {"a", "forbidden"}, {"a", "log-unavailable"},
	} {
		req := httptest.NewRequest(http.MethodGet, strings.Replace(explain.Path, "{device}", c.device, 1), nil)
		req.Header.Set("X-Test-Refuse", c.refuse)
		a := httptest.NewRecorder()
		backend.ServeHTTP(a, req)
		doc.Answer(t, c.device+c.refuse, explain.Path, "GET", a.Code, a.Header(), a.Body.Bytes())
		var report explain.Report
		if a.Code == http.StatusOK && (json.Unmarshal(a.Body.Bytes(), &report) != nil || report.Revoked != strings.HasPrefix(c.device, "b") || report.Revoked != (report.Revocation != nil)) {
			t.Errorf("%s: %s", c.device, a.Body)
		}
	}
	doc.WantAllSeen(t, explain.Path)
	if r := r.handler.Report("bad").Revocation; r.Reason != "stolen" || r.ID != "1764471600123-0" || r.Since.UnixMilli() != 1_764_471_600_123 {
		t.Errorf("%+v", r)
	}
	if r := r.handler.Report("by hand").Revocation; *r != (explain.Revocation{}) {
		t.Errorf("%+v", r)
	}
}
