package publish_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"downlink/internal/eventlog"
	"downlink/internal/metrics"
	"downlink/internal/publish"
	"downlink/internal/server"
)

// An object is a part of the document.
type object = map[string]any

func document(t *testing.T) object {
	t.Helper()
	a := httptest.NewRecorder()
	publish.OpenAPI().ServeHTTP(a, httptest.NewRequest("GET", "/v1/openapi.yaml", nil))
	var doc, viaJSON object
	if err := yaml.Unmarshal(a.Body.Bytes(), &doc); err != nil || a.Code != 200 {
		t.Fatal(a.Code, err)
	}
	// Through JSON, so that numbers have the type they have in an answer.
	data, err := json.Marshal(doc)
	if err == nil {
		err = json.Unmarshal(data, &viaJSON)
	}
	if err != nil {
		t.Fatal(err)
	}
	return viaJSON
}

func dig(o any, path ...string) any {
	for _, p := range path {
		m, ok := o.(object)
		if !ok {
			return nil
		}
		o = m[p]
	}
	return o
}

// check holds a value against a schema: the words that the document uses.
func check(doc object, schema any, v any) error {
	s, _ := schema.(object)
	if ref, ok := s["$ref"].(string); ok {
		return check(doc, dig(doc, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...), v)
	}
	if alternatives, ok := s["oneOf"].([]any); ok {
		fits := 0
		for _, a := range alternatives {
			if check(doc, a, v) == nil {
				fits++
			}
		}
		if fits != 1 {
			return fmt.Errorf("%v fits %d alternatives", v, fits)
		}
	}
	switch s["type"] {
	case "string":
		text, ok := v.(string)
		if p, has := s["pattern"].(string); !ok || (has && !regexp.MustCompile(p).MatchString(text)) {
			return fmt.Errorf("%v isn't such a string: %v", v, s)
		}
	case "integer":
		n, ok := v.(float64)
		if least, has := s["minimum"].(float64); !ok || n != float64(int(n)) || (has && n < least) {
			return fmt.Errorf("%v isn't such an integer: %v", v, s)
		}
	case "boolean":
		if _, ok := v.(bool); !ok {
			return fmt.Errorf("%v isn't a boolean", v)
		}
	case "array":
		list, ok := v.([]any)
		if !ok {
			return fmt.Errorf("%v isn't an array", v)
		}
		for _, e := range list {
			if err := check(doc, s["items"], e); err != nil {
				return err
			}
		}
	}
	return checkMembers(doc, s, v)
}

