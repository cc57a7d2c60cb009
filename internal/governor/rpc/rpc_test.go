package rpc

import (
	"context"
	"crypto/sha1"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"downlink/internal/governor"
	"downlink/internal/governor/rpc/governorv1"
	"downlink/internal/governor/usage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A still is a probe that nobody reads.
type still string

func (s still) Name() string { return string(s) }

func (still) Read(context.Context) (governor.Reading, error) { return governor.Reading{}, nil }

// A told governor has real settings, and moves when a test says so.
type told struct {
	*governor.Governor

	mu      sync.Mutex
	ratio   float64
	changes []governor.Change
	more    chan struct{}
}

func (g *told) State() governor.State {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.Governor.State()
	s.Levers[0].Ratio = g.ratio
	return s
}

func (g *told) Changes(after uint64) (later []governor.Change, more <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.changes {
		if c.Number > after {
			later = append(later, c)
		}
	}
	return later, g.more
}

func (g *told) move(ratio float64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.changes = append(g.changes, governor.Change{
		Number: uint64(len(g.changes)) + 1, At: time.Now(), Lever: governor.Admission, Kind: governor.Fall,
		Before: g.ratio, After: ratio, Unit: "places", Signal: "redis_memory", Why: "because",
	})
	g.ratio = ratio
	close(g.more)
	g.more = make(chan struct{})
}

// A rig is a service behind a real server that speaks HTTP/1.1 and HTTP/2 in the
// clear.
type rig struct {
	*Service
	told  *told
	use   *usage.Book
	fresh atomic.Bool // it has just begun
	url   string
	http  *http.Client
	old   *http.Client // HTTP/1.1 alone
}

func newRig(t *testing.T, adapt func(*Service)) *rig {
	t.Helper()
	signals := []governor.Signal{{
		Probe: still("redis_memory"), Unit: "ratio", Help: "h", Period: time.Second, Timeout: time.Second, Fresh: time.Minute,
		Threshold: 0.8, Wall: 0.9, Levers: []string{governor.Admission},
	}}
	law, err := governor.New(governor.Options{
		Signals: signals, Settings: governor.Defaults(signals), Metrics: governor.NewMetrics(nil), Logger: slog.New(slog.DiscardHandler),
		Levers: []governor.Lever{{Name: governor.Admission, Unit: "places", Use: func() (float64, bool) { return 0, false }, Set: func(governor.Position) {}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{told: &told{Governor: law, ratio: 1, more: make(chan struct{})}, use: new(usage.Book)}
	r.Service = New(Options{Governor: r.told, Use: r.use, Opinion: func() bool { return !r.fresh.Load() }})
	if adapt != nil {
		adapt(r.Service)
	}
	server := httptest.NewUnstartedServer(r.Service)
	server.Config.Protocols = both(true)
	server.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		_ = c.(*net.TCPConn).SetWriteBuffer(16 << 10) // as package server does
		return ctx
	}
	server.Start()
	r.url, r.http, r.old = server.URL, &http.Client{Transport: &http.Transport{Protocols: both(false)}}, &http.Client{Transport: new(http.Transport)}
	t.Cleanup(func() {
		r.Service.Close()
		r.http.CloseIdleConnections()
		r.old.CloseIdleConnections()
		server.Close()
	})
	return r
}

func both(old bool) *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(old)
	p.SetUnencryptedHTTP2(true)
	return p
}

// ways are the protocols.
func (r *rig) ways() map[string]governorv1.GovernorClient {
	return map[string]governorv1.GovernorClient{
		"gRPC":              governorv1.NewGovernorClient(r.http, r.url, connect.WithGRPC()),
		"gRPC-Web":          governorv1.NewGovernorClient(r.old, r.url, connect.WithGRPCWeb()),
		"Connect":           governorv1.NewGovernorClient(r.http, r.url),
		"Connect, JSON":     governorv1.NewGovernorClient(r.old, r.url, connect.WithProtoJSON()),
		"Connect, HTTP GET": governorv1.NewGovernorClient(r.old, r.url, connect.WithHTTPGet()),
	}
}

func TestEveryProtocolSaysTheSame(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for name, c := range r.ways() {
		t.Run(name, func(t *testing.T) {
			r.told.move(0.5)
			got, err := c.GetState(t.Context(), &governorv1.GetStateRequest{})
			if err != nil {
				t.Fatal(err)
			}
			s := got.GetState()
			if l := s.GetLevers()[0]; !s.GetOn() || l.GetName() != governor.Admission || l.GetRatio() != 0.5 || l.GetSince() == nil || s.GetSignals()[0].GetWall() != 0.9 {
				t.Errorf("%v", s)
			}
			if s.GetSettings().GetFields()["period"].GetStringValue() != "30s" {
				t.Errorf("%v", s.GetSettings())
			}
			said, err := c.Report(t.Context(), &governorv1.ReportRequest{Caller: name, Use: 1, ForSeconds: 60})
			if err != nil || said.GetState().GetLevers()[0].GetRatio() != 0.5 {
				t.Errorf("%v, %v", said, err)
			}
			watch(t, r, c)
		})
	}
	if sum, _ := r.use.Sum(); sum != float64(len(r.ways())) {
		t.Errorf("%v is in use", sum)
	}
}

// watch hears the state, and then each change with the state after it.
func watch(t *testing.T, r *rig, c governorv1.GovernorClient) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := c.Watch(ctx, &governorv1.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if !stream.Receive() || len(stream.Msg().GetChanges()) != 0 || stream.Msg().GetState().GetLevers()[0].GetRatio() != 0.5 {
		t.Fatalf("%v, %v", stream.Msg(), stream.Err())
	}
	r.told.move(0.4)
	if !stream.Receive() || len(stream.Msg().GetChanges()) != 1 || stream.Msg().GetState().GetLevers()[0].GetRatio() != 0.4 {
		t.Fatalf("%v, %v", stream.Msg(), stream.Err())
	}
	if c := stream.Msg().GetChanges()[0]; c.GetBefore() != 0.5 || c.GetAfter() != 0.4 || c.GetKind() != "fall" || c.GetNumber() == 0 || c.GetWhy() != "because" {
		t.Errorf("%v", c)
	}
}

// All of the JSON of a governor is in the messages, under the same names, and comes
// out as it went in.
func TestNothingIsLostInTranslation(t *testing.T) {
	t.Parallel()
	var state governor.State
	var change governor.Change
	fill(reflect.ValueOf(&state).Elem())
	fill(reflect.ValueOf(&change).Elem())
	compare(t, state, new(governorv1.State))
	compare(t, change, new(governorv1.Change))
}

// fill sets everything in v to something.
func fill(v reflect.Value) {
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Unix(1700000000, 5000).UTC()))
	case v.Kind() == reflect.Struct:
		for _, f := range v.Fields() {
			fill(f)
		}
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case v.Kind() == reflect.String:
		v.SetString("x")
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.CanFloat():
		v.SetFloat(0.5)
	case v.CanUint():
		v.SetUint(7)
	}
}

