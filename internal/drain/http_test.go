package drain

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"downlink/internal/openapi/openapitest"
	"downlink/internal/session"
)

// TestHandlers: what is asked and answered is as the description says.
func TestHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2000, func(o *Options) { o.Deadline = time.Minute })
		doc, h := openapitest.Read(t), f.drain.Handlers()
		mux := http.NewServeMux()
		mux.HandleFunc("GET "+Path, h.Show)
		mux.HandleFunc("POST "+Path, h.Begin)
		mux.HandleFunc("DELETE "+Path, h.Abort)
		ask := func(method, body string, want int, header ...string) (s Status) {
			t.Helper()
			r := httptest.NewRequestWithContext(t.Context(), method, Path, strings.NewReader(body))
			if body != "" {
				r.Header.Set("Content-Type", "application/json")
			}
			for i := 0; i < len(header); i += 2 {
				r.Header.Set(header[i], header[i+1])
			}
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, r)
			answer := w.Result()
			defer answer.Body.Close()
			text, err := io.ReadAll(answer.Body)
			if err != nil || answer.StatusCode != want {
				t.Fatalf("%s %s: %s %s, want %d", method, body, answer.Status, text, want)
			}
			doc.Answer(t, method+" "+body, Path, strings.ToLower(method), want, answer.Header, text)
			if want < 300 && json.Unmarshal(text, &s) != nil {
				t.Fatalf("%s", text)
			}
			return s
		}
		if s := ask("GET", "", 200); s.Phase != Serving || s.Connections != 2000 || s.WithinS != nil || s.Plan.TotalS != 35.3 {
			t.Errorf("%+v", s)
		}
		for body, status := range map[string]int{
			`{"hasten":1}`: 400, `{"hurry":true}`: 400, `{"hasten":true,"hasten":true}`: 400, `[]`: 400, `{`: 400, `x` + strings.Repeat(" ", maxBody): 413,
		} {
			ask("POST", body, status)
		}
		ask("POST", "x", 415, "Content-Type", "text/plain")
		ask("POST", "", 403, "Sec-Fetch-Site", "cross-site")
		ask("DELETE", "", 403, "Sec-Fetch-Site", "cross-site")
		if s := ask("DELETE", "", 200); s.Phase != Serving || !f.drain.Ready() {
			t.Errorf("%+v", s)
		}
		if s := ask("POST", "", 202); s.Phase != Waiting || s.BegunBy != ByAPI || s.Final || *s.WithinS != 60 {
			t.Errorf("%+v", s)
		}
		f.sleep(time.Second)
		if s := ask("DELETE", "", 200); s.Phase != Serving {
			t.Errorf("%+v", s)
		}
		ask("POST", `{}`, 202)
		f.sleep(10 * time.Second)
		if s := ask("GET", "", 200); s.Phase != Closing || s.Found != 2000 || s.Told != 2000 || s.Connections > 1700 || s.Connections < 1300 || !s.Final {
			t.Errorf("%+v", s)
		}
		ask("DELETE", "", 409)
		if s := ask("POST", `{"hasten":true}`, 202); !s.Hastened {
			t.Errorf("%+v", s)
		}
		f.sleep(time.Second)
		if s := ask("GET", "", 200); s.Phase != Closed || s.Connections != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestLinger: who watches by the API sees the end; a signal makes an end of it.
func TestLinger(t *testing.T) {
	for name, c := range map[string]struct {
		by   Cause
		then func(*Drain)
		want time.Duration
	}{
		"by the API":             {ByAPI, nil, lingering},
		"a signal after the API": {ByAPI, func(d *Drain) { d.Begin(BySignal) }, time.Second},
		"by a file":              {ByFile, nil, 0},
		"by a signal":            {BySignal, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 0, func(o *Options) { o.Wait = 0 })
				f.drain.Begin(c.by)
				f.sleep(time.Second)
				if c.then != nil {
					c.then(f.drain)
				}
				if took := f.drained(); max(took, time.Second) != max(c.want+glance, time.Second) && took != c.want {
					t.Errorf("it ended after %v, want %v", took, c.want)
				}
			})
		})
	}
}

