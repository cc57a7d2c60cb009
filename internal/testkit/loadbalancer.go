package testkit

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// NobodyHere is an address at which nobody accepts connections.
const NobodyHere = "127.0.0.1:1"

const (
	// hardStop is after how long a process that was reloaded ends what it still has.
	hardStop = "2s"
	// silence is how long a stream may be silent.
	silence = "5s"
)

// A LoadBalancer is a HAProxy or an nginx in front of gateways, with the
// configuration that the repository ships. What a test changes in it are
// addresses and paths, times, and how many connections it has room for.
type LoadBalancer struct {
	URL   string // https://…
	Roots *x509.CertPool

	*process
	conf   string // the file's path
	fill   func(servers [3]string) string
	reload syscall.Signal
	marks  string // what its log has once a time for each reload that was done
}

// The time-outs are as far from its gateways' keep-alive of 1 s as the shipped ones
// are from 20 s, and somewhat more: a busy machine needs some of it.
func haproxyWords(dir, address string) []string {
	words := []string{
		"bind :443 ssl crt /etc/haproxy/downlink.pem", "bind " + address + " ssl crt " + filepath.Join(dir, "downlink.pem"),
		"maxconn 60000", "maxconn 500",
		"hard-stop-after 2h", "hard-stop-after " + hardStop,
		"timeout client 75s", "timeout client " + silence,
		"timeout server 75s", "timeout server " + silence,
	}
	if runtime.GOOS != "linux" {
		words = append(words, " tcp-ut 30s", "") // only Linux has it
	}
	return words
}

func nginxWords(dir, address string) []string {
	return []string{
		"pid /run/nginx.pid;", "daemon off; pid " + filepath.Join(dir, "nginx.pid") + ";",
		"error_log /var/log/nginx/error.log warn;", "error_log stderr notice;",
		"worker_processes auto;", "worker_processes 2;",
		"worker_rlimit_nofile 65536;", "worker_rlimit_nofile 2048;",
		"worker_connections 65536;", "worker_connections 1024;",
		"worker_shutdown_timeout 2h;", "worker_shutdown_timeout " + hardStop + ";",
		"listen 443 ssl", "listen " + address + " ssl",
		"/etc/nginx/downlink.pem", filepath.Join(dir, "server.pem"),
		"/etc/nginx/downlink-key.pem", filepath.Join(dir, "server-key.pem"),
		"proxy_read_timeout 75s;", "proxy_read_timeout " + silence + ";",
		// Where the package would have put them only root may write.
		"access_log off;", "access_log off; client_body_temp_path " + dir + "/b; proxy_temp_path " + dir + "/p; fastcgi_temp_path " + dir +
			"/f; uwsgi_temp_path " + dir + "/u; scgi_temp_path " + dir + "/s;",
	}
}

// StartHAProxy starts deploy/loadbalancers/haproxy.cfg before three servers.
func StartHAProxy(tb testing.TB, servers [3]string) *LoadBalancer {
	tb.Helper()
	lb := newLoadBalancer(tb, "haproxy.cfg", haproxyWords)
	lb.reload, lb.marks = syscall.SIGUSR2, "Loading success"
	lb.launch(tb, haproxy, servers, haproxyArgs(lb.conf)...)
	return lb
}

// StartNginx starts deploy/loadbalancers/nginx.conf before three servers.
func StartNginx(tb testing.TB, servers [3]string) *LoadBalancer {
	tb.Helper()
	lb := newLoadBalancer(tb, "nginx.conf", nginxWords)
	lb.reload, lb.marks = syscall.SIGHUP, "reconfiguring"
	lb.launch(tb, "nginx", servers, "-p", filepath.Dir(lb.conf), "-e", "stderr", "-c", lb.conf)
	return lb
}

func newLoadBalancer(tb testing.TB, file string, words func(dir, address string) []string) *LoadBalancer {
	tb.Helper()
	_, here, _, _ := runtime.Caller(0)
	shipped, err := os.ReadFile(filepath.Join(filepath.Dir(here), "..", "..", "deploy", "loadbalancers", file))
	if err != nil {
		tb.Fatal(err)
	}
	dir := tb.TempDir()
	Certificates(tb, dir)
	address := LastingAddr(tb)
	text := replaceAll(tb, file, string(shipped), words(dir, address)...)
	fill := func(servers [3]string) string {
		return replaceAll(tb, file, text, "10.0.0.11:8080", servers[0], "10.0.0.12:8080", servers[1], "10.0.0.13:8080", servers[2])
	}
	lb := &LoadBalancer{URL: "https://" + address, Roots: x509.NewCertPool(), conf: filepath.Join(dir, file), fill: fill}
	pem := map[string][]byte{}
	for _, name := range []string{"ca", "server", "server-key"} {
		if pem[name], err = os.ReadFile(filepath.Join(dir, name+".pem")); err != nil {
			tb.Fatal(err)
		}
	}
	lb.Roots.AppendCertsFromPEM(pem["ca"])
	Put(tb, filepath.Join(dir, "downlink.pem"), append(pem["server"], pem["server-key"]...))
	return lb
}

// replaceAll replaces old by new words; each of the old ones has to be there.
func replaceAll(tb testing.TB, file, text string, words ...string) string {
	tb.Helper()
	for i := 0; i < len(words); i += 2 {
		if !strings.Contains(text, words[i]) {
			tb.Fatalf("%s has no %q any more", file, words[i])
		}
		text = strings.ReplaceAll(text, words[i], words[i+1])
	}
	return text
}

func (lb *LoadBalancer) launch(tb testing.TB, name string, servers [3]string, args ...string) {
	tb.Helper()
	Put(tb, lb.conf, []byte(lb.fill(servers)))
	web := lb.client(tb, false)
	lb.process = startInFront(tb, name, func() bool {
		resp, err := web.Get(lb.URL)
		if err == nil {
			resp.Body.Close()
		}
		return err == nil
	}, args...)
}

// Client is a client that trusts it, over HTTP/2 or HTTP/1.1. Its idle connections
// are closed when the test ends.
func (lb *LoadBalancer) Client(http2 bool) *http.Client { return lb.client(lb.tb, http2) }

func (lb *LoadBalancer) client(tb testing.TB, http2 bool) *http.Client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: lb.Roots}, ForceAttemptHTTP2: http2}
	tb.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// Reload changes the servers in its file and lets it read that again. It returns
// when connections are served by the new process; open streams stay with the old
// one until its time is up.
func (lb *LoadBalancer) Reload(servers [3]string) {
	lb.tb.Helper()
	Put(lb.tb, lb.conf, []byte(lb.fill(servers)))
	before := strings.Count(lb.output.String(), lb.marks)
	lb.signal(lb.reload)
	Eventually(lb.tb, "it has read its file again", func() bool {
		if lb.Exited() {
			lb.tb.Fatalf("the %s ended:\n%s", lb.name, lb.output)
		}
		return strings.Count(lb.output.String(), lb.marks) > before
	})
}

// HardStop is how long open streams stay with the process that was reloaded.
func (lb *LoadBalancer) HardStop() time.Duration { return lb.duration(hardStop) }

// Silence is how long a stream may be silent.
func (lb *LoadBalancer) Silence() time.Duration { return lb.duration(silence) }

func (lb *LoadBalancer) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		lb.tb.Fatal(err)
	}
	return d
}
