package push

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"downlink/internal/egress"
	"downlink/internal/inventory"
	"downlink/internal/post"
	"downlink/internal/problem"
	"downlink/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// devices are an inventory and the way to it: what each does is a function.
type devices struct {
	mu    sync.Mutex
	does  map[string]func(ctx context.Context, e post.Event) (*post.Reply, error)
	got   []string // "device key payload"
	ready bool
}

func (d *devices) Ready() bool { return d.ready }

func (d *devices) Lookup(id string) (inventory.Device, bool) {
	_, ok := d.does[id]
	return inventory.Device{ID: id, URL: "http://" + id + "/"}, ok
}

func (d *devices) Post(ctx context.Context, to inventory.Device, e post.Event) (*post.Reply, error) {
	d.mu.Lock()
	d.got = append(d.got, strings.Join([]string{to.ID, e.Idem, e.Trace, e.Payload}, " "))
	d.mu.Unlock()
	return d.does[to.ID](ctx, e)
}

func says(status int, body string) func(context.Context, post.Event) (*post.Reply, error) {
	return func(context.Context, post.Event) (*post.Reply, error) {
		return &post.Reply{Status: status, ContentType: "text/plain", Body: []byte(body), RetryAfter: 3 * time.Second}, nil
	}
}

func breaks(f post.Failure) func(context.Context, post.Event) (*post.Reply, error) {
	return func(context.Context, post.Event) (*post.Reply, error) { return nil, &f }
}

// hangs holds each push until its context ends or the test lets go.
func hangs(hold <-chan struct{}) func(context.Context, post.Event) (*post.Reply, error) {
	return func(ctx context.Context, _ post.Event) (*post.Reply, error) {
		select {
		case <-hold:
			return &post.Reply{Status: 200}, nil
		case <-ctx.Done():
			return nil, &post.Failure{Stage: post.Answer, Sent: true, Err: ctx.Err()}
		}
	}
}

type rig struct {
	*devices
	h   *Handler
	url string
}

func newRig(t *testing.T, edit func(*Options)) *rig {
	t.Helper()
	d := &devices{ready: true, does: map[string]func(context.Context, post.Event) (*post.Reply, error){
		"ok":     says(200, "thanks"),
		"no":     says(503, "not now"),
		"away":   breaks(post.Failure{Stage: egress.Connect, Err: errors.New("connection refused")}),
		"broken": breaks(post.Failure{Stage: post.Answer, Sent: true, Timeout: true, Err: context.DeadlineExceeded}),
	}}
	o := Options{
		Inventory: d, Post: d, MaxEventBytes: func() int { return 1000 }, InFlight: func() int { return 100 }, PerDevice: func() int { return 1 },
		Wait: time.Minute, Logger: slog.New(slog.DiscardHandler), Metrics: NewMetrics(nil),
	}
	if edit != nil {
		edit(&o)
	}
	r := &rig{devices: d, h: New(o)}
	s := httptest.NewServer(r.h)
	t.Cleanup(s.Close)
	r.url = s.URL + Path
	return r
}

