package publish_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"downlink/internal/eventlog"
	"downlink/internal/limits"
	"downlink/internal/metrics"
	"downlink/internal/openapi"
	"downlink/internal/openapi/openapitest"
	"downlink/internal/publish"
	"downlink/internal/server"
)

// backend is the whole back-end port, on a log in memory.
func backend(t *testing.T) (*rig, http.Handler, *bool) {
	r := newRig(t, func(o *publish.Options) {
		o.BodyTimeout = 50 * time.Millisecond
		o.TargetRate = limits.Always(2)
	})
	ready := new(bool)
	page := metrics.Handler(metrics.NewRegistry(metrics.ReadBuild("")), slog.New(slog.DiscardHandler))
	return r, server.Backend([]server.Route{
		{Path: publish.Path, Handler: r.handler},
		{Method: "GET", Path: openapi.Path, Handler: openapi.Handler()},
		{Method: "GET", Path: "/metrics", Handler: page},
	}, func(h http.Handler) http.Handler { return h }, func() (bool, string) { return *ready, "testing" }), ready
}

func TestEveryDocumentedAnswerIsReal(t *testing.T) {
	doc := openapitest.Read(t)
	const good = `{"device":"demo","type":"t","text":"x"}`
	for _, c := range []struct {
		what, path, method, body string
		header                   []string
		before                   func(*rig, *bool)
	}{
		{what: "good", body: good},
		{what: "batch", header: []string{"Content-Type", "application/x-ndjson"}, body: good + "\n" + `{"device":"*","type":"t","text":"","idem":"i"}` + "\n" + `{"device":"*","type":"t","text":"","idem":"i"}` + "\nbad\n" +
			`{"device":"demo","type":"t","text":"y","idem":"i2"}` + "\n" + `{"device":"demo","type":"t","text":"y","idem":"i2"}`},
		{what: "bad", body: `{}`},
		{what: "unknown", header: []string{"X-Test-Publisher", "unknown"}, body: good},
		{what: "forbidden", body: `{"device":"forbidden","type":"t","text":"x"}`},
		{what: "method", method: "PUT", body: good},
		{what: "large", body: `{"device":"demo","type":"t","text":"` + strings.Repeat("x", 1001) + `"}`},
		{what: "media", body: good, header: []string{"Content-Type", "text/plain"}},
		{what: "conflict", body: good, before: func(r *rig, _ *bool) { r.log.fail = map[int]error{0: eventlog.ErrConflict} }},
		{what: "fault", body: good, before: func(r *rig, _ *bool) { r.log.fail = map[int]error{0: errors.New("x")} }},
		{what: "away", body: good, before: func(r *rig, _ *bool) { r.log.fail = map[int]error{0: eventlog.ErrUnavailable} }},
		{what: "partial", body: `{"device":"*","type":"t","text":""}`, before: func(r *rig, _ *bool) { r.log.fail = map[int]error{0: eventlog.ErrFull} }},
		{what: "too fast", body: good, before: func(r *rig, _ *bool) { r.post(good); r.post(good) }},
		{what: "document", path: "/v1/openapi.yaml", method: "GET"},
		{what: "alive", path: "/healthz", method: "GET"},
		{what: "not ready", path: "/readyz", method: "GET"},
		{what: "ready", path: "/readyz", method: "GET", before: func(_ *rig, ready *bool) { *ready = true }},
		{what: "metrics", path: "/metrics", method: "GET"},
	} {
		synctest.Test(t, func(t *testing.T) { // in which no rate is worked off meanwhile
			r, h, ready := backend(t)
			if c.before != nil {
				c.before(r, ready)
			}
			if c.path == "" {
				c.path = publish.Path
			}
			sent := c.method
			if sent == "" || sent == "PUT" { // the wrong method is documented under the right one
				c.method = "POST"
			}
			if sent == "" {
				sent = "POST"
			}
			req := httptest.NewRequest(sent, c.path, strings.NewReader(c.body))
			req.Header.Set("Content-Type", "application/json")
			for i := 0; i < len(c.header); i += 2 {
				req.Header.Set(c.header[i], c.header[i+1])
			}
			a := httptest.NewRecorder()
			h.ServeHTTP(a, req)
			doc.Answer(t, c.what, c.path, c.method, a.Code, a.Header(), a.Body.Bytes())
		})
	}
	slowAnswer(t, doc)
	doc.WantAllSeen(t, publish.Path, openapi.Path, "/healthz", "/readyz", "/metrics")
}

// slowAnswer needs a real connection, which alone has deadlines.
func slowAnswer(t *testing.T, doc *openapitest.Document) {
	_, h, _ := backend(t)
	s := httptest.NewServer(h)
	defer s.Close()
	body, w := io.Pipe()
	defer w.Close()
	resp, err := s.Client().Post(s.URL+publish.Path, "application/json", body)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	doc.Answer(t, "slow", publish.Path, "post", resp.StatusCode, resp.Header, text)
}

// Each example of a request is answered with the status that has an example of
// the same name, by an object of the same shape.
func TestExamplesAreReal(t *testing.T) {
	doc := openapitest.Read(t)
	operation := doc.Dig("paths", publish.Path, "post")
	requests, _ := openapitest.Dig(operation, "requestBody", "content", "application/json", "examples").(openapitest.Object)
	if len(requests) < 5 {
		t.Fatalf("%d examples", len(requests))
	}
	schema := openapitest.Dig(operation, "requestBody", "content", "application/json", "schema")
	for name, example := range requests {
		value := openapitest.Dig(example, "value")
		body, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		r := newRig(t)
		a := r.post(string(body))
		if valid := doc.Check(schema, value) == nil; valid != (a.Code == 200) {
			t.Errorf("%s: valid by the schema is %v, the answer %d", name, valid, a.Code)
		}
		media := a.Header().Get("Content-Type")
		answer := openapitest.Dig(operation, "responses", fmt.Sprint(a.Code), "content", media, "examples", name, "value")
		var got openapitest.Object
		if err := json.Unmarshal(a.Body.Bytes(), &got); err != nil || answer == nil {
			t.Errorf("%s: answered %d %s, and no such example: %v", name, a.Code, a.Body, err)
			continue
		}
		for member, want := range answer.(openapitest.Object) {
			if _, isText := want.(string); got[member] == nil || (isText && a.Code != 200 && got[member] != want) {
				t.Errorf("%s: %s is %v, in the example %v", name, member, got[member], want)
			}
		}
		if len(got) != len(answer.(openapitest.Object)) {
			t.Errorf("%s: got %v, in the example %v", name, got, answer)
		}
	}
}
