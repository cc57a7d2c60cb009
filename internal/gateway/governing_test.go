package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"downlink/internal/governor/api"
	"downlink/internal/limits"
	"downlink/internal/server"
	"downlink/internal/testkit"
)

// asked is an answer of a gateway's back end.
func asked(t *testing.T, g *running, method, path, body string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	server.Backend(g.routes(), g.admin, g.Ready).ServeHTTP(w, r)
	return w
}

// TestGovernorFloorIsALimit: it is changed here or there, and shown as what it is.
func TestGovernorFloorIsALimit(t *testing.T) {
	t.Parallel()
	g := run(t, testOptions(t, "file:"+t.TempDir()))
	shown := func() float64 {
		t.Helper()
		var v api.View
		if err := json.Unmarshal(asked(t, g, http.MethodGet, api.Path, "").Body.Bytes(), &v); err != nil || v.Settings.Floor != v.Levers[0].Floor {
			t.Fatalf("%v %+v", err, v)
		}
		return v.Settings.Floor
	}
	if asked(t, g, http.MethodPatch, api.Path, `{"floor":0.29}`).Code != http.StatusOK || limitOf(t, g, governorFloor).Effective != 29 || shown() != 0.29 {
		t.Errorf("by the governor's address: %+v, shown as %v", limitOf(t, g, governorFloor), shown())
	}
	if asked(t, g, http.MethodPatch, limits.Path, `{"governor_floor":7}`).Code != http.StatusOK || shown() != 0.07 {
		t.Errorf("by the limits' address: shown as %v", shown())
	}
	for _, wrong := range []string{"0.155", "0.005", "0", "-1", "1.01", "1e300", "-1e300"} {
		if a := asked(t, g, http.MethodPatch, api.Path, `{"step":0.3,"floor":`+wrong+`}`); a.Code != http.StatusBadRequest || !strings.Contains(a.Body.String(), governorFloor) ||
			shown() != 0.07 || g.flow.Load().governor.Settings().Step == 0.3 {
			t.Errorf("%s: %d %s, shown as %v", wrong, a.Code, a.Body, shown())
		}
	}
}

// TestGovernorIsForAdmins: who may only publish sees and changes nothing of it. The
// page is for everybody, and holds nothing.
func TestGovernorIsForAdmins(t *testing.T) {
	t.Parallel()
	const admin, erp = "admin-token-0123456789abcdef01234567", "erp-token-0123456789abcdef0123456789"
	file := filepath.Join(t.TempDir(), "publishers.yml")
	testkit.Put(t, file, fmt.Appendf(nil, "- {name: ops, sha256: %s, admin: true}\n- {name: erp, sha256: %s, broadcast: true}\n", sha(admin), sha(erp)))
	o := testOptions(t, "file:"+t.TempDir())
	o.Backend.PublishersFile = file
	g := run(t, o)
	for token, want := range map[string]int{"": http.StatusUnauthorized, erp: http.StatusForbidden, admin: http.StatusOK} {
		for address, method := range map[string]string{api.Path: http.MethodGet, api.EventsPath: http.MethodHead, api.Path + "?": http.MethodPatch} {
			if a := asked(t, g, method, address, `{}`, "Authorization", "Bearer "+token); a.Code != want {
				t.Errorf("%s %s with %.4q: %d %s, want %d", method, address, token, a.Code, a.Body, want)
			}
		}
	}
	if a := asked(t, g, http.MethodGet, "/console", ""); a.Code != http.StatusOK {
		t.Errorf("the console: %d", a.Code)
	}
}

// TestNoGovernorBeforeTheLog: until it was reached there is none, and that is said.
func TestNoGovernorBeforeTheLog(t *testing.T) {
	t.Parallel()
	g, err := New(testOptions(t, "redis://"+testkit.LastingAddr(t)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	r := &running{Gateway: g}
	for address, method := range map[string]string{api.Path: http.MethodGet, api.EventsPath: http.MethodGet, api.Path + "?": http.MethodPatch} {
		if a := asked(t, r, method, address, `{}`); a.Code != http.StatusServiceUnavailable || !strings.Contains(a.Body.String(), "log-unavailable") {
			t.Errorf("%s %s: %d %s", method, address, a.Code, a.Body)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestGovernorStreamsEndWithTheGateway: they don't hold its end up.
func TestGovernorStreamsEndWithTheGateway(t *testing.T) {
	t.Parallel()
	o := testOptions(t, "file:"+t.TempDir())
	o.ShutdownTimeout = time.Minute
	g := run(t, o)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.backend+api.EventsPath, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	if line, err := in.ReadString('\n'); err != nil || line != "event: state\n" {
		t.Fatalf("%q %v", line, err)
	}
	began := time.Now()
	if err := g.stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the gateway took %v to stop", took)
	}
	if _, err := io.ReadAll(in); err != nil {
		t.Errorf("the stream ended by %v, not in order", err)
	}
}
