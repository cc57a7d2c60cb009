package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"downlink/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open makes an egress that may dial this machine.
func open(t *testing.T, edit func(*Options)) *Egress {
	t.Helper()
	o := Options{
		Schemes: []string{"http", "https", "ws"}, Allow: []string{"127.0.0.0/8"}, ResolveTimeout: time.Minute, ConnectTimeout: time.Minute, TLSTimeout: time.Minute,
		Metrics: NewMetrics(nil), Logger: slog.New(slog.DiscardHandler),
	}
	if edit != nil {
		edit(&o)
	}
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

func get(t *testing.T, e *Egress, credential, url string) (string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := e.Client(credential).Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return fmt.Sprint(resp.StatusCode, " ", string(body)), err
}

// stageOf is at which step a request failed.
func stageOf(err error) (Stage, bool) {
	bad, ok := errors.AsType[*Error](err)
	if !ok {
		return "", false
	}
	return bad.Stage, bad.Timeout
}

func web(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// TestRebinding: what a name resolved to before counts for nothing. The address
// is checked when it is connected to, and nothing is sent to one that may not be.
func TestRebinding(t *testing.T) {
	var hits atomic.Int32
	s := web(t, func(http.ResponseWriter, *http.Request) { hits.Add(1) })
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	answers := make(chan []netip.Addr, 3)
	e := open(t, func(o *Options) {
		o.Deny = []string{"127.0.0.1"}
		o.Resolve = func(context.Context, string) ([]netip.Addr, error) { return <-answers, nil }
	})
	if err := e.Permit("http://device.example:" + port + "/"); err != nil {
		t.Fatal(err) // a name is no address yet
	}
	for _, list := range [][]netip.Addr{
		{netip.MustParseAddr("127.0.0.1")},
		{netip.MustParseAddr("::ffff:127.0.0.1")},
		{netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("127.0.0.1")},
	} {
		answers <- list
		if _, err := get(t, e, "", "http://device.example:"+port+"/"); err == nil {
			t.Fatalf("%v was dialled", list)
		} else if s, _ := stageOf(err); s != Policy {
			t.Errorf("%v: %v", list, err)
		}
	}
	if hits.Load() != 0 || testutil.ToFloat64(e.opts.Metrics.failures.WithLabelValues(string(Policy))) != 3 {
		t.Errorf("%d requests arrived", hits.Load())
	}
	// The allowed one of several is taken.
	free := open(t, func(o *Options) {
		o.Resolve = func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("127.0.0.1")}, nil
		}
	})
	if _, err := get(t, free, "", "http://device.example:"+port+"/"); err != nil || hits.Load() != 1 {
		t.Error(err, hits.Load())
	}
}

// TestNoWayAround: neither a redirect, nor the URL's form, nor a proxy of the
// environment leads where the rules forbid.
func TestNoWayAround(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	var hits atomic.Int32
	forbidden := web(t, func(http.ResponseWriter, *http.Request) { hits.Add(1) })
	s := web(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, forbidden.URL, http.StatusTemporaryRedirect)
	})
	e := open(t, nil)
	if got, err := get(t, e, "", s.URL); err != nil || !strings.HasPrefix(got, "307 ") || hits.Load() != 0 {
		t.Errorf("%q %v: a redirect was followed", got, err)
	}
	for _, url := range []string{"ftp://127.0.0.1/", "http://10.0.0.1/", "http://[::1]/", "http://user:SECRET@127.0.0.1/", "wss://127.0.0.1/", "http:///", "http://127.0.0.1:x/"} {
		err := e.Permit(url)
		if s, _ := stageOf(err); s != Policy || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: %v", url, err)
		}
	}
	if _, err := New(Options{Schemes: []string{"gopher"}}); err == nil {
		t.Error("any scheme can be dialled")
	}
}

// TestStages: each step that can fail is told from the others, and a time limit
// from a refusal.
func TestStages(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	plain := web(t, func(http.ResponseWriter, *http.Request) {})
	rubbish, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var speaks sync.WaitGroup
	speaks.Go(func() {
		if c, err := rubbish.Accept(); err == nil {
			_, _ = io.WriteString(c, "no TLS is spoken here")
			c.Close()
		}
	})
	t.Cleanup(func() { rubbish.Close(); speaks.Wait() })
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	t.Cleanup(secure.Close)
	e := open(t, func(o *Options) {
		o.ResolveTimeout = 50 * time.Millisecond
		o.Resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
			switch host {
			case "slow.example":
				<-ctx.Done()
				return nil, ctx.Err()
			case "empty.example":
				return nil, nil
			}
			return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
		}
	})
	for _, tt := range []struct {
		url     string
		stage   Stage
		timeout bool
	}{
		{"http://none.example/", Resolve, false},
		{"http://empty.example/", Resolve, false},
		{"http://slow.example/", Resolve, true},
		{"http://127.0.0.1:1", Connect, false}, // nobody listens there
		{"https://" + rubbish.Addr().String(), TLS, false},
		{secure.URL, TLS, false}, // nobody vouches for it
		{"http://10.0.0.1/", Policy, false},
	} {
		before := testutil.ToFloat64(e.opts.Metrics.failures.WithLabelValues(string(tt.stage)))
		_, err := get(t, e, "", tt.url)
		if s, timeout := stageOf(err); s != tt.stage || timeout != tt.timeout {
			t.Errorf("%s: %v (timeout %v), want %s (%v)", tt.url, err, timeout, tt.stage, tt.timeout)
		}
		if n := testutil.ToFloat64(e.opts.Metrics.failures.WithLabelValues(string(tt.stage))); n != before+1 {
			t.Errorf("%s: %v failures are counted", tt.url, n-before)
		}
	}
	hasty := open(t, func(o *Options) { o.TLSTimeout = 50 * time.Millisecond })
	_, err = get(t, hasty, "", "https://"+silent.Addr().String())
	if s, timeout := stageOf(err); s != TLS || !timeout {
		t.Error(err)
	}
	if _, err := get(t, e, "other", plain.URL); err == nil {
		t.Error("any credential is known")
	} else if s, _ := stageOf(err); s != Credential {
		t.Error(err)
	}
}

