package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"downlink/internal/load/producer"
	"downlink/internal/load/results"
	"downlink/internal/load/watch"
	"downlink/internal/load/wire"
	"downlink/internal/testkit"
)

// sources is how many addresses of its own a machine has without being asked:
// 127.0.0.2 is there on Linux only.
func sources() int {
	if runtime.GOOS == "linux" {
		return 3
	}
	return 1
}

// TestScenarios: each of them against a real gateway, on both drivers, with a
// clean ledger.
func TestScenarios(t *testing.T) {
	for _, driver := range []string{"native", "portable"} {
		for name, change := range map[string]func(*Options){
			"broadcast": func(o *Options) { o.Warmup = 500 * time.Millisecond },
			"targeted":  func(o *Options) { o.Sources = sources() },
			"storm":     func(o *Options) { o.Rate, o.Batch = 0, 10 },
			"slow":      func(o *Options) { o.Stalled, o.Misbehave, o.Rate = 5, 10, 100 },
			"soak":      func(o *Options) { o.Churn, o.Duration = 2000, 1500*time.Millisecond },
		} {
			t.Run(driver+"/"+name, func(t *testing.T) {
				t.Parallel()
				device, backend := startGateway(t, "file:"+t.TempDir()) // its own: broadcasts reach everybody
				o := options(name, device)
				o.Portable, o.NewSender = driver == "portable", through(backend, false)
				change(&o)
				if o.Batch > 1 {
					o.NewSender = through(backend, true)
				}
				r := play(t, o)
				clean(t, r)
				if r.Connect.Connected != o.Devices || r.Receive.Received == 0 || r.Receive.Latency.Count != int64(r.Receive.Received) || r.Publish.Latency.Count == 0 {
					t.Errorf("%+v %+v", r.Connect, r.Receive)
				}
				if name == "storm" && (!r.Storm.Complete || r.Storm.Received != 150 || r.Storm.Connected != 50) {
					t.Errorf("%+v", r.Storm)
				}
				if name == "broadcast" && r.Receive.Warmup == 0 {
					t.Error("nothing was received during the warm-up")
				}
				if name == "soak" && r.Closed.ByUs < 10 {
					t.Errorf("%d left", r.Closed.ByUs)
				}
			})
		}
	}
}

func TestIdleAndCycles(t *testing.T) {
	device, _ := startGateway(t, "file:"+t.TempDir())
	o := options(Idle, device)
	o.Settle, o.Series = 10*time.Millisecond, true
	r := play(t, o)
	clean(t, r)
	if r.Closed.ByUs != 50 || r.Connect.Latency.Count != 50 || r.Connect.PerSecond <= 0 {
		t.Errorf("%+v %+v", r.Closed, r.Connect)
	}
	o = options(Soak, device)
	o.Cycles = 3
	r = play(t, o)
	clean(t, r)
	if len(r.Cycles) != 3 || r.Cycles[2].Connected != 50 || r.Closed.ByUs != 150 || r.Connect.Connected != 150 {
		t.Errorf("%+v %+v", r.Cycles, r.Closed)
	}
}

func TestStraightIntoRedis(t *testing.T) {
	redis := testkit.StartRedis(t)
	device, _ := startGateway(t, redis.URL())
	o := options(Targeted, device)
	o.Batch, o.NewSender = 20, func() (producer.Sender, error) { return producer.NewRedis(redis.URL(), "pos-ev", 4) }
	clean(t, play(t, o))
	o.Scenario = Broadcast
	clean(t, play(t, o))
}

// TestWhatAServerDoesWrong: the ledger sees it, and thresholds fail by it.
func TestWhatAServerDoesWrong(t *testing.T) {
	t.Parallel()
	var held string
	for name, c := range map[string]struct {
		deliver func(device string, n int, payload string) []string
		failure string
	}{
		"nothing": {func(_ string, _ int, payload string) []string { return []string{payload} }, ""},
		"loses": {func(device string, n int, payload string) []string {
			if n == 3 && device == "device-7" {
				return nil
			}
			return []string{payload}
		}, "1 events were lost, allowed are 0"},
		"repeats": {func(device string, n int, payload string) []string {
			if n == 3 && device == "device-7" {
				return []string{payload, payload}
			}
			return []string{payload}
		}, "1 events were repeated, allowed are 0"},
		"swaps": {func(device string, n int, payload string) []string {
			if device == "device-7" && n == 3 {
				held = payload
				return nil
			}
			if device == "device-7" && n == 4 {
				return []string{payload, held}
			}
			return []string{payload}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var r *results.Report
			for tries := 0; tries == 0 || r.Publish.Accepted < 5 && tries < 10; tries++ { // it stood still meanwhile
				url := startFake(t, c.deliver)
				o := options(Broadcast, url)
				o.NewSender, o.Rate = through(url, false), 50
				if name == "loses" { // it would be waited for
					o.Grace = 3 * time.Second
				}
				r = play(t, o)
			}
			if got := strings.Join(r.Failures, "; "); got != c.failure || r.Passed != (c.failure == "") {
				t.Errorf("failures %q, want %q", got, c.failure)
			}
			if (r.Receive.Disordered == 1) != (name == "swaps") {
				t.Errorf("%d disordered", r.Receive.Disordered)
			}
			if name == "loses" && (len(r.Receive.Losses) != 1 || r.Receive.Losses[0] != "device 7: event b0:3") {
				t.Error(r.Receive.Losses)
			}
		})
	}
}