func (r *rig) send(t *testing.T, media, body string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", media)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

func (r *rig) one(t *testing.T, device string) (*http.Response, string) {
	t.Helper()
	return r.send(t, "application/json", fmt.Sprintf(`{"device":%q,"type":"t","payload":{"a": 1}}`, device))
}

// what is what a program reads in a document.
func what(code problem.Code) string { return `"type":"urn:downlink:problem:` + string(code) + `"` }

// TestSingle: for each thing that can become of a push, the answer says so, and
// whether a repeat is safe.
func TestSingle(t *testing.T) {
	r := newRig(t, nil)
	for device, tt := range map[string]struct {
		status int
		parts  []string
	}{
		"ok":     {200, []string{`{"device":"ok","answer":{"status":200,"content_type":"text/plain","body":"thanks"}}`}},
		"no":     {502, []string{what(problem.DeviceRefused), `"device":"no"`, `"sent":true,"repeat_safe":false`, `"answer":{"status":503,"content_type":"text/plain","body":"not now"}`, `"retry_after":3`}},
		"away":   {502, []string{what(problem.DeviceUnreachable), `"stage":"connect","sent":false,"repeat_safe":true`, "connection refused"}},
		"broken": {504, []string{what(problem.NoAnswer), `"stage":"answer","sent":true,"repeat_safe":false`, "longer than allowed"}},
		"other":  {404, []string{what(problem.DeviceUnknown), `"sent":false,"repeat_safe":true`}},
	} {
		resp, body := r.one(t, device)
		if resp.StatusCode != tt.status || (resp.Header.Get("Retry-After") != "") != (device == "no") {
			t.Errorf("%s: %d %v %s", device, resp.StatusCode, resp.Header, body)
		}
		for _, part := range tt.parts {
			if !strings.Contains(body, part) {
				t.Errorf("%s: %s lacks %s", device, body, part)
			}
		}
	}
	for result, want := range map[string]float64{resultDelivered: 1, resultRefused: 1, resultUnreachable: 1, resultNoAnswer: 1, resultUnknown: 1} {
		if n := testutil.ToFloat64(r.h.metrics.results.WithLabelValues(result)); n != want {
			t.Errorf("%s: %v", result, n)
		}
	}
	r.ready = false
	if resp, body := r.one(t, "ok"); resp.StatusCode != 503 || !strings.Contains(body, what(problem.InventoryUnavailable)) {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if resp, body := r.one(t, "@group"); resp.StatusCode != 400 || !strings.Contains(body, "for devices by name") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// TestBody: a device's answer is told as text if it is some, cut or not.
func TestBody(t *testing.T) {
	for _, tt := range []struct {
		body      string
		cut       bool
		text, b64 string
	}{
		{"매장", false, "매장", ""},
		{"매장"[:5], true, "매", ""},
		{"매장"[:5], false, "", "66ek7J4="},
		{"\xff\xfe\xfd\xfc\xfb", true, "", "//79/Ps="},
		{"", false, "", ""},
	} {
		a := answerOf(&post.Reply{Status: 200, Body: []byte(tt.body), Cut: tt.cut})
		if a.Body != tt.text || a.Base64 != tt.b64 || a.Cut != tt.cut {
			t.Errorf("%q: %+v", tt.body, a)
		}
	}
}

// TestRefusals: what can't be sent is refused before anything is, with the member
// that is at fault.
func TestRefusals(t *testing.T) {
	r := newRig(t, nil)
	many := `"` + strings.Join(slices.Collect(func(yield func(string) bool) {
		for i := range MaxDevices + 1 {
			if !yield(fmt.Sprint("d", i)) {
				return
			}
		}
	}), `","`) + `"`
	for body, want := range map[string]string{
		"":                       string(problem.InvalidJSON),
		"[]":                     string(problem.InvalidJSON),
		`{"type":"t","text":""}`: `"field":"device"`,
		`{"device":"ok","devices":["ok"],"type":"t","text":""}`:                         `"field":"devices"`,
		`{"devices":[],"type":"t","text":""}`:                                           "devices is empty",
		`{"devices":["ok","ok"],"type":"t","text":""}`:                                  `"field":"devices[1]"`,
		`{"devices":["ok","*"],"type":"t","text":""}`:                                   `"field":"devices[1]"`,
		`{"devices":[` + many + `],"type":"t","text":""}`:                               string(problem.TooManyDevices),
		`{"device":"ok","text":""}`:                                                     `"field":"type"`,
		`{"device":"ok","type":"resync","text":""}`:                                     `"field":"type"`,
		`{"device":"ok","type":"t"}`:                                                    `"field":"payload"`,
		`{"device":"ok","type":"t","text":"","payload":1}`:                              `"field":"text"`,
		`{"device":"ok","type":"t","text":"","key":"k"}`:                                string(problem.UnknownMember),
		`{"device":"ok","type":"t","text":"","Device":"no"}`:                            string(problem.UnknownMember),
		`{"device":"ok","device":"no","type":"t","text":""}`:                            string(problem.DuplicateMember),
		`{"device":1,"type":"t","text":""}`:                                             `"field":"device"`,
		`{"device":"ok","type":"t","text":"","idem":""}`:                                string(problem.InvalidIdempotency),
		`{"device":"ok","type":"t","text":"","idem":"\u0007"}`:                          string(problem.InvalidIdempotency),
		`{"device":"ok","type":"t","text":"","idem":"other"}`:                           "differ",
		`{"device":"ok","type":"t","text":"` + strings.Repeat("x", 1001) + `"}`:         string(problem.EventTooLarge),
		`{"device":"ok","type":"t","text":"` + strings.Repeat(`x`, 6*1000+1<<20) + `"}`: string(problem.BodyTooLarge),
	} {
		resp, text := r.send(t, "application/json", body, "Idempotency-Key", "key")
		if resp.StatusCode < 400 || resp.StatusCode > 499 || !strings.Contains(text, want) {
			t.Errorf("%.80s: %d %s, want %s", body, resp.StatusCode, text, want)
		}
	}
	if resp, _ := r.send(t, "text/plain", ""); resp.StatusCode != http.StatusUnsupportedMediaType {
		t.Error(resp.Status)
	}
	resp, err := http.Get(r.url)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != "POST" {
		t.Error(resp.Status)
	}
	if len(r.got) != 0 {
		t.Errorf("%v was sent", r.got)
	}
}

// TestWhatIsSent: the payload as it is, with the request's key and trace.
func TestWhatIsSent(t *testing.T) {
	r := newRig(t, nil)
	r.send(t, "application/json", `{"device":"ok","type":"t","payload": {"a" : 1} }`, "Idempotency-Key", "k1", "Traceparent", "00-aa", "Tracestate", "x=1")
	r.send(t, "application/json", `{"device":"ok","type":"t","text":"a\nb","idem":"k2","trace":"00-bb"}`, "Traceparent", "00-aa")
	if want := []string{`ok k1 00-aa {"a" : 1}`, "ok k2 00-bb a\nb"}; !slices.Equal(r.got, want) {
		t.Errorf("%q", r.got)
	}
}

// TestList: each device has its result, in the order of the request, and the
// status says whether it is worth a look.
func TestList(t *testing.T) {
	r := newRig(t, nil)
	resp, body := r.send(t, "application/json", `{"devices":["away","ok","other","no"],"type":"t","text":"x"}`, "Idempotency-Key", "k")
	var got struct {
		Delivered, Failed int
		Results           []struct {
			Device string
			Answer *answer
			Error  *struct{ Type string }
		}
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil || resp.StatusCode != http.StatusMultiStatus {
		t.Fatal(err, resp.Status, body)
	}
	if got.Delivered != 1 || got.Failed != 3 || len(got.Results) != 4 {
		t.Fatal(body)
	}
	for i, device := range []string{"away", "ok", "other", "no"} {
		if x := got.Results[i]; x.Device != device || (x.Error == nil) != (device == "ok") || (x.Answer != nil) != (device == "ok") {
			t.Errorf("%d: %+v", i, x)
		}
	}
	if resp, body := r.send(t, "application/json", `{"devices":["ok"],"type":"t","text":"x"}`); resp.StatusCode != 200 || !strings.HasPrefix(body, `{"delivered":1,"failed":0,"results":[{"device":"ok"`) {
		t.Error(resp.Status, body)
	}
}

// TestBatch: a result for each line, as soon as it is known: a device that hangs
// keeps nobody's result back.
func TestBatch(t *testing.T) {
	r := newRig(t, nil)
	hold := make(chan struct{})
	r.does["slow"] = hangs(hold)
	in, out := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url, in)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	req.Header.Set("Idempotency-Key", "k")
	var sent sync.WaitGroup
	sent.Go(func() {
		fmt.Fprint(out, `{"device":"slow","type":"t","text":"1"}`+"\n\n"+`{"device":"ok","type":"t","text":"2"}`+"\n"+`{"device":"ok"}`+"\n"+
			`{"devices":["away","no"],"type":"t","text":"4"}`+"\n"+strings.Repeat("x", 6*1000+1<<20+1)+"\n"+`{"device":"no","type":"t","text":"6","idem":"own"}`+"\n")
	})
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	got := map[int]string{}
	next := func() {
		text, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		var l struct{ Line int }
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatal(err, text)
		}
		got[l.Line] = text
	}
	for range 5 {
		next()
	}
	if got[1] != "" {
		t.Fatal("the slow device has an answer")
	}
	close(hold)
	next()
	_ = out.Close()
	sent.Wait()
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
		t.Error(err, string(rest))
	}
	for line, part := range map[int]string{
		1: `{"line":1,"device":"slow","answer":{"status":200}}`,
		2: `{"line":2,"device":"ok","answer":{"status":200,"content_type":"text/plain","body":"thanks"}}`,
		3: `{"line":3,"error":{` + what(problem.InvalidEvent),
		4: `{"line":4,"delivered":0,"failed":2,"results":[{"device":"away","error":{`,
		5: what(problem.BodyTooLarge),
		6: `{"line":6,"device":"no","error":{` + what(problem.DeviceRefused),
	} {
		if !strings.Contains(got[line], part) {
			t.Errorf("%d: %s lacks %s", line, got[line], part)
		}
	}
	slices.Sort(r.got)
	if want := []string{"away k#4  4", "no k#4  4", "no own  6", "ok k#2  2", "slow k#1  1"}; !slices.Equal(r.got, want) {
		t.Errorf("%q", r.got)
	}
}

// TestScopes: who may not send to a device sends to nobody of the list; of a
// batch the other lines count.
func TestScopes(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.Sender = func(r *http.Request) (Sender, error) {
			if r.Header.Get("Authorization") == "" {
				return nil, problem.New(problem.Unauthorized, "who are you?")
			}
			return scoped{}, nil
		}
	})
	if resp, _ := r.one(t, "ok"); resp.StatusCode != 401 || resp.Header.Get("WWW-Authenticate") == "" {
		t.Error(resp.Status)
	}
	if resp, _ := r.send(t, "application/json", `{"devices":["ok","no"],"type":"t","text":""}`, "Authorization", "x"); resp.StatusCode != 403 {
		t.Error(resp.Status)
	}
	resp, body := r.send(t, "application/x-ndjson", `{"device":"no","type":"t","text":""}`+"\n"+`{"device":"ok","type":"t","text":""}`, "Authorization", "x")
	if resp.StatusCode != 200 || !strings.Contains(body, what(problem.Forbidden)) || !slices.Equal(r.got, []string{"ok   "}) {
		t.Error(resp.Status, body, r.got)
	}
}

