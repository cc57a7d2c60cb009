package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"downlink/internal/explain"
	"downlink/internal/testkit"
)

// screen is how many lines an answer may have at most.
const screen = 40

// explained runs downlink explain and holds its one screen against words that
// must stand there.
func explained(t *testing.T, what string, code int, args []string, words ...string) string {
	t.Helper()
	r := program.Run(t, "", append([]string{"explain"}, args...)...)
	for _, word := range words {
		if !strings.Contains(r.Out, word) {
			t.Errorf("%s: no %q on the screen", what, word)
		}
	}
	if lines := strings.Count(r.Out, "\n"); lines > screen {
		t.Errorf("%s: %d lines", what, lines)
	}
	if r.Code != code {
		t.Errorf("%s: exit code %d, want %d", what, r.Code, code)
	}
	if t.Failed() {
		t.Fatalf("%s:\n%s%s", what, r.Out, r.Err)
	}
	return r.Out + r.Err
}

// TestExplain: an operator asks about devices in every kind of trouble.
func TestExplain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, filepath.Join(dir, "secret"), deviceSecret+"\n")
	redis := testkit.StartRedis(t)
	settings := args("--log", redis.URL(), "--auth", "jwt", "--jwt-hmac-secret-file", filepath.Join(dir, "secret"),
		"--jwt-leeway", "0s", "--streams-per-device", "1", "--max-connections", "2")
	a, b := program.StartGateway(t, settings...), program.StartGateway(t, settings...)
	open := func(g *testkit.Gateway, token string) *testkit.Stream {
		return (&guarded{Gateway: g, t: t}).open(&http.Transport{DisableKeepAlives: true}, "/events", bearer(token), "Downlink-Client: test/1")
	}
	good := func(device string) string {
		return testkit.HS256(deviceSecret, device, time.Hour, `,"groups":["north"]`)
	}
	both := []string{"--backend", a.Backend, "--backend", b.Backend}
	ask := func(device string) []string { return append([]string{device}, both...) }

	explained(t, "one that was never seen", 4, ask("pos-1"), "pos-1 is NOT connected.", "Not connected at 127.0.0.1:")
	open(b, testkit.HS256("another secret of more than thirty-two bytes", "pos-1", time.Hour, ""))
	open(b, testkit.HS256(deviceSecret, "pos-1", -time.Hour, ""))
	explained(t, "bad credentials", 4, ask("pos-1"), "NOT connected", "only claimed", "refused token_signature", "refused token_expired",
		"expired at", "another secret", "a new token")

	s := open(a, good("pos-1"))
	s.Until(`data: {"reason":"no-cursor"`)
	explained(t, "connected", 0, ask("pos-1"), "pos-1 is connected: 1 stream at", "live, it has everything", "groups      north", "jwt, expires", "in 59 min", "from 127.0.0.1:")
	open(a, good("pos-1"))
	explained(t, "too many streams", 0, ask("pos-1"), "refused streams_per_device", "two devices")
	open(a, good("pos-2")).Until(`data: {"reason":"no-cursor"`)
	open(a, good("pos-3"))
	explained(t, "a full gateway", 4, ask("pos-3"), "NOT connected", "refused max_connections", "file descriptors")

	ends(t, program.Run(t, "", "revoke", "pos-1", "--backend", a.Backend, "--reason", "stolen in May"), 0)
	s.Rest()
	testkit.Eventually(t, "the other gateway has heard of it", func() bool { return open(b, good("pos-1")).Status == http.StatusNoContent })
	explained(t, "revoked", 4, ask("pos-1"), "pos-1 is REVOKED since ", " (stolen in May): it is let in nowhere", "ended revoked", "refused revoked", "restore")

	var all struct {
		Connected bool
		Gateways  []struct {
			Backend, Error string
			Report         *explain.Report
		}
	}
	closed := "http://127.0.0.1:1" // nobody listens there
	text := explained(t, "for programs", 0, append(ask("pos-2"), "--json", "--backend", closed))
	if err := json.Unmarshal([]byte(text), &all); err != nil || !all.Connected || len(all.Gateways) != 3 || len(all.Gateways[0].Report.Sessions) != 1 ||
		all.Gateways[1].Report == nil || all.Gateways[2].Report != nil || !strings.Contains(all.Gateways[2].Error, "refused") {
		t.Errorf("%v %s", err, text)
	}
	explained(t, "one gateway is away", 1, append(ask("pos-9"), "--backend", closed), strings.TrimPrefix(closed, "http://")+": no answer: connection refused", "1 of 3")
	explained(t, "all are", 1, []string{"pos-9", "--backend", closed}, "Nobody knows")
	explained(t, "one twice", 0, append(ask("pos-2"), "--backend", a.Backend+"/"), "1 stream at")
	for _, wrong := range [][]string{{"*"}, {"a", "--backend", "nowhere"}, {"a", "--timeout", "0s"}, {"a", "--token-file", filepath.Join(dir, "none")}} {
		ends(t, program.Run(t, "", append([]string{"explain"}, wrong...)...), 2)
	}
}

