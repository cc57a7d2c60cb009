// Package testkit starts the real servers that tests run against. It owns
// their processes, ports and certificates, and nothing of what they are asked.
// Its invariant: what a test starts is dead when that test ends, even when the
// test's own process is killed.
package testkit

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A Redis is one redis-server on a port of its own. Its methods fail the test
// instead of returning an error. Not safe for concurrent use, except Do and Try.
type Redis struct {
	tb      testing.TB
	dir     string
	conf    []string
	port    int
	tlsPort int    // 0: no TLS
	certs   string // the directory of the certificates, if it isn't dir
	onlyTLS bool   // servers talk to each other over TLS too
	user    string
	pass    string
	busPort int  // 0: no member of a cluster
	guards  bool // it is a Sentinel
	cmd     *exec.Cmd
	exited  chan struct{}
	watcher *watcher
	missed  func() // is called before it is killed, frozen or cut off; nil: nobody is to notice
}

// A RedisOption changes how StartRedis configures the server.
type RedisOption func(*Redis)

// RedisConfig adds lines of redis.conf; a later line overrides an earlier one.
func RedisConfig(lines ...string) RedisOption {
	return func(r *Redis) { r.conf = append(r.conf, lines...) }
}

// RedisUser adds an ACL user with the given rules ("~* +@all"), whom URL names.
// Do and Try go on as the all-powerful default user.
func RedisUser(name, password, rules string) RedisOption {
	return func(r *Redis) {
		r.user, r.pass = name, password
		r.conf = append(r.conf, fmt.Sprintf("user %s on >%s %s", name, password, rules))
	}
}

// RedisTLS adds a TLS port with a certificate of a throw-away authority, to
// which URL points; CAFile names the authority's certificate.
func RedisTLS() RedisOption {
	return func(r *Redis) { r.tlsPort = -1 }
}

// RedisTLSFrom is RedisTLS with the certificates in a directory, for servers that
// talk to each other over TLS too.
func RedisTLSFrom(dir string) RedisOption {
	return func(r *Redis) { r.tlsPort, r.certs, r.onlyTLS = -1, dir, true }
}

// StartRedis starts a redis-server that stores nothing on disk unless an
// option says so, and kills it when the test ends.
func StartRedis(tb testing.TB, opts ...RedisOption) *Redis {
	tb.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		tb.Fatal("this test needs redis-server 7.0 or newer: install it with `apt-get install redis-server` or `brew install redis`")
	}
	r := &Redis{tb: tb, dir: tb.TempDir()}
	for _, opt := range opts {
		opt(r)
	}
	if r.tlsPort != 0 && r.certs == "" {
		r.certs = r.dir
		if err := writeCertificates(r.dir); err != nil {
			tb.Fatalf("making certificates: %v", err)
		}
	}
	// Another program may take a free port before the server does.
	for range 10 {
		r.port = lastingPort(tb)
		if r.tlsPort != 0 {
			r.tlsPort = lastingPort(tb)
		}
		if r.busPort != 0 {
			r.busPort = lastingPort(tb)
		}
		tb.Cleanup(r.Kill9) // before others may have its ports
		if r.launch() {
			return r
		}
		_ = os.Remove(r.confFile()) // names a port that is taken
	}
	tb.Fatalf("redis-server found no free port in ten tries; its log:\n%s", r.log())
	return nil
}

// Addr is the host and port without TLS.
func (r *Redis) Addr() string { return loopback(r.port) }

// HostPort is Addr in two parts, as REPLICAOF takes them.
func (r *Redis) HostPort() (host, port string) { return "127.0.0.1", strconv.Itoa(r.port) }

// URL is what a client would be given: redis:// or rediss://, with the user.
func (r *Redis) URL() string {
	auth := ""
	if r.user != "" {
		auth = r.user + ":" + r.pass + "@"
	}
	if r.tlsPort != 0 {
		return fmt.Sprintf("rediss://%s127.0.0.1:%d", auth, r.tlsPort)
	}
	return fmt.Sprintf("redis://%s%s", auth, r.Addr())
}

// urlOf is a URL of several servers, with r's user and kind of connection.
func (r *Redis) urlOf(form string, all []*Redis) string {
	scheme, user := "redis", ""
	if r.tlsPort != 0 {
		scheme = "rediss"
	}
	if r.user != "" {
		user = r.user + ":" + r.pass + "@"
	}
	addrs := make([]string, len(all))
	for i, s := range all {
		addrs[i] = s.Addr()
		if s.tlsPort != 0 {
			addrs[i] = loopback(s.tlsPort)
		}
	}
	return scheme + form + "://" + user + strings.Join(addrs, ",")
}

// peerPort is the port that other servers are told: with TLS, if they talk over it.
func (r *Redis) peerPort() string {
	if r.onlyTLS {
		return strconv.Itoa(r.tlsPort)
	}
	return strconv.Itoa(r.port)
}

// Dir is the server's working directory, where its files are.
func (r *Redis) Dir() string { return r.dir }

// CAFile is the certificate by which a client knows the server; empty without TLS.
func (r *Redis) CAFile() string {
	if r.tlsPort == 0 {
		return ""
	}
	return filepath.Join(r.certs, "ca.pem")
}

// Kill9 ends the server as a crash would. It is no error if it is not running.
func (r *Redis) Kill9() {
	if r.cmd == nil {
		return
	}
	r.expectToBeMissed()
	r.watcher.dismiss()
	select {
	case <-r.exited: // its number may be another's by now
	default:
		_ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL)
	}
	<-r.exited
	r.cmd = nil
}

