package testkit

import (
	"strconv"
	"strings"
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