// TestTheBorderOfTheWarmup: sender and receiver agree of each event on which side it
// falls, however long it takes to draw the border.
func TestTheBorderOfTheWarmup(t *testing.T) {
	for range 20 {
		var border atomic.Int64
		border.Store(math.MaxInt64)
		p := &press{measured: &border}
		var senders sync.WaitGroup
		begun := make(chan struct{}, 4)
		for range cap(begun) {
			senders.Go(func() {
				for n, after := 0, 0; after < 10; n++ {
					sent, measured := p.stamp()
					received := sent.UnixNano() >= border.Load() // at once
					if measured != received {
						t.Errorf("event %d is measured: %v; and received so: %v", n, measured, received)
					}
					if n == 10 {
						begun <- struct{}{}
					}
					if measured {
						after++
					}
				}
			})
		}
		<-begun
		p.measure()
		senders.Wait()
	}
}

func TestThresholdOfLatency(t *testing.T) {
	url := startFake(t, func(_ string, _ int, payload string) []string { return []string{payload} })
	o := options(Broadcast, url)
	o.NewSender, o.MaxP99 = through(url, false), time.Nanosecond
	if r := play(t, o); r.Passed || !strings.Contains(r.Failures[0], "receipt p99 is") {
		t.Error(r.Failures)
	}
	o = options(Idle, url)
	o.MaxP99 = time.Nanosecond
	if r := play(t, o); r.Passed || !strings.Contains(r.Failures[0], "connect p99 is") {
		t.Error(r.Failures)
	}
}

// TestNothingAccepted: a run in which nothing was published is none.
func TestNothingAccepted(t *testing.T) {
	url := startFake(t, nil)
	o := options(Targeted, url)
	o.NewSender = through(nobody(t), false)
	r := play(t, o)
	if r.Passed || r.Publish.Refused == 0 || r.Publish.Error == "" || r.Receive.Lost > 0 {
		t.Errorf("%v %+v", r.Failures, r.Publish)
	}
}

func TestNobodyConnects(t *testing.T) {
	if _, err := Run(context.Background(), options(Idle, nobody(t))); !errors.Is(err, ErrNobody) || !strings.Contains(err.Error(), "to 127.0.0.1:") || !strings.Contains(err.Error(), "refused") {
		t.Error(err)
	}
}

// TestOtherAnswers: a server that answers with a page is none of event streams.
func TestOtherAnswers(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "<html>Welcome")
	}))
	defer s.Close()
	for _, portable := range []bool{false, true} {
		o := options(Idle, s.URL)
		o.Portable = portable
		if _, err := Run(context.Background(), o); !errors.Is(err, ErrNobody) || !errors.Is(err, wire.ErrContentType) {
			t.Error(err)
		}
	}
}

// TestStreamsThatEnd: streams that the server ends aren't ones that it holds. A
// refusal looks so, where it is written for a native EventSource.
func TestStreamsThatEnd(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "retry: 3000\n\n: refused\n\n")
	}))
	defer s.Close()
	o := options(Idle, s.URL)
	o.Duration = 2 * time.Second // until all of them have ended
	if r := play(t, o); r.Passed || !strings.Contains(r.Failures[0], "the server ended 50 of the streams") {
		t.Error(r.Failures)
	}
}

// TestInterrupted: what was measured until then is reported, and nothing that
// was under way is called lost.
func TestInterrupted(t *testing.T) {
	device, backend := startGateway(t, "file:"+t.TempDir())
	for _, scenario := range []string{Targeted, Soak, Storm} {
		ctx, cancel := context.WithCancel(context.Background())
		o := options(scenario, device)
		o.NewSender, o.Duration, o.Missed = endingAfter(100, cancel, through(backend, false)), time.Hour, 1_000_000
		if scenario == Soak {
			o.Churn = 100
		}
		r, err := Run(ctx, o)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if !r.Ended || r.Passed || r.Publish.Accepted == 0 || (scenario != Storm && r.Receive.Lost > 0) {
			t.Errorf("%s: %v %+v %+v", scenario, r.Failures, r.Publish, r.Receive)
		}
	}
}