// Shutdown ends the server in order; it saves if its configuration says so.
func (r *Redis) Shutdown() {
	r.tb.Helper()
	r.watcher.dismiss()
	_ = r.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-r.exited:
	case <-time.After(20 * time.Second):
		r.tb.Fatalf("redis-server didn't stop; its log:\n%s", r.log())
	}
	r.cmd = nil
}

// Start starts a server that was ended, on the same port and directory.
func (r *Redis) Start() {
	r.tb.Helper()
	Eventually(r.tb, "redis-server starts again, though its port may be taken for a moment", r.launch)
}

// Restart is Shutdown and Start.
func (r *Redis) Restart() {
	r.tb.Helper()
	r.Shutdown()
	r.Start()
}

// Stop freezes the server, and returns when it stands still: its connections stay
// and nothing is answered.
func (r *Redis) Stop() {
	r.tb.Helper()
	r.expectToBeMissed()
	r.signal(syscall.SIGSTOP)
	awaitStill(r.tb, r.cmd.Process.Pid)
}

func (r *Redis) expectToBeMissed() {
	if r.missed != nil {
		r.missed()
	}
}

// Cont lets a frozen server go on.
func (r *Redis) Cont() { r.signal(syscall.SIGCONT) }

func (r *Redis) signal(s syscall.Signal) {
	r.tb.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		r.tb.Fatalf("sending %v to redis-server: %v", s, err)
	}
}

// launch reports whether the server runs and answers; false means that its
// port was taken.
func (r *Redis) launch() bool {
	r.tb.Helper()
	conf := r.confFile()
	if _, err := os.Stat(conf); err != nil || !r.guards { // a Sentinel keeps what it knows in there
		if err := os.WriteFile(conf, []byte(r.config()), 0o600); err != nil {
			r.tb.Fatal(err)
		}
	}
	cmd := exec.Command("redis-server", conf)
	if r.guards {
		cmd.Args = append(cmd.Args, "--sentinel")
	}
	cmd.Dir = r.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what it forks to write its files dies with it
	if err := cmd.Start(); err != nil {
		r.tb.Fatalf("starting redis-server: %v", err)
	}
	watcher, err := watch(-cmd.Process.Pid)
	if err != nil {
		_ = cmd.Process.Kill()
		r.tb.Fatalf("starting the watcher of redis-server: %v", err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	r.cmd, r.exited, r.watcher = cmd, exited, watcher
	return r.awaitAnswer()
}

func (r *Redis) awaitAnswer() bool {
	r.tb.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	patience := time.After(30 * time.Second)
	for {
		select {
		case <-r.exited:
			r.Kill9()
			if log := r.log(); !strings.Contains(log, "Address already in use") {
				r.tb.Fatalf("redis-server didn't start; its log:\n%s", log)
			}
			return false
		case <-patience:
			r.tb.Fatalf("redis-server didn't answer; its log:\n%s", r.log())
		case <-tick.C:
			// Another process's server may answer on this port: ask whose it is.
			if reply, err := r.Try("INFO", "server"); err == nil &&
				strings.Contains(fmt.Sprint(reply), fmt.Sprintf("process_id:%d\r", r.cmd.Process.Pid)) && r.loaded() {
				return true
			}
		}
	}
}

func (r *Redis) loaded() bool {
	if r.guards {
		return true // it has no data
	}
	reply, err := r.Try("INFO", "persistence")
	return err == nil && strings.Contains(fmt.Sprint(reply), "\nloading:0\r")
}

func (r *Redis) config() string {
	lines := []string{
		"bind 127.0.0.1",
		"port " + strconv.Itoa(r.port),
		"dir " + r.dir,
		"logfile redis.log",
	}
	if r.tlsPort != 0 {
		lines = append(lines,
			"tls-port "+strconv.Itoa(r.tlsPort),
			"tls-cert-file "+filepath.Join(r.certs, "server.pem"),
			"tls-key-file "+filepath.Join(r.certs, "server-key.pem"),
			"tls-ca-cert-file "+filepath.Join(r.certs, "ca.pem"),
			"tls-auth-clients no",
		)
	}
	if r.onlyTLS {
		lines = append(lines, "tls-replication yes")
	}
	if r.guards {
		return strings.Join(append(lines, r.conf...), "\n") + "\n"
	}
	lines = append(lines,
		`save ""`,
		"appendonly no",
		"enable-debug-command local",
		// A replica that comes back costs no five seconds.
		"repl-diskless-sync-delay 0",
	)
	if r.busPort != 0 {
		lines = append(lines, "cluster-enabled yes", "cluster-node-timeout 2000", "cluster-port "+strconv.Itoa(r.busPort),
			// However long ago it was cut off, a replica stands for election.
			"cluster-replica-validity-factor 0")
	}
	if r.busPort != 0 && r.onlyTLS {
		lines = append(lines, "tls-cluster yes")
	}
	return strings.Join(append(lines, r.conf...), "\n") + "\n"
}

func (r *Redis) confFile() string { return filepath.Join(r.dir, "redis.conf") }

func (r *Redis) log() string {
	text, err := os.ReadFile(filepath.Join(r.dir, "redis.log"))
	if errors.Is(err, os.ErrNotExist) {
		return "(no log: run redis-server with " + r.confFile() + " to see why)"
	}
	return string(text)
}
