package gateway

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"downlink/internal/door"
	"downlink/internal/limits"
	"downlink/internal/lobby"
	"downlink/internal/testkit"
)

// Whatever the lobby refuses for has a word that is documented and counted.
func TestTheDoorKnowsEveryReason(t *testing.T) {
	for _, why := range lobby.Reasons() {
		if !slices.Contains(door.Refusals(), door.Refusal(why)) {
			t.Errorf("%q is no refusal", why)
		}
	}
}

// knock asks for a stream over a connection of its own; the answer's head is
// there when the function is called.
func knock(t *testing.T, g *running, query, header string) func() *http.Response {
	t.Helper()
	c, err := net.Dial("tcp", g.DeviceAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(hung))
	if _, err := fmt.Fprintf(c, "GET /events?device=%s HTTP/1.1\r\nHost: x\r\n%s\r\n", query, header); err != nil {
		t.Fatal(err)
	}
	return func() *http.Response {
		t.Helper()
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
}

// TestNoInTheDevicesLanguage: a native EventSource and a client that says it can,
// at each limit that a running gateway can be given.
func TestNoInTheDevicesLanguage(t *testing.T) {
	g := run(t, testOptions(t, "file:"+t.TempDir()))
	knock(t, g, "a", "")()
	knock(t, g, "b", "")()
	in := 2
	for _, c := range []struct {
		limit string
		value int64
	}{
		{"max_connections", 1}, {"connections_per_address", 2}, {"accept_rate", 1}, {"accept_rate_per_address", 1},
	} {
		set(t, g, c.limit, &c.value)
		native, ours, more := refusals(t, g, c.limit)
		in += more
		if more > 0 && !strings.HasPrefix(c.limit, "accept_rate") {
			t.Errorf("%s: %d were let in", c.limit, more)
		}
		body, _ := io.ReadAll(native.Body)
		if native.StatusCode != 200 || native.Header.Get("Downlink-Refused") != c.limit || !strings.HasPrefix(string(body), "retry: ") || !strings.Contains(string(body), "refused: "+c.limit) {
			t.Errorf("%s: %s %v %q", c.limit, native.Status, native.Header, body)
		}
		if ours.StatusCode != 503 || ours.Header.Get("Downlink-Refused") != c.limit || ours.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %s %v", c.limit, ours.Status, ours.Header)
		}
		for _, port := range []string{g.device, g.backend} {
			if status, _ := testkit.Get(t, port+"/readyz"); status != 200 {
				t.Errorf("%s: %s/readyz says %d", c.limit, port, status)
			}
		}
		if status, answer := testkit.Post(t, g.backend+"/v1/events", "application/json", `{"device":"a","type":"t","payload":1}`); status != 200 {
			t.Errorf("%s: publishing: %d %s", c.limit, status, answer)
		}
		set(t, g, c.limit, nil)
	}
	if _, n := g.Gateway.device.Count(); n != in {
		t.Errorf("%d of %d streams are left", n, in)
	}
	if err := g.Check(); err != nil {
		t.Error(err)
	}
}

// refusals are how a native EventSource and a client that says it can are refused,
// and how many were let in before that: a rate does so whenever a second has passed.
func refusals(t *testing.T, g *running, limit string) (native, ours *http.Response, in int) {
	t.Helper()
	for try := range attempts {
		// All before the first answer, which is held back.
		device := fmt.Sprintf("%s-%d", limit, try)
		var answers []func() *http.Response
		if strings.HasPrefix(limit, "accept_rate") {
			answers = append(answers, knock(t, g, device+"-a", "")) // takes what there is
		}
		answers = append(answers, knock(t, g, device+"-b", ""), knock(t, g, device+"-c", "Downlink-Client: test/1\r\n"))
		got := make([]*http.Response, len(answers))
		for i, answer := range answers {
			if got[i] = answer(); got[i].Header.Get("Downlink-Refused") == "" {
				in++
			}
		}
		native, ours = got[len(got)-2], got[len(got)-1]
		if native.Header.Get("Downlink-Refused") != "" && ours.Header.Get("Downlink-Refused") != "" {
			return native, ours, in
		}
	}
	t.Fatalf("%s refuses nobody", limit)
	return nil, nil, 0
}

func set(t *testing.T, g *running, name string, value *int64) {
	t.Helper()
	if _, _, err := g.opts.Limits.Patch([]limits.Wish{{Name: name, Value: value}}); err != nil {
		t.Fatal(err)
	}
}

// TestVanishedDevicesHoldNothing: devices go at every byte of their request, and
// of the answer, while others come; at the end nobody is counted.
func TestVanishedDevicesHoldNothing(t *testing.T) {
	const devices = 400
	g := run(t, testOptions(t, "file:"+t.TempDir()))
	var gone sync.WaitGroup
	for worker := range 8 {
		gone.Go(func() {
			for i := range devices / 8 {
				vanish(t, g, fmt.Sprintf("v-%d-%d", worker, i%3))
			}
		})
	}
	gone.Wait()
	testkit.Eventually(t, "nobody is counted", func() bool {
		waiting, streams := g.Gateway.device.Count()
		return waiting == 0 && streams == 0
	})
	if err := g.Check(); err != nil {
		t.Error(err)
	}
}

func vanish(t *testing.T, g *running, device string) {
	c, err := net.Dial("tcp", g.DeviceAddr().String())
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	path := []string{"events", "poll"}[rand.IntN(2)]
	request := "GET /" + path + "?device=" + device + " HTTP/1.1\r\nHost: x\r\n\r\n"
	said := len(request)
	if rand.IntN(2) == 0 {
		said = rand.IntN(len(request))
	}
	_, _ = io.WriteString(c, request[:said]) // it may have been cut
	if said == len(request) && rand.IntN(2) == 0 {
		_ = c.SetReadDeadline(time.Now().Add(time.Duration(rand.IntN(20)) * time.Millisecond))
		_, _ = io.ReadFull(c, make([]byte, 1+rand.IntN(400)))
	}
	if rand.IntN(2) == 0 {
		_ = c.(*net.TCPConn).SetLinger(0)
	}
}
