package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"downlink/docs/operate"
	"downlink/internal/explain"
	"downlink/internal/testkit"
)

// A pollAnswer is the body of GET /poll.
type pollAnswer struct {
	Events []struct{ ID, Type, Data string }
	Cursor string
	Retry  int `json:"retry_ms"`
}

// poll asks once, over HTTP/1.1 or HTTP/2 without TLS.
func (r *running) poll(t *testing.T, h2c bool, query, cursor string) (status int, a pollAnswer) {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!h2c)
	protocols.SetUnencryptedHTTP2(h2c)
	transport := &http.Transport{Protocols: protocols}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.device+"/poll?"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	if cursor != "" {
		req.Header.Set("Last-Event-ID", cursor)
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		t.Error(err)
		return 0, a
	}
	defer resp.Body.Close()
	if wanted := map[bool]int{false: 1, true: 2}[h2c]; resp.ProtoMajor != wanted {
		t.Errorf("it was answered by %s", resp.Proto)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode == http.StatusOK && json.Unmarshal(body, &a) != nil {
		t.Errorf("%s %q %v", resp.Status, body, err)
	}
	return resp.StatusCode, a
}

// TestPollOverEveryProtocol: beside a port that takes streams over.
func TestPollOverEveryProtocol(t *testing.T) {
	g := run(t, testOptions(t, "file:"+t.TempDir()))
	for _, h2c := range []bool{false, true} {
		_, first := g.poll(t, h2c, "device=a", "")
		if len(first.Events) != 1 || first.Events[0].Type != "resync" || first.Cursor == "" {
			t.Fatalf("%+v", first)
		}
		answered := make(chan pollAnswer, 1)
		go func() {
			_, a := g.poll(t, h2c, "device=a&wait=30", first.Cursor)
			answered <- a
		}()
		testkit.Eventually(t, "it waits", func() bool { return g.out.roster.Len() == 1 })
		if err := g.Check(); err != nil {
			t.Error(err)
		}
		payload := fmt.Sprintf(`{"h2c":%v}`, h2c)
		testkit.Post(t, g.backend+"/v1/events", "application/json", `{"device":"a","type":"t","payload":`+payload+`}`)
		if a := <-answered; len(a.Events) != 1 || a.Events[0].Data != payload || a.Cursor != a.Events[0].ID {
			t.Errorf("%+v", a)
		}
		if _, a := g.poll(t, h2c, "device=a", first.Cursor); len(a.Events) != 1 || a.Events[0].Data != payload {
			t.Errorf("an answer that was lost doesn't come again: %+v", a)
		}
	}
}

// TestStopAnswersPolls: who waits is answered at once, and told when to come
// back.
func TestStopAnswersPolls(t *testing.T) {
	g := run(t, testOptions(t, "file:"+t.TempDir()))
	_, first := g.poll(t, false, "device=a", "")
	answered := make(chan pollAnswer, 1)
	go func() {
		_, a := g.poll(t, false, "device=a&wait=60", first.Cursor)
		answered <- a
	}()
	testkit.Eventually(t, "it waits", func() bool { return g.out.roster.Len() == 1 })
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	if a := <-answered; a.Retry == 0 || a.Cursor != first.Cursor {
		t.Errorf("%+v", a)
	}
}

// report asks a gateway about a device.
func (r *running) report(t *testing.T, device string) explain.Report {
	t.Helper()
	var report explain.Report
	status, body := testkit.Get(t, r.backend+strings.Replace(explain.Path, "{device}", device, 1))
	if err := json.Unmarshal([]byte(body), &report); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s %v", status, body, err)
	}
	return report
}

