package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"downlink/internal/testkit"
)

// soon is how long an order may take to be obeyed by every gateway. On a machine that
// has time it is 2 s; without the order, the lists are looked at after 21 s or more.
const soon = 15 * time.Second

// order gives an order about a device and returns the answer.
func (r *running) order(t *testing.T, method, device, what, body string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, r.backend+"/v1/devices/"+device+"/"+what, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %s of %s: %d %s %v", method, what, device, resp.StatusCode, answer, err)
	}
	return string(answer)
}

// streams opens one stream of a device on each gateway.
func streams(t *testing.T, gateways []*running, device string) (list []*testkit.Stream) {
	t.Helper()
	for _, g := range gateways {
		s := testkit.Open(t, g.device+"/events?device="+device, "")
		if s.Status != http.StatusOK {
			t.Fatalf("a stream of %s: %d", device, s.Status)
		}
		s.Until(`data: {"reason":"no-cursor"`)
		list = append(list, s)
	}
	return list
}

// status is what a device is answered that asks for a stream.
func (r *running) status(t *testing.T, device string) int {
	t.Helper()
	s := testkit.Open(t, r.device+"/events?device="+device, "")
	s.Close()
	return s.Status
}

// ended waits until the streams have ended, soon after begun, and returns what
// they were told.
func ended(t *testing.T, begun time.Time, list []*testkit.Stream) (last []string) {
	t.Helper()
	for _, s := range list {
		last = append(last, s.Rest())
	}
	if took := time.Since(begun); took > soon {
		t.Errorf("the streams ended after %v, want %v at most", took, soon)
	}
	return last
}

// TestOrdersReachEveryGateway: given to any of them, and without a word between
// them.
func TestOrdersReachEveryGateway(t *testing.T) {
	redis := testkit.StartRedis(t)
	var all []*running
	for range 3 {
		all = append(all, run(t, testOptions(t, redis.URL())))
	}
	others := streams(t, all, "other")

	open := streams(t, all, "demo")
	begun := time.Now()
	all[0].order(t, http.MethodPost, "demo", "disconnect", `{"retry_ms":20000,"reason":"moved"}`)
	for _, last := range ended(t, begun, open) {
		ms, _ := strconv.Atoi(strings.TrimSpace(regexp.MustCompile(`retry: (\d+)`).FindStringSubmatch(last + "retry: 0")[1]))
		if ms < 10_000 || ms > 30_000 {
			t.Errorf("a disconnected device is told %q, want a retry of about 20 s", last)
		}
	}

	open = streams(t, all, "demo") // it may come back
	begun = time.Now()
	if answer := all[1].order(t, http.MethodPost, "demo", "revoke", `{"reason":"stolen"}`); !strings.Contains(answer, `"changed":true`) {
		t.Errorf("revoke: %s", answer)
	}
	ended(t, begun, open)
	for i, g := range all {
		if status := g.status(t, "demo"); status != http.StatusNoContent {
			t.Errorf("on gateway %d a revoked device gets %d", i, status)
		}
		if _, list := testkit.Get(t, g.backend+"/v1/revoked"); !strings.Contains(list, `"device":"demo"`) || !strings.Contains(list, `"reason":"stolen"`) {
			t.Errorf("gateway %d lists %s", i, list)
		}
	}

	begun = time.Now()
	all[2].order(t, http.MethodDelete, "demo", "revoke", "")
	for i, g := range all {
		testkit.Eventually(t, "the device gets in again", func() bool { return g.status(t, "demo") == http.StatusOK })
		if took := time.Since(begun); took > soon {
			t.Errorf("gateway %d lets it in after %v", i, took)
		}
	}
	testkit.Post(t, all[0].backend+"/v1/events", "application/json", `{"device":"other","type":"t","text":"still there"}`)
	for _, s := range others {
		if got := s.Until("data: still there"); strings.Contains(got, "control") || strings.Contains(got, "resync") {
			t.Errorf("another device's stream had %q", got)
		}
	}
}

// TestRevokedBeforeTheFirstDevice: from its first moment on, a gateway that
// comes later lets nobody in who was revoked, also when the order has left the
// window long ago.
func TestRevokedBeforeTheFirstDevice(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"embedded": "file:" + t.TempDir(), "redis": testkit.StartRedis(t).URL()} {
		t.Run(name, func(t *testing.T) {
			o := testOptions(t, url)
			o.Log.Window, o.SweepInterval = time.Second, 50*time.Millisecond
			first := run(t, o)
			s := testkit.Open(t, first.device+"/events?device=demo", "")
			s.Until(`data: {"reason":"no-cursor"`)
			first.order(t, http.MethodPost, "demo", "revoke", "")
			s.Rest()
			testkit.Eventually(t, "the order was swept", func() bool {
				_, text := testkit.Get(t, first.backend+"/metrics")
				return strings.Contains(text, "\ndownlink_sweep_removed_total 1\n")
			})
			if err := first.stop(); err != nil {
				t.Fatal(err)
			}

			var later *Gateway
			var err error
			o.Started = func() {
				if !later.flow.Load().revoked.Has("demo") {
					t.Error("devices are served before the lists are known")
				}
			}
			later, err = New(o)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- later.Run(ctx) }()
			defer func() { cancel(); <-done }()
			for {
				status, body := testkit.Get(t, "http://"+later.DeviceAddr().String()+"/events?device=demo")
				if status == http.StatusNoContent {
					break
				}
				if status != http.StatusOK || !strings.Contains(body, "refused: starting") {
					t.Fatalf("a revoked device gets %d %q", status, body)
				}
			}
		})
	}
}