// endingAfter makes senders that end a run when they have published so many events.
func endingAfter(events int64, end func(), make func() (producer.Sender, error)) func() (producer.Sender, error) {
	left := new(atomic.Int64)
	left.Store(events)
	return func() (producer.Sender, error) {
		s, err := make()
		return &ending{s, left, end}, err
	}
}

type ending struct {
	producer.Sender
	left *atomic.Int64
	end  func()
}

func (e *ending) Publish(ctx context.Context, events []producer.Event, outcomes []producer.Outcome) error {
	err := e.Sender.Publish(ctx, events, outcomes)
	if e.left.Add(-int64(len(events))) == 0 {
		e.end()
	}
	return err
}

func TestWrongSettings(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"--devices must be":                  func(o *Options) { o.Devices = 0 },
		"--connecting must be":               func(o *Options) { o.Connecting = 0 },
		"need more ports":                    func(o *Options) { o.Devices, o.Sources = 30_000, 1 },
		"open files":                         func(o *Options) { o.Devices, o.Sources = 5_000_000, 254 },
		"--batch must be":                    func(o *Options) { o.Batch = 0 },
		"--stalled must be":                  func(o *Options) { o.Stalled = 51 },
		"--stalled is for":                   func(o *Options) { o.Stalled = 5 },
		"--read-rate is for":                 func(o *Options) { o.ReadRate = 5 },
		"--churn and --cycles are for":       func(o *Options) { o.Churn = 5 },
		"--misbehave is a percentage":        func(o *Options) { o.Misbehave = 101 },
		"--device-prefix":                    func(o *Options) { o.Prefix = "*" },
		"--url isn't an address":             func(o *Options) { o.URL = "nonsense" },
		"--url can't hold a user":            func(o *Options) { o.URL = "http://u:hunter2@127.0.0.1/{device}" },
		"--url has the port":                 func(o *Options) { o.URL = "http://127.0.0.1:99999/" },
		"--url: {devise} is no placeholder":  func(o *Options) { o.URL = "http://127.0.0.1/{devise}" },
		"{token} needs --token-secret-file":  func(o *Options) { o.Headers = []string{"Authorization: Bearer {token}"} },
		"isn't of the form":                  func(o *Options) { o.Headers = []string{"nonsense"} },
		"--resume-url must be":               func(o *Options) { o.ResumeURL = "http://elsewhere/" },
		"--resume-header: {x} is no":         func(o *Options) { o.ResumeHeader = "A: {x}" },
		"watching gone (process 2147483647)": func(o *Options) { o.Watch = []watch.Target{{Name: "gone", PIDs: []int{1<<31 - 1}}} },
		"a space or a line end":              func(o *Options) { o.URL = "http://127.0.0.1/a b" },
	} {
		o := options(Idle, "http://127.0.0.1:1")
		change(&o)
		if o.Watch != nil && !canWatch() {
			continue
		}
		_, err := Run(context.Background(), o)
		if err == nil || !strings.Contains(err.Error(), want) || !isSetting(err) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

func canWatch() bool {
	_, err := watch.Read(watch.Target{PIDs: []int{os.Getpid()}}, false)
	return err == nil
}

// TestWatched: the figures of a process are there for each phase and moment.
func TestWatched(t *testing.T) {
	if !canWatch() {
		t.Skip(watch.ErrUnsupported)
	}
	device, backend := startGateway(t, "file:"+t.TempDir())
	o := options(SlowOnes, device)
	o.NewSender, o.Series, o.Duration = through(backend, false), true, 1200*time.Millisecond
	o.Watch = []watch.Target{{Name: "gw", PIDs: []int{os.Getpid()}}}
	var told bytes.Buffer
	o.Live, o.Redraw = &told, true
	r := play(t, o)
	w := r.Watched["gw"]
	for _, moment := range []string{"before", "connected", "after", "peak"} {
		if w.PSS[moment] < 1<<20 || w.RSS[moment] < w.PSS[moment] {
			t.Errorf("%s: %+v", moment, w)
		}
	}
	if w.CPU["run"] <= 0 || r.Self.All <= 0 || r.Self.PSS < 1<<20 || len(r.Series) == 0 {
		t.Errorf("%+v %+v, %d moments", w, r.Self, len(r.Series))
	}
	if !strings.Contains(told.String(), "publishing: 50 connected") {
		t.Errorf("progress: %q", told.String())
	}
	var page, raw bytes.Buffer
	if err := errors.Join(r.WriteHTML(&page), r.WriteJSON(&raw)); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(page.String(), "<svg"); n != 5 {
		t.Errorf("%d plots", n)
	}
	if found := regexp.MustCompile(`(?i)<script|https?://|<link|@import`).FindString(page.String()); found != "" {
		t.Errorf("the page holds %q", found)
	}
	if !json.Valid(raw.Bytes()) {
		t.Error("the JSON isn't valid")
	}
}