type scoped struct{}

func (scoped) Permit(device string) error {
	if device == "ok" {
		return nil
	}
	return problem.New(problem.Forbidden, "not that one")
}

// TestClientGone: nobody waits for the answer, so the push ends; where the line
// was waited in, too.
func TestClientGone(t *testing.T) {
	r := newRig(t, nil)
	var ended atomic.Int32
	began := make(chan struct{}, 2)
	r.does["slow"] = func(ctx context.Context, _ post.Event) (*post.Reply, error) {
		began <- struct{}{}
		<-ctx.Done()
		ended.Add(1)
		return nil, &post.Failure{Stage: post.Answer, Sent: true, Err: ctx.Err()}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			req, _ := http.NewRequestWithContext(ctx, http.MethodPost, r.url, strings.NewReader(`{"device":"slow","type":"t","text":""}`))
			req.Header.Set("Content-Type", "application/json")
			if resp, err := http.DefaultClient.Do(req); err == nil {
				resp.Body.Close()
				t.Error("it has an answer")
			}
		})
	}
	<-began
	waitFor(t, func() bool { return testutil.ToFloat64(r.h.metrics.waiting) == 1 })
	cancel()
	all.Wait()
	waitFor(t, func() bool {
		return testutil.ToFloat64(r.h.metrics.results.WithLabelValues(resultAbandoned)) == 2 && r.h.InFlight() == 0
	})
	if n := testutil.ToFloat64(r.h.metrics.doubtful); n != 0 {
		t.Error("a device is doubted for its client's sake")
	}
	// The one that waited may have had its turn before it noticed.
	if n := ended.Load(); n < 1 {
		t.Errorf("%d pushes were ended", n)
	}
}

func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	testkit.Eventually(t, "it comes about", ok)
}
