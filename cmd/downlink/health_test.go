package main

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// answers serves these, one after the other, and the last one for ever.
func answers(t *testing.T, all ...string) (url string) {
	t.Helper()
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i := min(int(asked.Add(1)), len(all)) - 1
		switch {
		case r.URL.Path == "/healthz":
			http.Error(w, "ok", http.StatusOK)
		case strings.HasPrefix(all[i], "not ready"):
			http.Error(w, all[i], http.StatusServiceUnavailable)
		default:
			http.Error(w, all[i], http.StatusOK)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestHealth(t *testing.T) {
	const sick = "not ready: the log has not been reached yet"
	elsewhere := httptest.NewServer(http.NotFoundHandler())
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	t.Cleanup(elsewhere.Close)
	for name, test := range map[string]struct {
		args []string
		code int
		says string
	}{
		"ready":               {[]string{answers(t, "ready")}, exitDone, "ready\n"},
		"not ready":           {[]string{answers(t, sick)}, exitMissed, sick},
		"alive":               {[]string{"--live", answers(t, sick)}, exitDone, "ok\n"},
		"ready later":         {[]string{"--wait", "1m", answers(t, sick, sick, "ready")}, exitDone, "ready\n"},
		"not ready for long":  {[]string{"--wait", "600ms", answers(t, sick)}, exitMissed, "(for 600ms)"},
		"something else":      {[]string{elsewhere.URL}, exitFailed, "isn't a gateway's"},
		"another page":        {[]string{answers(t, "<html>welcome</html>")}, exitFailed, "isn't a gateway's"},
		"nobody":              {[]string{gone.URL}, exitFailed, "refused"},
		"no address":          {[]string{"localhost:9090"}, exitUsage, "http://127.0.0.1:9090"},
		"no such authorities": {[]string{"--ca-file", "nowhere.pem", gone.URL}, exitUsage, "nowhere.pem"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out, errs := execute(t, "", nil, append([]string{"health", "--timeout", "1m"}, test.args...)...)
			if code != test.code || !strings.Contains(out+errs, test.says) {
				t.Errorf("code %d, %q %q; want %d, %q", code, out, errs, test.code, test.says)
			}
		})
	}
}

// TestHealthOverTLS: a certificate counts, unless it is told not to.
func TestHealthOverTLS(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "ready", http.StatusOK) }))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	if code, _, errs := execute(t, "", nil, "health", "--timeout", "1m", server.URL); code != exitFailed || !strings.Contains(errs, "certificate") {
		t.Errorf("code %d, %q", code, errs)
	}
	if code, out, errs := execute(t, "", nil, "health", "--timeout", "1m", "--insecure", server.URL); code != exitDone || out != "ready\n" {
		t.Errorf("code %d, %q %q", code, out, errs)
	}
}
