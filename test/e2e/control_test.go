package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"downlink/internal/testkit"
)

// obeyed is how long an order may take to be obeyed by every gateway, once it
// can reach the log; the rest is for a machine that is busy with other tests. It is
// less than the 30 s after which the lists are looked at in any case.
const obeyed = 2*time.Second + 10*time.Second

// order gives an order about a device.
func order(t *testing.T, g *testkit.Gateway, method, device, what string) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, g.Backend+"/v1/devices/"+device+"/"+what, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func mustOrder(t *testing.T, g *testkit.Gateway, method, device, what string) {
	t.Helper()
	if status, answer := order(t, g, method, device, what); status != http.StatusOK {
		t.Fatalf("%s %s of %s: %d %s", method, what, device, status, answer)
	}
}

func events(t *testing.T, g *testkit.Gateway, device string) int {
	t.Helper()
	s := testkit.Open(t, g.Device+"/events?device="+device, "")
	s.Close()
	return s.Status
}

// TestRevokedWhileAGatewayIsFrozen: it obeys when it thaws, and one that was
// revoked and restored meanwhile never gets the 204 that would stop it for good.
func TestRevokedWhileAGatewayIsFrozen(t *testing.T) {
	t.Parallel()
	redis := testkit.StartRedis(t)
	a, b := program.StartGateway(t, args("--log", redis.URL())...), program.StartGateway(t, args("--log", redis.URL())...)
	s := testkit.Open(t, a.Device+"/events?device=demo", "")
	s.Until(resync)
	sibling := siblingOf("demo")
	spared := testkit.Open(t, a.Device+"/events?device="+sibling, "")
	spared.Until(resync)

	a.Stop()
	mustOrder(t, b, http.MethodPost, "demo", "revoke")
	mustOrder(t, b, http.MethodPost, sibling, "revoke")
	mustOrder(t, b, http.MethodDelete, sibling, "revoke")
	thawed := time.Now()
	a.Cont()
	s.Rest()
	if took := time.Since(thawed); took > obeyed {
		t.Errorf("after the thaw the device was cut after %v", took)
	}
	if status := events(t, a, "demo"); status != http.StatusNoContent {
		t.Errorf("a revoked device gets %d", status)
	}
	publish(t, b, sibling, "still there")
	spared.Until("data: still there")
	if status := events(t, a, sibling); status != http.StatusOK {
		t.Errorf("a device that was restored gets %d", status)
	}
	if n := a.Metric(`downlink_session_ends_total{reason="revoked"}`); n != 1 {
		t.Errorf("%v sessions ended as revoked", n)
	}
}

// TestRevocationLasts: over the crash of every gateway, and of Redis with its
// append-only file; and while Redis is away.
func TestRevocationLasts(t *testing.T) {
	onlyOnce(t)
	t.Parallel()
	redis := testkit.StartRedis(t, testkit.RedisConfig("appendonly yes", "appendfsync always"))
	a, b := program.StartGateway(t, args("--log", redis.URL(), "--publish-timeout", "1s")...), program.StartGateway(t, args("--log", redis.URL(), "--publish-timeout", "1s")...)
	s := testkit.Open(t, b.Device+"/events?device=demo", "")
	s.Until(resync)
	mustOrder(t, a, http.MethodPost, "demo", "revoke")
	a.Kill9()
	s.Rest()

	redis.Kill9()
	if status := events(t, b, "demo"); status != http.StatusNoContent {
		t.Errorf("with Redis away a revoked device gets %d", status)
	}
	begun := time.Now()
	if status, answer := order(t, b, http.MethodPost, "other", "revoke"); status != http.StatusServiceUnavailable || !strings.Contains(answer, "hint") {
		t.Errorf("an order with Redis away: %d %s", status, answer)
	} else if took := time.Since(begun); took > 1*time.Second+obeyed {
		t.Errorf("its answer took %v", took)
	}
	redis.Start()
	b.Kill9()
	c := program.StartGateway(t, args("--log", redis.URL(), "--publish-timeout", "1s")...)
	if status := events(t, c, "demo"); status != http.StatusNoContent {
		t.Errorf("after all restarts a revoked device gets %d", status)
	}
	if status := events(t, c, "other"); status != http.StatusOK {
		t.Errorf("a device whose order was not confirmed gets %d", status)
	}
	mustOrder(t, c, http.MethodDelete, "demo", "revoke")
	testkit.Eventually(t, "the device gets in again", func() bool { return events(t, c, "demo") == http.StatusOK })
}

