package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"downlink/internal/config"
	"downlink/internal/gateway"
	"downlink/internal/limits"
)

func metricsPage(string) ([]byte, error) {
	return describeMetrics(gateway.Metrics(gateway.Options{Limits: limits.New(config.Limits())}))
}

// describeMetrics lists the product's own metrics. Those of the Go runtime and
// the process depend on compiler and system, and have their own documentation.
func describeMetrics(g prometheus.Gatherer) ([]byte, error) {
	families, err := g.Gather()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString("# Metrics\n\n" + generated)
	b.WriteString("`GET /metrics` on the back end's port, in Prometheus's text format. Every label value exists from the start, at zero. [Words](../architecture.md#words) such as tail, lap and hot window are explained there. Beside these there are the usual `go_…` and `process_…` metrics of Go's runtime and of the process.\n\n")
	b.WriteString("| metric | kind | labels | what it says |\n| --- | --- | --- | --- |\n")
	for _, f := range families {
		name := f.GetName()
		if !strings.HasPrefix(name, "downlink_") && name != "sse_active_connections" {
			continue
		}
		values := map[string][]string{}
		var names []string
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if !slices.Contains(names, l.GetName()) {
					names = append(names, l.GetName())
				}
				if v := l.GetValue(); !slices.Contains(values[l.GetName()], v) {
					values[l.GetName()] = append(values[l.GetName()], v)
				}
			}
		}
		kind := strings.ToLower(f.GetType().String())
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", name, kind, labels(name, names, values), strings.ReplaceAll(f.GetHelp(), "|", `\|`))
	}
	return b.Bytes(), nil
}

func labels(metric string, names []string, values map[string][]string) string {
	described := make([]string, len(names))
	for i, n := range names {
		described[i] = "`" + n + "`"
		if metric != "downlink_build_info" { // its values are those of one build
			described[i] += ": " + strings.Join(values[n], ", ")
		}
	}
	return strings.Join(described, "; ")
}