func compare(t *testing.T, from any, message proto.Message) {
	t.Helper()
	text, err := json.Marshal(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := protojson.Unmarshal(text, message); err != nil { // strict, as translate isn't
		t.Fatal(err)
	}
	again, err := protojson.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	var before, after any
	if err := errors.Join(json.Unmarshal(text, &before), json.Unmarshal(again, &after)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Error(diff)
	}
}

func settings(t *testing.T, text string) *governorv1.PatchRequest {
	t.Helper()
	r := &governorv1.PatchRequest{Settings: new(structpb.Struct)}
	if err := protojson.Unmarshal([]byte(text), r.GetSettings()); err != nil {
		t.Fatal(err)
	}
	return r
}

// What is named counts at once, all of it or nothing.
func TestPatch(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for name, c := range r.ways() {
		got, err := c.Patch(t.Context(), settings(t, `{"step": 0.2, "hesitance": 3, "signals": {"redis_memory": {"threshold": 0.7}}}`))
		if err != nil {
			t.Fatal(name, err)
		}
		fields := got.GetSettings().GetFields()
		if fields["step"].GetNumberValue() != 0.2 || fields["calm"].GetStringValue() != "1m0s" {
			t.Errorf("%s: %v", name, fields)
		}
		before := r.told.Settings()
		if before.Hesitance != 3 || before.Signals["redis_memory"].Threshold != 0.7 || before.Signals["redis_memory"].Wall != 0.9 {
			t.Errorf("%s: %+v", name, before)
		}
		for bad, want := range map[string]string{
			`{"step": 0.3, "gravity": 9.81}`:                            "gravity",
			`{"step": 0.3, "floor": 7, "period": "0s"}`:                 "period",
			`{"step": null}`:                                            "step",
			`{"step": 0.3, "signals": {"redis_memory": {"wall": 0.1}}}`: "signals.redis_memory.wall",
		} {
			_, err := c.Patch(t.Context(), settings(t, bad))
			if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %s: %v", name, bad, err)
			}
		}
		if _, err := c.Patch(t.Context(), &governorv1.PatchRequest{}); err != nil {
			t.Errorf("%s: a change of nothing: %v", name, err)
		}
		nan := &governorv1.PatchRequest{Settings: &structpb.Struct{Fields: map[string]*structpb.Value{"step": structpb.NewNumberValue(math.NaN())}}}
		if _, err := c.Patch(t.Context(), nan); err == nil {
			t.Errorf("%s: NaN counts", name)
		}
		if diff := cmp.Diff(before, r.told.Settings()); diff != "" {
			t.Errorf("%s: a part of it counts: %s", name, diff)
		}
		if _, err := c.Report(t.Context(), &governorv1.ReportRequest{Caller: name, Use: -1, ForSeconds: 60}); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// curl is enough, and a page of another site is too little.
func TestPlainHTTP(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	post := func(at, body, site string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+at, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		if site != "" {
			req.Header.Set("Sec-Fetch-Site", site)
		}
		resp, err := r.old.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text)
	}
	if code, text := post(governorv1.GovernorGetStateProcedure, "{}", ""); code != http.StatusOK || !strings.Contains(text, `"ratio"`) || !strings.Contains(text, `"fresh_seconds"`) {
		t.Errorf("%d %s", code, text)
	}
	if code, text := post(HealthPath+"Check", "{}", ""); code != http.StatusOK || !strings.Contains(text, "SERVING") {
		t.Errorf("%d %s", code, text)
	}
	before := r.told.Settings()
	for _, c := range []struct{ at, body, site string }{
		{PatchPath, `{"settings": {"step": 0.3}}`, "cross-site"},
		{PatchPath, `{"settings": {"step": 0.3}, "more": 1`, ""},
		{PatchPath, `{"settings": {"floor": 0.3, "` + strings.Repeat("x", maxRequestBytes) + `": 1}}`, ""},
		{Path + "Nothing", `{}`, ""},
	} {
		if code, text := post(c.at, c.body, c.site); code == http.StatusOK {
			t.Errorf("%.60s: %d %s", c.body, code, text)
		}
	}
	if diff := cmp.Diff(before, r.told.Settings()); diff != "" {
		t.Error(diff)
	}
	w := httptest.NewRecorder()
	Proto().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, ProtoPath, http.NoBody))
	if !strings.Contains(w.Body.String(), "service Governor") {
		t.Error(w.Body)
	}
}