// TestDialEndsWithItsCall: who gives up leaves no dial behind.
func TestDialEndsWithItsCall(t *testing.T) {
	begun, ended := make(chan struct{}), make(chan error)
	e := open(t, func(o *Options) {
		o.ResolveTimeout = time.Hour
		o.Resolve = func(ctx context.Context, _ string) ([]netip.Addr, error) {
			close(begun)
			<-ctx.Done()
			ended <- ctx.Err()
			return nil, ctx.Err()
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	ctx, progress := Track(ctx)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://device.example/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	done.Go(func() {
		if _, err := e.Client("").Transport.RoundTrip(req); err == nil {
			t.Error("it has an answer")
		}
	})
	<-begun
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	done.Wait()
	if progress.Stage() != Resolve {
		t.Errorf("it ended at %q", progress.Stage())
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestCredentials: each device is shown what its entry names, changes are taken
// over without losing a connection that is as it was, and a broken file changes
// nothing and tells no secret.
func TestCredentials(t *testing.T) {
	var opened atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header.Get("Authorization"))
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	dir := t.TempDir()
	file, token := filepath.Join(dir, "credentials.yml"), filepath.Join(dir, "token")
	put(t, token, "fromFile\n")
	put(t, file, "- name: a\n  bearer: inline\n- name: b\n  bearer_file: "+token+"\n")
	e := open(t, func(o *Options) { o.CredentialsFile = file })
	shows := func(credential, want string) {
		t.Helper()
		if got, err := get(t, e, credential, s.URL); err != nil || got != "200 "+want {
			t.Errorf("%s: %q %v, want %q", credential, got, err, want)
		}
	}
	load := func(changed bool, want string) {
		t.Helper()
		got, err := e.Load()
		if got != changed || (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "SECRET")) {
			t.Errorf("%v %v, want %v %q", got, err, changed, want)
		}
	}
	shows("a", "Bearer inline")
	shows("b", "Bearer fromFile")
	shows("", "")
	load(false, "")
	put(t, token, "other")
	load(true, "")
	shows("b", "Bearer other")
	if n := opened.Load(); n != 1 {
		t.Errorf("%d connections for tokens alone", n)
	}
	for text, want := range map[string]string{
		"":                                               "is empty",
		"- name: SECRET: x":                              "isn't understood",
		"- {name: a, password: SECRET}":                  "isn't understood",
		"- {bearer: SECRET}":                             "entry 1 has no name",
		"- {name: a, bearer: SECRET two}":                "printable characters",
		"- {name: a}":                                    "neither",
		"- {name: a, bearer: x, bearer_file: y}":         "both",
		"- {name: a, cert_file: x}":                      "belong together",
		"- {name: a, bearer_file: /nowhere/at/all}":      "no such file",
		"- {name: a, bearer: x}\n- {name: a, bearer: y}": "twice",
		"- {name: a, cert_file: " + token + ", key_file: " + token + "}": "failed to find any PEM data",
	} {
		put(t, file, text)
		load(false, want)
	}
	shows("a", "Bearer inline")
	put(t, file, "[]")
	load(true, "")
	if _, err := get(t, e, "a", s.URL); err == nil || !strings.Contains(err.Error(), "device_credentials_file") {
		t.Error(err)
	}
}

// TestTLS: a device is checked by the CA file under its name, it is shown the
// client certificate, and HTTP/2 is never spoken.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	testkit.Certificates(t, dir)
	clients := testkit.NewAuthority(t, "clients")
	clients.Issue("dialler", nil).Write(t, dir, "client")
	pool := x509.NewCertPool()
	pool.AddCert(clients.Cert)
	cert, err := tls.LoadX509KeyPair(filepath.Join(dir, "server.pem"), filepath.Join(dir, "server-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Proto, " ", len(r.TLS.PeerCertificates))
	}))
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven}
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	file := filepath.Join(dir, "credentials.yml")
	put(t, file, "- {name: c, cert_file: "+filepath.Join(dir, "client.pem")+", key_file: "+filepath.Join(dir, "client-key.pem")+"}")
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	e := open(t, func(o *Options) {
		o.CAFile, o.CredentialsFile = filepath.Join(dir, "ca.pem"), file
		o.Resolve = func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		}
	})
	for credential, want := range map[string]string{"": "200 HTTP/1.1 0", "c": "200 HTTP/1.1 1"} {
		if got, err := get(t, e, credential, "https://localhost:"+port); err != nil || got != want {
			t.Errorf("%q: %q %v", credential, got, err)
		}
	}
	if _, err := get(t, e, "", "https://other.example:"+port); err == nil {
		t.Error("its certificate is for another name")
	} else if s, _ := stageOf(err); s != TLS {
		t.Error(err)
	}
	testkit.Certificates(t, dir) // of another authority
	if changed, err := e.Load(); !changed || err != nil {
		t.Fatal(changed, err)
	}
	if _, err := get(t, e, "", "https://localhost:"+port); err == nil {
		t.Error("nobody vouches for it any more")
	}
	put(t, filepath.Join(dir, "ca.pem"), "rubbish")
	if _, err := e.Load(); err == nil {
		t.Error("a file without certificates")
	}
}