func checkMembers(doc, s object, v any) error {
	m, isObject := v.(object)
	if s["type"] == "object" && !isObject {
		return fmt.Errorf("%v isn't an object", v)
	}
	required, _ := s["required"].([]any)
	for _, name := range required {
		if _, ok := m[name.(string)]; !ok {
			return fmt.Errorf("%v has no %v", v, name)
		}
	}
	properties, _ := s["properties"].(object)
	for name, member := range m {
		p, known := properties[name]
		if !known && s["additionalProperties"] == false {
			return fmt.Errorf("%s isn't in the schema", name)
		}
		if err := check(doc, p, member); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// backend is the whole back-end port, on a log in memory.
func backend(t *testing.T) (*rig, http.Handler, *bool) {
	r := newRig(t, func(o *publish.Options) { o.BodyTimeout = 50 * time.Millisecond })
	ready := new(bool)
	page := metrics.Handler(metrics.NewRegistry(metrics.ReadBuild("")), slog.New(slog.DiscardHandler))
	return r, server.Backend(r.handler, publish.OpenAPI(), page, func() (bool, string) { return *ready, "testing" }), ready
}

// answerIs checks an answer against what the document says of its operation,
// and notes that it has been seen.
func answerIs(t *testing.T, doc object, seen map[string]bool, what, path, method string, status int, header http.Header, body []byte) {
	t.Helper()
	response := dig(doc, "paths", path, method, "responses", fmt.Sprint(status))
	if response == nil {
		t.Errorf("%s: %s %s answers %d, which isn't documented: %s", what, method, path, status, body)
		return
	}
	seen[fmt.Sprint(path, " ", method, " ", status)] = true
	headers, _ := dig(response, "headers").(object)
	for name := range headers {
		if header.Get(name) == "" && name != publish.ReplayedHeader {
			t.Errorf("%s: no header %s", what, name)
		}
	}
	media, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	schema := dig(response, "content", media, "schema")
	if schema == nil {
		t.Errorf("%s: %s %s answers %d as %q, which isn't documented", what, method, path, status, media)
		return
	}
	values := [][]byte{body}
	if media == "application/x-ndjson" {
		values = slices.Collect(bytes.Lines(body))
	}
	for _, text := range values {
		var v any = string(text)
		if strings.Contains(media, "json") {
			if err := json.Unmarshal(text, &v); err != nil {
				t.Errorf("%s: %v in %s", what, err, text)
			}
		}
		if err := check(doc, schema, v); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestEveryDocumentedAnswerIsReal(t *testing.T) {
	doc := document(t)
	seen := map[string]bool{}
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
		{what: "method", method: "PUT", body: good},
		{what: "large", body: `{"device":"demo","type":"t","text":"` + strings.Repeat("x", 1001) + `"}`},
		{what: "media", body: good, header: []string{"Content-Type", "text/plain"}},
		{what: "conflict", body: good, before: func(r *rig, _ *bool) { r.log.fail = map[int]error{0: eventlog.ErrConflict} }},
		{what: "fault", body: good, before: func(r *rig, _ *bool) { r.log.fail = map[int]error{0: errors.New("x")} }},
		{what: "away", body: good, before: func(r *rig, _ *bool) { r.log.fail = map[int]error{0: eventlog.ErrUnavailable} }},
		{what: "partial", body: `{"device":"*","type":"t","text":""}`, before: func(r *rig, _ *bool) { r.log.fail = map[int]error{0: eventlog.ErrFull} }},
		{what: "document", path: "/v1/openapi.yaml", method: "GET"},
		{what: "alive", path: "/healthz", method: "GET"},
		{what: "not ready", path: "/readyz", method: "GET"},
		{what: "ready", path: "/readyz", method: "GET", before: func(_ *rig, ready *bool) { *ready = true }},
		{what: "metrics", path: "/metrics", method: "GET"},
	} {
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
		answerIs(t, doc, seen, c.what, c.path, strings.ToLower(c.method), a.Code, a.Header(), a.Body.Bytes())
	}
	slowAnswer(t, doc, seen)
	wantAllSeen(t, doc, seen)
}

// slowAnswer needs a real connection, which alone has deadlines.
func slowAnswer(t *testing.T, doc object, seen map[string]bool) {
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
	answerIs(t, doc, seen, "slow", publish.Path, "post", resp.StatusCode, resp.Header, text)
}

func wantAllSeen(t *testing.T, doc object, seen map[string]bool) {
	paths, _ := doc["paths"].(object)
	n := 0
	for path, operations := range paths {
		for method := range operations.(object) {
			statuses, _ := dig(operations, method, "responses").(object)
			for status := range statuses {
				n++
				if key := fmt.Sprint(path, " ", method, " ", status); !seen[key] {
					t.Errorf("%s is documented, and no test has seen it", key)
				}
			}
		}
	}
	if n < 14 {
		t.Errorf("only %d answers are documented", n)
	}
}

// Each example of a request is answered with the status that has an example of
// the same name, by an object of the same shape.
func TestExamplesAreReal(t *testing.T) {
	doc := document(t)
	operation := dig(doc, "paths", publish.Path, "post")
	requests, _ := dig(operation, "requestBody", "content", "application/json", "examples").(object)
	if len(requests) < 5 {
		t.Fatalf("%d examples", len(requests))
	}
	schema := dig(operation, "requestBody", "content", "application/json", "schema")
	for name, example := range requests {
		value := dig(example, "value")
		body, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		r := newRig(t)
		a := r.post(string(body))
		if valid := check(doc, schema, value) == nil; valid != (a.Code == 200) {
			t.Errorf("%s: valid by the schema is %v, the answer %d", name, valid, a.Code)
		}
		media := a.Header().Get("Content-Type")
		answer := dig(operation, "responses", fmt.Sprint(a.Code), "content", media, "examples", name, "value")
		var got object
		if err := json.Unmarshal(a.Body.Bytes(), &got); err != nil || answer == nil {
			t.Errorf("%s: answered %d %s, and no such example: %v", name, a.Code, a.Body, err)
			continue
		}
		for member, want := range answer.(object) {
			if _, isText := want.(string); got[member] == nil || (isText && a.Code != 200 && got[member] != want) {
				t.Errorf("%s: %s is %v, in the example %v", name, member, got[member], want)
			}
		}
		if len(got) != len(answer.(object)) {
			t.Errorf("%s: got %v, in the example %v", name, got, answer)
		}
	}
}