// TestFile: a file that appears or is touched begins a drain, one that was left
// over doesn't, and none leaves it as it is.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "drain")
	var logged bytes.Buffer
	touch := func(at time.Time) {
		t.Helper()
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	watch := func(t *testing.T) *Drain {
		d := New(Options{
			Wait: time.Hour, Rate: func() int { return 1 }, Roster: new(session.Roster), Metrics: NewMetrics(nil),
			Logger: slog.New(slog.NewTextHandler(&logged, nil)),
		})
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() { defer close(ended); d.Watch(ctx, path) }()
		t.Cleanup(func() { cancel(); <-ended })
		synctest.Wait()
		return d
	}
	looked := func() {
		time.Sleep(3 * look) //nolint:forbidigo // in a bubble
		synctest.Wait()
	}
	synctest.Test(t, func(t *testing.T) {
		d := watch(t)
		if looked(); !d.Ready() {
			t.Fatal("there is no file")
		}
		touch(time.Now())
		if looked(); d.Ready() || d.Status().BegunBy != ByFile {
			t.Fatal("there is one")
		}
		d.Abort()
		if looked(); !d.Ready() {
			t.Fatal("it was taken back, and the file is as before")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		d := watch(t)
		if looked(); !d.Ready() || !strings.Contains(logged.String(), "there already") {
			t.Fatalf("it was there before: %s", &logged)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if looked(); !d.Ready() {
			t.Fatal("it has gone")
		}
		touch(time.Now())
		if looked(); d.Ready() {
			t.Fatal("it has come again")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		d := watch(t)
		touch(time.Now().Add(time.Hour))
		if looked(); d.Ready() {
			t.Fatal("it was touched")
		}
	})
}

// TestIsolation: while the log is away, sessions that are old enough end at the
// rate; those of other logs, and younger ones, stay; and all stay once it is back.
func TestIsolation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1000, nil)
		var away atomic.Bool
		cut := func(after time.Duration) func(string) bool {
			if !away.Load() || after != time.Minute {
				return nil
			}
			return func(device string) bool { return !strings.HasSuffix(device, "7") }
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() {
			ended <- Isolate(ctx, IsolationOptions{
				After: time.Minute, Cut: cut, Rate: func() int { return 100 },
				Roster: f.roster, Ages: f.ages, Metrics: f.metrics, Logger: slog.New(slog.DiscardHandler),
			})
		}()
		f.sleep(50 * time.Second)
		for range 100 {
			f.come(0)
		}
		f.sleep(20 * time.Second)
		if n := f.roster.Len(); n != 1100 {
			t.Fatalf("%d sessions are left", n)
		}
		away.Store(true)
		f.sleep(4 * time.Second)
		if n := 1100 - f.roster.Len(); n < 250 || n > 450 || testutil.ToFloat64(f.metrics.Isolated) != 1 {
			t.Errorf("%d have ended in about 3 s", n)
		}
		away.Store(false)
		f.sleep(2 * time.Second)
		before := f.roster.Len()
		f.sleep(10 * time.Second)
		if n := f.roster.Len(); n != before || testutil.ToFloat64(f.metrics.Isolated) != 0 {
			t.Errorf("%d sessions are left, it was %d when the log came back", n, before)
		}
		away.Store(true)
		f.sleep(12 * time.Second)
		if n := f.roster.Len(); n != 200 {
			t.Errorf("%d sessions are left, 100 of them of another log and 100 younger", n)
		}
		var ends []time.Duration
		for _, d := range f.all {
			switch d.session.Ended() {
			case session.Isolated:
				ends = append(ends, d.ended)
			case "":
			default:
				t.Fatalf("ended as %q", d.session.Ended())
			}
		}
		if most := peak(ends); most > 150 {
			t.Errorf("%d ended in one second", most)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestTerms: the arithmetic of 2,500 devices, as in the documentation, and where
// it ends.
func TestTerms(t *testing.T) {
	terms := Terms{Wait: 5 * time.Second, Rate: 200, Deadline: 80 * time.Second, Last: 10 * time.Second}
	p := terms.Plan(2500)
	if p.Tell != 350*time.Millisecond || p.Close != 12500*time.Millisecond || p.Pace != 200 || p.Total() != 27850*time.Millisecond || p.Back != 17850*time.Millisecond {
		t.Errorf("%+v", p)
	}
	if most := terms.AtRate(); terms.Plan(most).Pace != 200 || terms.Plan(most+200).Pace <= 200 {
		t.Errorf("%d is the most at the rate; then it is %v, and for 200 more %v", most, terms.Plan(most).Pace, terms.Plan(most+200).Pace)
	}
	if p := terms.Plan(50_000); p.Total() != terms.Deadline || p.Pace < 800 || p.Back < 250*time.Second {
		t.Errorf("%+v", p)
	}
	for want, terms := range map[string]Terms{
		"12725 connections": terms, "all connections are closed at once": {Wait: 1, Deadline: 2}, "for each 7 connections": {Rate: 7},
	} {
		if text := terms.String(); !strings.Contains(text, want) {
			t.Errorf("%+v: %s", terms, text)
		}
	}
	if p := (Terms{Rate: 10, Deadline: time.Second, Last: time.Minute}).Plan(10); p.Pace != 0 || p.Close != 0 {
		t.Errorf("without time: %+v", p)
	}
	if (Terms{}).AtRate() != -1 {
		t.Error("without a rate any number leaves at once")
	}
}
