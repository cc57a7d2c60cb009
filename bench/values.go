package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// values are the figures of one run by name: what `downlink load` reports,
// its fields joined with dots, and what the harness read besides.
type values map[string]float64

func (v values) add(more values) { maps.Copy(v, more) }

func (v values) prefixed(prefix string) values {
	renamed := make(values, len(v))
	for name, n := range v {
		renamed[prefix+name] = n
	}
	return renamed
}

// watched adds up a figure over all that is watched.
func (v values) watched(figure string) float64 {
	total := 0.0
	for name, n := range v {
		if strings.HasPrefix(name, "watched.") && strings.HasSuffix(name, figure) {
			total += n
		}
	}
	return total
}

// grown is how much a value that is read before and after the load has grown.
func (v values) grown(name string) float64 { return v["after."+name] - v["before."+name] }

// flatten reads the generator's report. Zeros are left out: a name that is
// missing is zero. args and texts are not figures.
func flatten(report []byte) (values, error) {
	var tree map[string]any
	if err := json.Unmarshal(report, &tree); err != nil {
		return nil, fmt.Errorf("the load's report: %w", err)
	}
	delete(tree, "args")
	v := values{}
	v.walk("", tree)
	return v, nil
}

func (v values) walk(name string, node any) {
	switch n := node.(type) {
	case float64:
		if n != 0 {
			v[name] = n
		}
	case map[string]any:
		for field, child := range n {
			if field == "pids" {
				continue
			}
			v.walk(strings.TrimPrefix(name+"."+field, "."), child)
		}
	}
}

// MarshalJSON keeps the results small: in order, four significant digits.
//
//nolint:unparam // json.Marshaler wants the error
func (v values) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, name := range sortedKeys(v) {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendQuote(b, name)
		b = append(b, ':')
		b = strconv.AppendFloat(b, rounded(v[name]), 'f', -1, 64)
	}
	return append(b, '}'), nil
}

// rounded keeps six significant digits, and whole numbers whole.
func rounded(n float64) float64 {
	if n == 0 || n == math.Trunc(n) || math.IsInf(n, 0) || math.IsNaN(n) {
		return n
	}
	scale := math.Pow(10, 5-math.Floor(math.Log10(math.Abs(n))))
	return math.Round(n*scale) / scale
}

// A spread is a figure over the rounds.
type spread struct{ median, low, high float64 }

func spreadOf(ns []float64) spread {
	if len(ns) == 0 {
		return spread{math.NaN(), math.NaN(), math.NaN()}
	}
	sorted := slices.Sorted(slices.Values(ns))
	mid := len(sorted) / 2
	median := sorted[mid]
	if len(sorted)%2 == 0 {
		median = (sorted[mid-1] + sorted[mid]) / 2
	}
	return spread{median, sorted[0], sorted[len(sorted)-1]}
}

// studentT are the two-sided 95 % quantiles of Student's t by degrees of
// freedom, from 1.
var studentT = []float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131}

// interval is the geometric mean of ratios of pairs, with its 95 % interval:
// ratios spread evenly on a logarithmic scale.
func interval(ratios []float64) spread {
	n := float64(len(ratios))
	if len(ratios) < 2 {
		return spreadOf(ratios)
	}
	mean, squares := 0.0, 0.0
	for _, r := range ratios {
		mean += math.Log(r) / n
	}
	for _, r := range ratios {
		squares += (math.Log(r) - mean) * (math.Log(r) - mean)
	}
	t := 1.96
	if len(ratios)-2 < len(studentT) {
		t = studentT[len(ratios)-2]
	}
	half := t * math.Sqrt(squares/(n-1)/n)
	return spread{math.Exp(mean), math.Exp(mean - half), math.Exp(mean + half)}
}