// A governor that has just begun says so instead of a ratio, and is told what is in
// use all the same.
func TestNoOpinionYet(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.fresh.Store(true)
	for name, c := range r.ways() {
		_, err := c.GetState(t.Context(), &governorv1.GetStateRequest{})
		if connect.CodeOf(err) != connect.CodeUnavailable {
			t.Errorf("%s: %v", name, err)
		}
		_, err = c.Report(t.Context(), &governorv1.ReportRequest{Caller: name, Use: 1, ForSeconds: 60})
		if connect.CodeOf(err) != connect.CodeUnavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
	if sum, _ := r.use.Sum(); sum != float64(len(r.ways())) {
		t.Errorf("%v is in use", sum)
	}
}

// Who watches hears something although nothing happens; at the end he is told, and
// so is whoever asks for the health.
func TestWatchGoesOnUntilTheEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(s *Service) { s.every = time.Millisecond })
	for name, c := range map[string]governorv1.GovernorClient{
		"HTTP/2":   governorv1.NewGovernorClient(r.http, r.url, connect.WithGRPC()),
		"HTTP/1.1": governorv1.NewGovernorClient(r.old, r.url),
	} {
		stream, err := c.Watch(t.Context(), &governorv1.WatchRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			if !stream.Receive() {
				t.Fatal(name, stream.Err())
			}
		}
		defer func() {
			for stream.Receive() {
			}
			if connect.CodeOf(stream.Err()) != connect.CodeUnavailable {
				t.Errorf("%s: %v", name, stream.Err())
			}
			_ = stream.Close()
		}()
	}
	if got := health(t, r); got != grpchealth.StatusNotServing {
		t.Error(got)
	}
	r.Open()
	if got := health(t, r); got != grpchealth.StatusServing {
		t.Error(got)
	}
	r.Close()
	r.Open()
	r.Close()
	if got := health(t, r); got != grpchealth.StatusNotServing {
		t.Error(got)
	}
	late, err := governorv1.NewGovernorClient(r.http, r.url, connect.WithGRPC()).Watch(t.Context(), &governorv1.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	if late.Receive() || connect.CodeOf(late.Err()) != connect.CodeUnavailable {
		t.Error(late.Err())
	}
}

