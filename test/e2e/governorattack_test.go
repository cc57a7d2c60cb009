package e2e

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"downlink/internal/governor/api"
	"downlink/internal/testkit"
)

// TestFollowersAttack: a thousand follow the governor and read nothing, and others
// send nonsense to it. Few get in; publishers and operators are served meanwhile, the
// places come back, and none of it delays the end.
func TestFollowersAttack(t *testing.T) {
	onlyOnce(t)
	t.Parallel()
	// Who waited for the followers would wait for a minute.
	g := program.StartGateway(t, args("--log", "file:"+t.TempDir(), "--shutdown-timeout", "1m", "--drain-deadline", "3m")...)
	address := strings.TrimPrefix(g.Backend, "http://")
	request := "GET " + api.EventsPath + " HTTP/1.1\r\nHost: " + address + "\r\n\r\n"
	follow := func() (c net.Conn, in bool) {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Error(err)
			return nil, false
		}
		_, _ = c.Write([]byte(request))
		_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
		line, _ := bufio.NewReaderSize(c, 16).ReadString('\n') // and nothing more
		return c, strings.Contains(line, " 200 ")
	}
	var wave sync.WaitGroup
	var in atomic.Int64
	held := make(chan net.Conn, 1000)
	for range 20 {
		wave.Go(func() {
			for range 50 {
				c, ok := follow()
				if ok {
					in.Add(1)
				}
				if c != nil {
					held <- c
				}
			}
		})
	}
	wave.Wait()
	if n := in.Load(); n == 0 || n > 64 {
		t.Errorf("%d follow", n)
	}
	used := func() float64 { return g.Metric(`downlink_limit_used{name="governor_followers"}`) }
	if n := used(); n > 64 {
		t.Errorf("%v are said to follow", n)
	}
	for body, want := range map[string]int{
		`{"step":` + strings.Repeat("[", 60_000): http.StatusBadRequest,
		strings.Repeat(" ", 1<<20) + `{}`:        http.StatusRequestEntityTooLarge,
		`{"step":NaN,"good":Infinity}`:           http.StatusBadRequest,
		`{"signals":{"x":{"threshold":1e400}}}`:  http.StatusBadRequest,
		`{"signals":{"\u0000":{"threshold":1}}}`: http.StatusBadRequest,
		`{"on":true}`:                            http.StatusOK,
	} {
		if status, text := patchGovernor(t, g, body); status != want {
			t.Errorf("%.40s: %d %.300s, want %d", body, status, text, want)
		}
	}
	if status, text := testkit.Post(t, g.Backend+"/v1/events", "application/json", `{"device":"a","type":"t","payload":1}`); status != http.StatusOK {
		t.Errorf("publishing meanwhile: %d %s", status, text)
	}
	close(held)
	left := 0
	for c := range held {
		if left++; left <= 900 {
			c.Close()
			continue
		}
		t.Cleanup(func() { c.Close() })
	}
	testkit.Eventually(t, "places come back", func() bool { return used() <= 60 })
	watching := watch(t, g)
	testkit.Eventually(t, "an operator follows", func() bool { return strings.Contains(watching(), "now: admission 100 %") })
	began := time.Now()
	if code := g.Terminate(); code != 0 {
		t.Errorf("it ended with %d", code)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("going out of service took %v", took)
	}
	testkit.Eventually(t, "who watches is told", func() bool { return strings.Contains(watching(), "not connected: ") })
}

// patchGovernor repeats what got no answer: a gateway that has heard too much closes,
// and who still speaks then may find the connection broken before the answer.
func patchGovernor(t *testing.T, g *testkit.Gateway, body string) (status int, text string) {
	t.Helper()
	for range 10 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, g.Backend+api.Path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Close = true
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			text = err.Error()
			continue
		}
		defer resp.Body.Close()
		answer, _ := io.ReadAll(io.LimitReader(resp.Body, 4096)) // what there is of it is shown
		return resp.StatusCode, string(answer)
	}
	return 0, text
}