// TestExplainNeedsAnAdmin: where the back end asks who calls, and TLS vouches for
// it.
func TestExplainNeedsAnAdmin(t *testing.T) {
	onlyOnce(t)
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	testkit.Certificates(t, dir)
	put(t, file("publishers.yml"), publishersFile())
	put(t, file("ops"), opsToken+"\n")
	put(t, file("erp"), erpToken+"\n")
	g := program.StartGateway(t, args("--log", "file:"+file("log"), "--backend-auth", "tokens", "--publishers-file", file("publishers.yml"))...)
	base := []string{"pos-1", "--backend", g.Backend}
	explained(t, "without a token", 3, base, "no gateway gave an answer")
	explained(t, "a publisher's", 3, append(base, "--token-file", file("erp")), "no gateway gave an answer")
	explained(t, "an operator's", 4, append(base, "--token-file", file("ops")), "NOT connected")
	explained(t, "to somebody else", 3, []string{"pos-1", "--backend", g.Device, "--token-file", file("ops")}, "no gateway gave an answer")
}

// TestListenPolls: a device that polls gets everything once, over restarts of
// its own and with either log.
func TestListenPolls(t *testing.T) {
	t.Parallel()
	for name, log := range map[string]func(t *testing.T) string{
		"embedded": func(t *testing.T) string { return "file:" + t.TempDir() },
		"redis":    func(t *testing.T) string { return testkit.StartRedis(t).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := startIn(t, t.TempDir(), "--log", log(t))
			file := func(name string) string { return filepath.Join(g.dir, name) }
			put(t, file("token"), testkit.HS256(deviceSecret, "pos-1", time.Hour, ""))
			printed := func(n int) []string {
				var lines []string
				testkit.Eventually(t, fmt.Sprint(n, " lines are printed"), func() bool {
					text, _ := os.ReadFile(file("printed"))
					lines = strings.Split(string(text), "\n")
					return len(lines) > n
				})
				return lines
			}
			listen := func() *testkit.Listener {
				return program.StartListener(t, file("printed"), "--poll", "--url", g.Device, "--token-file", file("token"), "--cursor-file", file("cursor"))
			}
			device := listen()
			printed(1)
			const each = 20
			for round := range 3 {
				for n := range each {
					publish(t, g.Gateway, "pos-1", fmt.Sprint(round*each+n))
					if n == each/2 {
						device.Terminate()
					}
				}
				device = listen()
			}
			lines := printed(1 + 3*each)
			for i, line := range lines[1 : len(lines)-1] {
				if !strings.HasSuffix(line, fmt.Sprint("\tt\t", i)) {
					t.Fatalf("line %d is %q", i+1, line)
				}
			}
		})
	}
}