// health asks as probes of gRPC do.
func health(t *testing.T, r *rig) grpchealth.Status {
	t.Helper()
	answer, err := r.health.Check(t.Context(), &grpchealth.CheckRequest{Service: governorv1.GovernorName})
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status
}

// The health is heard for as long as somebody listens, over HTTP/2 also after the time
// that an answer may take, and so is its end.
func TestHealthIsWatched(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(s *Service) { s.limit = 200 * time.Millisecond })
	r.watchingHealth = maxHealthWatchers - 1
	c := grpchealth.NewClient(r.http, r.url, connect.WithGRPC())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events := c.Watch(ctx, &grpchealth.CheckRequest{Service: governorv1.GovernorName})
	heard := func(want grpchealth.Status) {
		t.Helper()
		if e := <-events; e.Err != nil || e.Response == nil || e.Response.Status != want {
			t.Fatalf("%+v, want %v", e, want)
		}
	}
	heard(grpchealth.StatusNotServing)
	<-time.After(2 * r.limit)
	r.Open()
	heard(grpchealth.StatusServing)
	resp, err := r.old.Post(r.url+healthWatch, "application/connect+json", strings.NewReader("\x00\x00\x00\x00\x02{}"))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("one more than may: %d", resp.StatusCode)
	}
	r.Close()
	heard(grpchealth.StatusNotServing)
	for range events { // until it ends
	}
}

// A place is given back by whoever goes, and by whoever takes nothing.
func TestWatchersAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(s *Service) {
		s.watching = maxWatchers - 1
		s.every, s.limit = time.Hour, 200*time.Millisecond
	})
	deaf, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	if err := deaf.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil { // or it takes megabytes to fill
		t.Fatal(err)
	}
	// A Connect request for a stream: one enveloped message, {} in JSON.
	fmt.Fprintf(deaf, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/connect+json\r\nContent-Length: 7\r\n\r\n\x00\x00\x00\x00\x02{}", governorv1.GovernorWatchProcedure)
	until(t, func() bool { return r.Watching() == maxWatchers })
	c := governorv1.NewGovernorClient(r.http, r.url, connect.WithGRPC())
	full, err := c.Watch(t.Context(), &governorv1.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	if full.Receive() || connect.CodeOf(full.Err()) != connect.CodeResourceExhausted {
		t.Error(full.Err())
	}
	until(t, func() bool {
		r.told.move(0.5) // which nobody reads
		return r.Watching() == maxWatchers-1
	})
}

// The code is that of the description (make proto).
func TestGeneratedCode(t *testing.T) {
	code, err := os.ReadFile("governorv1/governor.pb.go")
	if err != nil {
		t.Fatal(err)
	}
	sum := sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(description), description)) //nolint:gosec // git's own
	if want := fmt.Sprintf("git blob %x\n", sum); !strings.Contains(string(code), want) {
		t.Errorf("governor.proto has changed since its code was generated (%s): run make proto", strings.TrimSpace(want))
	}
}

func until(t *testing.T, done func() bool) {
	t.Helper()
	for began := time.Now(); !done(); {
		if time.Since(began) > time.Minute {
			t.Fatal("it doesn't happen")
		}
		<-time.After(time.Millisecond)
	}
}
