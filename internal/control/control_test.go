package control

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/eventlog/filelog"
	"downlink/internal/openapi/openapitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A rig is the handlers on a log of their own, as a server routes to them.
type rig struct {
	*testing.T
	*filelog.Log
	handler *Handler
	mux     *http.ServeMux
	doc     *openapitest.Document
	logged  bytes.Buffer
}

func newRig(t *testing.T, log func(eventlog.Controller) eventlog.Controller) *rig {
	r := &rig{T: t, doc: openapitest.Read(t)}
	var err error
	r.Log, err = filelog.Open(filelog.Options{
		Dir: t.TempDir(), Shards: 8, Window: time.Hour, MaxEventBytes: func() int { return 1 }, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	if log == nil {
		log = func(l eventlog.Controller) eventlog.Controller { return l }
	}
	r.handler = New(Options{
		Log: log(r.Log), Shards: 8, Timeout: time.Minute, Metrics: NewMetrics(nil),
		Logger: slog.New(slog.NewTextHandler(&r.logged, nil)), Caller: func(*http.Request) string { return "ops" },
	})
	r.mux = http.NewServeMux()
	r.mux.HandleFunc("POST "+DisconnectPath, r.handler.Disconnect)
	r.mux.HandleFunc("POST "+RevokePath, r.handler.Revoke)
	r.mux.HandleFunc("DELETE "+RevokePath, r.handler.Restore)
	r.mux.HandleFunc("GET "+RevokedPath, r.handler.Revoked)
	return r
}

// do sends a request and holds the answer against the description.
func (r *rig) do(method, path, body string, header ...string) (int, map[string]any) {
	r.Helper()
	req := httptest.NewRequest(method, path, strings.NewReader(body))
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	r.mux.ServeHTTP(w, req)
	documented := RevokedPath
	for suffix, p := range map[string]string{"/disconnect": DisconnectPath, "/revoke": RevokePath} {
		if strings.HasSuffix(path, suffix) {
			documented = p
		}
	}
	r.doc.Answer(r.T, method+" "+path, documented, method, w.Code, w.Header(), w.Body.Bytes())
	var answer map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		r.Fatalf("%s %s answers %d with %q", method, path, w.Code, w.Body)
	}
	return w.Code, answer
}

// orders reads what is in the log for a device.
func (r *rig) orders(device string) (list []eventlog.Control) {
	r.Helper()
	page, err := r.Range(r.Context(), event.Shard(device, 8), event.ID{}, event.MaxID, 1<<20)
	if err != nil {
		r.Fatal(err)
	}
	for i := range page.Entries {
		order, err := eventlog.ReadControl(&page.Entries[i].Event)
		if err != nil {
			r.Fatal(err)
		}
		if order.Device == device {
			list = append(list, order)
		}
	}
	return list
}

func TestOrders(t *testing.T) {
	r := newRig(t, nil)
	status, answer := r.do("POST", "/v1/devices/A83F21/disconnect", `{"retry_ms":5000,"reason":"maintenance"}`)
	if status != 200 || answer["changed"] != true || answer["device"] != "A83F21" || answer["revoked"] != nil || answer["shard"] != 3.0 {
		t.Errorf("disconnect: %d, %v", status, answer)
	}
	status, answer = r.do("POST", "/v1/devices/A83F21/revoke", `{"reason":"stolen"}`)
	if status != 200 || answer["changed"] != true || answer["revoked"] != true {
		t.Errorf("revoke: %d, %v", status, answer)
	}
	first := answer["id"]
	status, answer = r.do("POST", "/v1/devices/A83F21/revoke", "")
	if status != 200 || answer["changed"] != false || answer["revoked"] != true || answer["id"] != first {
		t.Errorf("revoke again: %d, %v", status, answer)
	}
	_, list := r.do("GET", "/v1/revoked", "")
	devices := list["devices"].([]any)
	if line := devices[0].(map[string]any); len(devices) != 1 || line["device"] != "A83F21" || line["reason"] != "stolen" || line["id"] != first {
		t.Errorf("the list: %v", list)
	} else if since, err := time.Parse(time.RFC3339, line["since"].(string)); err != nil || time.Since(since) > time.Minute {
		t.Errorf("since %v", line["since"])
	}
	for _, changed := range []bool{true, false} {
		status, answer = r.do("DELETE", "/v1/devices/A83F21/revoke", "")
		if status != 200 || answer["changed"] != changed || answer["revoked"] != false {
			t.Errorf("restore: %d, %v, want changed %v", status, answer, changed)
		}
	}
	if _, list := r.do("GET", "/v1/revoked", ""); len(list["devices"].([]any)) != 0 {
		t.Errorf("the list: %v", list)
	}
	want := []eventlog.Control{
		{Kind: eventlog.Disconnect, Device: "A83F21", Reason: "maintenance", Retry: 5 * time.Second},
		{Kind: eventlog.Revoke, Device: "A83F21", Reason: "stolen"}, {Kind: eventlog.Restore, Device: "A83F21"},
	}
	got := r.orders("A83F21")
	for i := range want {
		if len(got) != len(want) || got[i] != want[i] {
			t.Fatalf("the log holds %+v, want %+v", got, want)
		}
	}
	if text := r.logged.String(); strings.Count(text, "by=ops") != 5 || !strings.Contains(text, "reason=stolen") {
		t.Errorf("the operator's log:\n%s", text)
	}
	if n := testutil.ToFloat64(r.handler.opts.Metrics.orders.WithLabelValues("revoke", "unchanged")); n != 1 {
		t.Errorf("%v unchanged revokes are counted", n)
	}
}

// TestDevicesInPaths: any device ID can be named.
func TestDevicesInPaths(t *testing.T) {
	r := newRig(t, nil)
	for path, device := range map[string]string{
		"store-0001%2Fpos-1": "store-0001/pos-1", "%2E%2E": "..", "%2E": ".", "a%2F%2Fb": "a//b", "a%2F..%2Fb": "a/../b",
		"%EB%A7%A4%EC%9E%A5-12": "매장-12", "100%25": "100%", "a+b": "a+b", "a%20b": "a b", "x%3Fy%23z": "x?y#z", "revoke": "revoke",
	} {
		if status, answer := r.do("POST", "/v1/devices/"+path+"/revoke", ""); status != 200 || answer["device"] != device {
			t.Errorf("%s: %d, %v", path, status, answer)
		}
		if got := r.orders(device); len(got) != 1 {
			t.Errorf("the log holds %v for %s", got, device)
		}
	}
}

func TestWrongOrders(t *testing.T) {
	r := newRig(t, nil)
	const path = "/v1/devices/a/disconnect"
	for what, c := range map[string]struct {
		path, body string
		header     []string
		status     int
		kind       string
		field      any
	}{
		"broadcast":       {path: "/v1/devices/*/disconnect", status: 400, kind: "invalid-order", field: "device"},
		"a group":         {path: "/v1/devices/@g/disconnect", status: 400, kind: "invalid-order", field: "device"},
		"control":         {path: "/v1/devices/%0A/disconnect", status: 400, kind: "invalid-order", field: "device"},
		"not UTF-8":       {path: "/v1/devices/%FF/disconnect", status: 400, kind: "invalid-order", field: "device"},
		"long":            {path: "/v1/devices/" + strings.Repeat("d", 129) + "/disconnect", status: 400, kind: "invalid-order", field: "device"},
		"late retry":      {body: `{"retry_ms":3600001}`, status: 400, kind: "invalid-order", field: "retry_ms"},
		"negative retry":  {body: `{"retry_ms":-1}`, status: 400, kind: "invalid-order", field: "retry_ms"},
		"huge retry":      {body: `{"retry_ms":9223372036854775807}`, status: 400, kind: "invalid-order", field: "retry_ms"},
		"retry as text":   {body: `{"retry_ms":"5"}`, status: 400, kind: "invalid-order", field: "retry_ms"},
		"retry of revoke": {path: "/v1/devices/a/revoke", body: `{"retry_ms":5}`, status: 400, kind: "invalid-order", field: "retry_ms"},
		"long reason":     {body: `{"reason":"` + strings.Repeat("r", 257) + `"}`, status: 400, kind: "invalid-order", field: "reason"},
		"reason's lines":  {body: `{"reason":"a\nb"}`, status: 400, kind: "invalid-order", field: "reason"},
		"unknown":         {body: `{"why":"x"}`, status: 400, kind: "unknown-member"},
		"other case":      {body: `{"Reason":"x"}`, status: 400, kind: "unknown-member"},
		"twice":           {body: `{"reason":"a","reason":"b"}`, status: 400, kind: "duplicate-member", field: "reason"},
		"no object":       {body: `[]`, status: 400, kind: "invalid-json"},
		"broken":          {body: `{"reason":`, status: 400, kind: "invalid-json"},
		"two":             {body: `{} {}`, status: 400, kind: "invalid-json"},
		"a form":          {body: `reason=x`, header: []string{"Content-Type", "application/x-www-form-urlencoded"}, status: 415, kind: "unsupported-media-type"},
		"compressed":      {body: `{}`, header: []string{"Content-Encoding", "gzip"}, status: 415, kind: "unsupported-media-type"},
		"large":           {body: `{"reason":"` + strings.Repeat("r", 5000) + `"}`, status: 413, kind: "body-too-large"},
		"another origin":  {header: []string{"Sec-Fetch-Site", "cross-site"}, status: 403, kind: "cross-origin"},
		"an old browser":  {header: []string{"Origin", "https://evil.example"}, status: 403, kind: "cross-origin"},
	} {
		if c.path == "" {
			c.path = path
		}
		status, answer := r.do("POST", c.path, c.body, c.header...)
		if status != c.status || answer["type"] != "urn:downlink:problem:"+c.kind || answer["field"] != c.field {
			t.Errorf("%s: %d, %v", what, status, answer)
		}
	}
	if got := r.orders("a"); len(got) > 0 {
		t.Errorf("the log holds %v", got)
	}
}

// failing is a log that answers with an error, or not at all.
type failing struct {
	eventlog.Controller
	err error
}

func (f failing) Control(ctx context.Context, _ int, _ eventlog.Control) (eventlog.Receipt, error) {
	if f.err == nil {
		<-ctx.Done()
		return eventlog.Receipt{}, eventlog.ErrUnavailable
	}
	return eventlog.Receipt{}, f.err
}

func (f failing) RevokedVersions(context.Context) ([]eventlog.ListVersion, error) { return nil, f.err }

func TestWithoutALog(t *testing.T) {
	for err, kind := range map[error]string{
		eventlog.ErrUnavailable: "log-unavailable", eventlog.ErrFull: "log-full",
		eventlog.ErrExhausted: "log-exhausted", eventlog.ErrClosed: "shutting-down",
	} {
		r := newRig(t, func(l eventlog.Controller) eventlog.Controller { return failing{l, err} })
		for _, request := range [][2]string{{"POST", "/v1/devices/a/revoke"}, {"GET", "/v1/revoked"}} {
			if status, answer := r.do(request[0], request[1], ""); status != 503 || answer["type"] != "urn:downlink:problem:"+kind {
				t.Errorf("%v: %d, %v", err, status, answer)
			}
		}
	}
	r := newRig(t, func(l eventlog.Controller) eventlog.Controller { return failing{l, nil} })
	r.handler.opts.Timeout = 20 * time.Millisecond
	gone, cancel := context.WithCancel(t.Context())
	cancel() // the caller has gone: the log has its time all the same
	w, began := httptest.NewRecorder(), time.Now()
	r.mux.ServeHTTP(w, httptest.NewRequest("POST", "/v1/devices/a/revoke", io.NopCloser(strings.NewReader(""))).WithContext(gone))
	if w.Code != 503 || w.Header().Get("Retry-After") == "" || time.Since(began) < r.handler.opts.Timeout {
		t.Errorf("without an answer of the log: %d, %v", w.Code, w.Header())
	}
}