// TestExplain: what a gateway says about a device, connected, refused, gone.
func TestExplain(t *testing.T) {
	const secret = "0123456789abcdef0123456789abcdef"
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := testOptions(t, "file:"+t.TempDir())
	o.Identity = IdentityOptions{JWT: &TokenOptions{Keys: KeyOptions{HMACSecretFile: file}, DeviceClaim: "sub", GroupsClaim: "groups"}}
	g := run(t, o)
	const device = "매장/12"
	connect := func(token string) *testkit.Stream {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.device+"/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		return testkit.Send(t, &http.Transport{DisableKeepAlives: true}, req)
	}
	began := time.Now().Truncate(time.Second)
	s := connect(testkit.HS256(secret, device, time.Hour, `,"groups":["south","north"]`))
	s.Until(`data: {"reason":"no-cursor"`)
	r := g.report(t, "%EB%A7%A4%EC%9E%A5%2F12")
	if len(r.Sessions) != 1 || len(r.Trail)+len(r.Claimed)+len(r.Nameless) != 0 || !r.Gateway.Ready || r.Revoked || r.Device != device {
		t.Fatalf("%+v", r)
	}
	is := r.Sessions[0]
	if is.Kind != "stream" || is.Since.Before(began) || !strings.HasPrefix(is.Address, "127.0.0.1:") || is.Protocol != "HTTP/1.1" ||
		is.Credential != "jwt" || is.Expires.Sub(began) < 59*time.Minute || !slices.Equal(is.Groups, []string{"north", "south"}) ||
		is.Cursor != r.Position || is.State != "live" || is.Behind.Events != 0 {
		t.Errorf("%+v", is)
	}

	connect(testkit.HS256("another secret of thirty-two byte", device, time.Hour, ""))
	for range 3 {
		connect(testkit.HS256(secret, device, -time.Hour, ""))
	}
	connect("no token at all")
	s.Close()
	testkit.Eventually(t, "the end is remembered, and the stream gone", func() bool {
		r = g.report(t, "%EB%A7%A4%EC%9E%A5%2F12")
		return len(r.Trail) == 1 && len(r.Sessions) == 0 // it ends between two looks of a report
	})
	if e := r.Trail[0]; e.What != "ended" || e.Word != "client_gone" || e.Since.Before(began) || !strings.HasPrefix(e.Address, "127.0.0.1:") {
		t.Errorf("%+v", r)
	}
	if len(r.Claimed) != 2 || r.Claimed[0].Word != "token_expired" || r.Claimed[0].Times != 3 || !strings.Contains(r.Claimed[0].Detail, "expired at") ||
		r.Claimed[1].Word != "token_signature" {
		t.Errorf("claimed: %+v", r.Claimed)
	}
	if len(r.Nameless) != 1 || r.Nameless[0].Word != "token_malformed" {
		t.Errorf("nameless: %+v", r.Nameless)
	}
	if status, body := testkit.Get(t, g.backend+"/v1/devices/*"); status != http.StatusBadRequest || !strings.Contains(body, "device") {
		t.Errorf("%d %s", status, body)
	}
}

// TestExplainTellsOfPages whose origin isn't listed: their browser shows nobody why.
func TestExplainTellsOfPages(t *testing.T) {
	g := run(t, testOptions(t, "file:"+t.TempDir()))
	for _, path := range []string{"/events", "/poll"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.device+path+"?device=a", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Origin", "https://shop.example")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
	r := g.report(t, "a")
	if len(r.Nameless) != 1 || r.Nameless[0].Word != originRefused || r.Nameless[0].Times != 2 || !strings.Contains(r.Nameless[0].Detail, "https://shop.example") {
		t.Errorf("%+v", r.Nameless)
	}
	if len(operate.Advice(originRefused)) == 0 {
		t.Error("nothing is said of it in troubleshooting.md")
	}
}

// TestExplainSaysHowFarBehind: of a device that takes nothing.
func TestExplainSaysHowFarBehind(t *testing.T) {
	t.Parallel()
	o := testOptions(t, "file:"+t.TempDir())
	o.PublishTimeout, o.WriteTimeout = hung, time.Hour // it is much for a busy disk
	g := run(t, o)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.device+"/events?device=slow", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := bufio.NewReaderSize(resp.Body, 16).ReadByte(); err != nil {
		t.Fatal(err)
	}
	const events = 40
	payload := `"` + strings.Repeat("x", 512<<10) + `"`
	for range events {
		if status, body := testkit.Post(t, g.backend+"/v1/events", "application/json", `{"device":"slow","type":"t","payload":`+payload+`}`); status != http.StatusOK {
			t.Fatal(status, body)
		}
	}
	var r explain.Report
	testkit.Eventually(t, "it stalls", func() bool {
		r = g.report(t, "slow")
		// The hot window of its shard holds two of them: what else there is, the log knows.
		return len(r.Sessions) == 1 && r.Sessions[0].State == "stalled" && r.Sessions[0].Behind.More
	})
	s := r.Sessions[0]
	if s.Behind.Events < 1 || s.Behind.Events > events || s.Pending == 0 || s.PendingBytes < 512<<10 {
		t.Errorf("%+v", s)
	}
}
