package testkit

import (
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"testing"
)

// Metric is the value of a metric, which is named with its labels as in
// /metrics.
func (g *Gateway) Metric(name string) float64 {
	g.tb.Helper()
	status, text := Get(g.tb, g.Backend+"/metrics")
	if status != 200 {
		g.tb.Fatalf("reading the metrics: %d %s", status, text)
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			number, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				g.tb.Fatalf("metric %s: %v", name, err)
			}
			return number
		}
	}
	g.tb.Fatalf("no metric %s", name)
	return 0
}

// LastingAddr is a free loopback address for a server that will be ended and
// started again on it. It lies below the ports that systems give to outgoing
// connections, any of which could take it meanwhile.
func LastingAddr(tb testing.TB) string {
	tb.Helper()
	for range 100 {
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(12_000+rand.IntN(18_000))))
		if err == nil {
			defer listener.Close()
			return listener.Addr().String()
		}
	}
	tb.Fatal("found no free port in a hundred tries")
	return ""
}