// TestRevocationInTheEmbeddedLogLasts over a crash right after the answer.
func TestRevocationInTheEmbeddedLogLasts(t *testing.T) {
	onlyOnce(t)
	t.Parallel()
	log := "file:" + t.TempDir()
	g := program.StartGateway(t, args("--log", log)...)
	if r := program.Run(t, "", "revoke", "demo", "--backend", g.Backend, "--reason", "stolen"); r.Code != 0 || !strings.Contains(r.Out, `"revoked":true`) {
		t.Errorf("downlink revoke: %+v", r)
	}
	mustOrder(t, g, http.MethodPost, "other", "revoke")
	mustOrder(t, g, http.MethodDelete, "other", "revoke")
	g.Kill9()
	g = program.StartGateway(t, args("--log", log)...)
	if revoked, restored := events(t, g, "demo"), events(t, g, "other"); revoked != 204 || restored != 200 {
		t.Errorf("after a crash the revoked device gets %d, the restored one %d", revoked, restored)
	}
	status, list := testkit.Get(t, g.Backend+"/v1/revoked")
	var answer struct{ Devices []struct{ Device string } }
	if err := json.Unmarshal([]byte(list), &answer); status != 200 || err != nil || len(answer.Devices) != 1 || answer.Devices[0].Device != "demo" {
		t.Errorf("the list: %d %s %v", status, list, err)
	}
}

// TestCredentialsThatExpireTogether: their streams end one after another, and
// their devices are told to come back at different times. Over both versions of
// HTTP.
func TestCredentialsThatExpireTogether(t *testing.T) {
	t.Parallel()
	g := startGuarded(t)
	const each = 40
	// On a machine that stands still for seconds, too few streams are there in time,
	// or what ended one after another is seen at once: then it is tried again.
	for attempt := 1; ; attempt++ {
		ends, retries, all := expireTogether(t, g, each, time.Duration(attempt)*8*time.Second)
		if !all && attempt < 4 {
			continue
		}
		if len(ends) != 2*each || ends[0] < 0 || ends[len(ends)-1] > 5*time.Second+obeyed {
			t.Fatalf("%d streams ended: %v after their expiry", len(ends), ends)
		}
		if n := len(slices.Compact(retries)); n < each {
			t.Errorf("%d streams were given %d different times to come back", 2*each, n)
		}
		middle := ends[len(ends)*3/4] - ends[len(ends)/4]
		if middle >= time.Second {
			return
		}
		if attempt == 4 {
			t.Fatalf("half of the streams ended within %v", middle)
		}
	}
}

// expireTogether opens so many streams over each version of HTTP, whose credentials
// expire after a while, and says, in order, how long after that they ended and when
// their devices are to come back; all is false if it took longer to open them.
func expireTogether(t *testing.T, g *guarded, each int, after time.Duration) (ends []time.Duration, retries []int, all bool) {
	t.Helper()
	expires := time.Now().Add(after).Truncate(time.Second)
	var (
		mu sync.Mutex
		wg sync.WaitGroup
	)
	lastRetry := regexp.MustCompile(`retry: (\d+)\s*$`)
	for _, http2 := range []bool{false, true} {
		transport := g.transport(http2)
		for i := range each {
			token := testkit.HS256(deviceSecret, fmt.Sprintf("till-%v-%d", http2, i), time.Until(expires)+time.Millisecond, "")
			s := g.open(transport, "/events", bearer(token))
			if s.Status == http.StatusUnauthorized && time.Now().After(expires) {
				wg.Wait()
				return nil, nil, false
			}
			s.Until(": downlink")
			wg.Go(func() {
				rest := s.Rest()
				mu.Lock()
				defer mu.Unlock()
				ends = append(ends, time.Since(expires))
				if m := lastRetry.FindStringSubmatch(rest); m == nil {
					t.Errorf("HTTP/2 %v: an expired stream ended with %q", http2, rest)
				} else if ms, err := strconv.Atoi(m[1]); err == nil {
					retries = append(retries, ms)
				}
			})
		}
	}
	all = time.Now().Before(expires)
	wg.Wait()
	slices.Sort(ends)
	slices.Sort(retries)
	return ends, retries, all
}
