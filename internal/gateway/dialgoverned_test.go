package gateway

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"downlink/internal/dial"
	"downlink/internal/governor"
	"downlink/internal/limits"
	"downlink/internal/testkit"
)

// A dialler's governor lowers how fast it dials, or how many POSTs there are at a
// time, and what publishers may; every device is served all the same, and no link
// ends by it.
func TestADiallerIsGoverned(t *testing.T) {
	t.Parallel()
	for transport, c := range map[Transport]struct{ scheme, eased, other string }{
		dial.WebSocket: {"ws", dialRate, postsInFlight}, dial.Post: {"http", postsInFlight, dialRate},
	} {
		t.Run(string(transport), func(t *testing.T) {
			t.Parallel()
			f := startFleet(t)
			devices := []string{"a", "b", "c"}
			d := startDialler(t, testOptions(t, "file:"+t.TempDir()), testDial(Static, transport, f.inventory(t, c.scheme, devices...)))
			testkit.Eventually(t, "its signals are read", func() bool {
				st := d.flow.Load().governor.State()
				return st.On && len(st.Levers) == 2 && len(st.Signals) >= 5 && !slices.ContainsFunc(st.Signals, func(s governor.SignalState) bool { return s.Age == nil || s.Error != "" })
			})
			testkit.Eventually(t, "every device is reached", func() bool {
				f.mu.Lock()
				defer f.mu.Unlock()
				return len(f.last) == len(devices)
			})
			four := int64(4)
			for _, name := range []string{c.eased, publishRate} {
				if _, _, err := d.opts.Limits.Patch([]limits.Wish{{Name: name, Value: &four}}); err != nil {
					t.Fatal(err)
				}
			}
			for _, l := range d.leversOf(d.flow.Load()) {
				l.Set(governor.Position{Ratio: 0.5, Signal: "process_memory", Why: "process_memory is 90 %"})
			}
			for _, s := range d.opts.Limits.States() {
				switch lowered := s.Name == c.eased || s.Name == publishRate; {
				case lowered && (s.Effective != 2 || !strings.Contains(s.Why, "process_memory is 90 %")):
					t.Errorf("%+v", s)
				case (s.Name == c.other || s.Name == maxConnections) && strings.Contains(s.Why, "governor"):
					t.Errorf("%+v", s)
				}
			}
			if refused := publishMany(t, d.backend, "a"); refused == nil || refused.Header.Get("Downlink-Signal") != "process_memory" {
				t.Errorf("events at once pass a rate of 2 a second, or nobody says why not: %+v", refused)
			}
			testkit.Eventually(t, "events arrive at that pace", func() bool { return len(f.has("a")) >= 2 })
			for _, device := range devices {
				if calls := f.called(device); transport == dial.WebSocket && calls != 1 {
					t.Errorf("%s was dialled %d times", device, calls)
				}
			}
		})
	}
}

// publishMany publishes many events at once, and returns what refused one: one after
// the other a slow disk could keep to any rate.
func publishMany(t *testing.T, backend, device string) (refused *http.Response) {
	t.Helper()
	answers := make(chan *http.Response, 50)
	var all sync.WaitGroup
	for range cap(answers) {
		all.Go(func() {
			resp, err := http.Post(backend+"/v1/events", "application/json", strings.NewReader(`{"device":"`+device+`","type":"t","payload":1}`))
			if err != nil {
				t.Error(err)
				return
			}
			text, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			resp.Body = io.NopCloser(bytes.NewReader(text))
			answers <- resp
		})
	}
	all.Wait()
	close(answers)
	for resp := range answers {
		if resp.StatusCode == http.StatusTooManyRequests {
			refused = resp
		}
	}
	return refused
}

func (f *fleet) called(device string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[device]
}
