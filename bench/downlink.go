package main

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A site is how gateways are started here.
type site struct {
	gateway   string   // the binary under test
	generator string   // the binary that makes the load
	extra     []string // flags for every gateway
	bin       string   // directory of the peers that are built
}

// A gateway is one that runs.
type gateway struct {
	process      *process
	url, backend string
	ca           string // certificate to trust, with TLS
}

// downlink is the contender itself, with more flags of serve.
func (s site) downlink(d duty, flags ...string) func(*lab) (*target, error) {
	return func(l *lab) (*target, error) {
		t := &target{watch: map[string][]int{}}
		redis, err := withRedis(l, d, t)
		if err != nil {
			return nil, err
		}
		g, err := s.startGateway(l, "downlink", redis, d, flags...)
		if err != nil {
			return nil, err
		}
		t.watch["server"] = []int{g.process.pid}
		t.observe(g, redis)
		t.args, err = g.args(l, d)
		return t, err
	}
}

// args are the flags by which the generator reaches the gateway.
func (g *gateway) args(l *lab, d duty) ([]string, error) {
	args := []string{"--backend", g.backend}
	if d.tls {
		args = append(args, "--ca-file", g.ca)
	}
	if !d.jwt {
		return append(args, "--url", g.url+"/events?device={device}"), nil
	}
	flags, err := tokens(l, `{"sub":"{device}"}`)
	return slices.Concat(args, flags, []string{"--url", g.url + "/events", "--header", "Authorization: Bearer {token}"}), err
}

// startGateway starts one gateway on the Redis, or on a directory of its own.
func (s site) startGateway(l *lab, name, redis string, d duty, flags ...string) (*gateway, error) {
	listen, err := freeAddr()
	if err != nil {
		return nil, err
	}
	backend, err := freeAddr()
	if err != nil {
		return nil, err
	}
	log := "file:" + l.path(name+"-log")
	if redis != "" {
		log = "redis://" + redis
	}
	args := []string{"serve", "--listen", listen, "--backend-listen", backend, "--log", log, "--log-level", "warn", "--drain-wait", "0"}
	if d.jwt {
		file, err := l.write("secret", secret)
		if err != nil {
			return nil, err
		}
		args = append(args, "--auth", "jwt", "--jwt-hmac-secret-file", file)
	}
	g := &gateway{url: "http://" + listen, backend: "http://" + backend}
	if d.tls {
		cert, key, err := writeCertificate(l)
		if err != nil {
			return nil, err
		}
		g.url, g.ca = "https://"+listen, cert
		args = append(args, "--tls-cert-file", cert, "--tls-key-file", key)
	}
	if g.process, err = l.start(name, s.gateway, slices.Concat(args, flags, s.extra)...); err != nil {
		return nil, err
	}
	return g, l.ready(g.process, answers(g.backend+"/readyz"))
}

// observe reads a gateway's metrics, and its Redis's, around the load.
func (t *target) observe(g *gateway, redis string) {
	read := func(moment string) func() (values, error) {
		return func() (values, error) {
			v, err := g.settled()
			if err != nil {
				return nil, err
			}
			if redis != "" {
				figures, err := redisFigures(redis)
				if err != nil {
					return nil, err
				}
				v.add(figures)
			}
			return v.prefixed(moment + "."), nil
		}
	}
	t.before, t.after = read("before"), read("after")
}

// settled reads the metrics that tables use, after a garbage collection and
// once the connections of the load are gone (at most ten seconds later).
func (g *gateway) settled() (values, error) {
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := fetch(g.backend + "/debug/pprof/heap?gc=1"); err != nil {
			return nil, err
		}
		page, err := fetch(g.backend + "/metrics")
		if err != nil {
			return nil, err
		}
		v := selectMetrics(page)
		if v["sse_active_connections"] == 0 {
			return v, nil
		}
		select {
		case <-deadline.C:
			return v, nil // a table shows what has stayed
		case <-tick.C:
		}
	}
}

func fetch(url string) (string, error) {
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	return string(body), err
}

// shown are the metrics, or beginnings of them, that tables use.
func shown(name string) bool {
	return slices.ContainsFunc([]string{
		"sse_active_connections", "go_goroutines", "go_memstats_heap_alloc_bytes", "process_open_fds",
		"downlink_catchup_", "downlink_resync_total", "downlink_session_ends_total", "downlink_session_behind_total",
		"downlink_tail_entries_total", "downlink_redis_call_seconds_count", "downlink_refused_total",
	}, func(beginning string) bool { return strings.HasPrefix(name, beginning) })
}

// selectMetrics reads Prometheus's text format, and leaves zeros out.
func selectMetrics(page string) values {
	v := values{}
	for line := range strings.Lines(page) {
		name, text, ok := cutLast(strings.TrimSpace(line), " ")
		if !ok || !shown(name) {
			continue
		}
		if n, err := strconv.ParseFloat(text, 64); err == nil && n != 0 {
			v[name] = n
		}
	}
	return v
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// fleet is several gateways on one Redis; the devices are at the first.
func (s site) fleet(n int) func(*lab) (*target, error) {
	return func(l *lab) (*target, error) {
		t := &target{watch: map[string][]int{}}
		redis, err := withRedis(l, duty{store: onRedis}, t)
		if err != nil {
			return nil, err
		}
		var first *gateway
		for i := range n {
			g, err := s.startGateway(l, fmt.Sprintf("downlink-%d", i), redis, duty{})
			if err != nil {
				return nil, err
			}
			if i == 0 {
				first = g
			}
			t.watch["server"] = append(t.watch["server"], g.process.pid)
		}
		// Published straight into the log, so that gateways do nothing but read.
		t.args = []string{"--publish-log", "redis://" + redis, "--url", first.url + "/events?device={device}"}
		t.observe(first, redis)
		return t, nil
	}
}

// among puts one gateway beside bare readers of its log.
func (s site) among(readers int, rest time.Duration) func(*lab) (*target, error) {
	return func(l *lab) (*target, error) {
		t, err := s.fleet(1)(l)
		if err != nil {
			return nil, err
		}
		return t, readBare(l, strings.TrimPrefix(t.args[1], "redis://"), readers, rest)
	}
}

// peer is the path of a peer that is built into bin/.
func (s site) peer(name string) string { return filepath.Join(s.bin, name) }
