package main

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFlatten(t *testing.T) {
	got, err := flatten([]byte(`{
		"scenario": "targeted", "args": {"devices": 7},
		"connect": {"connected": 7, "failed": 0, "latency_ms": {"p99": 1.5}},
		"watched": {"server": {"pids": [1, 2], "cpu_seconds": {"run": 0.25}}, "redis": {"cpu_seconds": {"run": 0.5}}},
		"passed": true, "failures": ["none"]
	}`))
	if err != nil {
		t.Fatal(err)
	}
	want := values{
		"connect.connected": 7, "connect.latency_ms.p99": 1.5,
		"watched.server.cpu_seconds.run": 0.25, "watched.redis.cpu_seconds.run": 0.5,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("figures (-want +got):\n%s", diff)
	}
	if got := cpu(got, "run"); got != 0.75 {
		t.Errorf("CPU seconds of all servers = %v, want 0.75", got)
	}
	if _, err := flatten([]byte("{")); err == nil {
		t.Error("half a report was read without an error")
	}
}

func TestValuesAreWrittenShort(t *testing.T) {
	b, err := json.Marshal(values{"b": 1234567.891, "a": 0.000123456789, "whole": 12345678901})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"a":0.000123457,"b":1234570,"whole":12345678901}`; string(b) != want {
		t.Errorf("got %s, want %s", b, want)
	}
}

func TestSpread(t *testing.T) {
	for _, test := range []struct {
		in   []float64
		want spread
	}{
		{[]float64{3}, spread{3, 3, 3}},
		{[]float64{9, 1, 5}, spread{5, 1, 9}},
		{[]float64{4, 1, 2, 9}, spread{3, 1, 9}},
	} {
		if got := spreadOf(test.in); got != test.want {
			t.Errorf("spread of %v = %v, want %v", test.in, got, test.want)
		}
	}
	if !math.IsNaN(spreadOf(nil).median) {
		t.Error("the median of nothing is a number")
	}
}

// TestInterval compares with values worked out by hand: ln 1.0, 1.1, 1.2, 1.3
// and 1.4 have mean 0.17529 and standard deviation 0.13299; t(4) is 2.776.
func TestInterval(t *testing.T) {
	got := interval([]float64{1.0, 1.1, 1.2, 1.3, 1.4})
	for _, pair := range [][2]float64{{got.median, 1.1916}, {got.low, 1.0102}, {got.high, 1.4055}} {
		if math.Abs(pair[0]-pair[1]) > 0.001 {
			t.Errorf("interval = %v, want 1.1916 in 1.0102 to 1.4055", got)
		}
	}
}

func TestFigure(t *testing.T) {
	for n, want := range map[float64]string{
		0: "0", 0.00123: "0.0012", 1: "1", 2.345: "2.35", 13.61: "13.6", 99.96: "100",
		1234.4: "1,234", 1234567: "1,234,567", -1500: "−1,500",
	} {
		if got := figure(n); got != want {
			t.Errorf("figure(%v) = %s, want %s", n, got, want)
		}
	}
}