// TestRedisThatForgets: a revocation outlives it, as long as one gateway knows.
func TestRedisThatForgets(t *testing.T) {
	redis := testkit.StartRedis(t)
	g := run(t, testOptions(t, redis.URL()))
	g.order(t, http.MethodPost, "demo", "revoke", `{"reason":"stolen"}`)
	testkit.Eventually(t, "the device is revoked", func() bool { return g.status(t, "demo") == http.StatusNoContent })
	redis.Do("FLUSHALL")
	testkit.Eventually(t, "the revocation was given again", func() bool {
		return strings.Contains(fmt.Sprint(redis.Do("HGETALL", "pos-ev:32:revoked")), "stolen")
	})
	late := run(t, testOptions(t, redis.URL()))
	for _, gateway := range []*running{g, late} {
		if status := gateway.status(t, "demo"); status != http.StatusNoContent {
			t.Errorf("a revoked device gets %d", status)
		}
	}
}

// TestRevokedWhileItComesIn: whoever asks at the same moment escapes neither
// the door nor the end.
func TestRevokedWhileItComesIn(t *testing.T) {
	t.Parallel()
	g := run(t, testOptions(t, "file:"+t.TempDir()))
	for range 30 {
		ordered := make(chan struct{})
		go func() {
			defer close(ordered)
			g.order(t, http.MethodPost, "demo", "revoke", "")
		}()
		for escaped := false; !escaped; {
			s := testkit.Open(t, g.device+"/events?device=demo", "")
			if escaped = s.Status == http.StatusNoContent; !escaped {
				s.Rest() // waits in vain if it stays
			}
		}
		<-ordered
		g.order(t, http.MethodDelete, "demo", "revoke", "")
		testkit.Eventually(t, "the device gets in again", func() bool { return g.status(t, "demo") == http.StatusOK })
	}
	if n := g.out.roster.Len(); n > 0 {
		testkit.Eventually(t, "no stream is left", func() bool { return g.out.roster.Len() == 0 })
	}
}

// TestOrdersTellWhoGaveThem in the log of the gateway that was asked.
func TestOrdersTellWhoGaveThem(t *testing.T) {
	token := strings.Repeat("an operator's token ", 3)
	file := filepath.Join(t.TempDir(), "publishers.yml")
	text := fmt.Sprintf("- {name: ops, sha256: %x, admin: true}\n", sha256.Sum256([]byte(strings.TrimSpace(token))))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var lines bytes.Buffer // read when the gateway has ended
	o := testOptions(t, "file:"+t.TempDir())
	o.Backend.PublishersFile, o.Logger = file, slog.New(slog.NewTextHandler(&lines, nil))
	g := run(t, o)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.backend+"/v1/devices/demo/revoke", strings.NewReader(`{"reason":"stolen"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Close = true
	for _, want := range []int{http.StatusUnauthorized, http.StatusOK} {
		req.Body, _ = req.GetBody()
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("an order with %q: %s", req.Header.Get("Authorization"), resp.Status)
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	if text := lines.String(); !strings.Contains(text, "by=ops") || !strings.Contains(text, "reason=stolen") || strings.Contains(text, "operator's") {
		t.Errorf("the log says\n%s", text)
	}
}

// TestOnlyTheBackEndGivesOrders: an event can't be one, and what is added to the
// log by hand and isn't one is passed over.
func TestOnlyTheBackEndGivesOrders(t *testing.T) {
	redis := testkit.StartRedis(t)
	g := run(t, testOptions(t, redis.URL()))
	s := testkit.Open(t, g.device+"/events?device=demo", "")
	s.Until(`data: {"reason":"no-cursor"`)
	status, answer := testkit.Post(t, g.backend+"/v1/events", "application/json", `{"device":"*control","type":"revoke","payload":{"device":"demo"}}`)
	if status != http.StatusBadRequest {
		t.Errorf("an event for *control: %d %s", status, answer)
	}
	redis.Do("XADD", "pos-ev:32", "*", "dev", "*control", "type", "disconnect", "payload", `{"device":"de`)
	redis.Do("XADD", "pos-ev:33", "*", "dev", "*control", "type", "disconnect", "payload", `{"device":"demo"}`) // lives in 32
	redis.Do("XADD", "pos-ev:32", "*", "dev", "*control", "type", "revoke", "payload", `{"device":"demo"}`)     // not on the list
	redis.Do("XADD", "pos-ev:32", "*", "dev", "demo", "type", "t", "payload", "after all that")
	if got := s.Until("data: after all that"); strings.Contains(got, "revoke") {
		t.Errorf("the stream had %q", got)
	}
	for _, line := range []string{`downlink_log_faults_total{kind="bad-control"} 1`, `downlink_log_faults_total{kind="wrong-shard"} 1`, `downlink_revoked_devices 0`} {
		testkit.Eventually(t, "the metrics say "+line, func() bool { // shards have no order
			_, text := testkit.Get(t, g.backend+"/metrics")
			return strings.Contains(text, "\n"+line+"\n")
		})
	}
}
