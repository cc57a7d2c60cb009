package chart

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A catalogue is every metric that the gateway has, with the values that each of its
// labels can have; nil: any.
type catalogue map[string]map[string][]string

var (
	metricRow = regexp.MustCompile("^\\| `([a-z_]+)` \\| (\\w+) \\| (.*?) \\| ")
	labelPart = regexp.MustCompile("`([a-z_]+)`(?:: ([^;|]*))?")
)

// documented reads docs/reference/metrics.md, which is written from the code and
// compared with it.
func documented(t *testing.T) catalogue {
	t.Helper()
	found := catalogue{}
	for line := range strings.Lines(read(t, root+"/docs/reference/metrics.md")) {
		m := metricRow.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		labels := map[string][]string{}
		for _, l := range labelPart.FindAllStringSubmatch(m[3], -1) {
			labels[l[1]] = nil
			if values := strings.TrimSpace(l[2]); values != "" {
				labels[l[1]] = strings.Split(values, ", ")
			}
		}
		names := []string{m[1]}
		if m[2] == "histogram" {
			labels["le"] = nil
			names = []string{m[1] + "_bucket", m[1] + "_sum", m[1] + "_count"}
		}
		for _, name := range names {
			found[name] = labels
		}
	}
	if len(found) < 50 {
		t.Fatalf("found %d metrics in the reference", len(found))
	}
	return found
}

// scraped are the names of a page of metrics.
func scraped(page string) map[string]bool {
	found := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z_]+)[{ ]`).FindAllStringSubmatch(page, -1) {
		found[m[1]] = true
	}
	return found
}

var (
	metricName = regexp.MustCompile(`\b(?:downlink|sse|go|process)_[a-z_]+\b`)
	selector   = regexp.MustCompile(`\b((?:downlink|sse|go|process)_[a-z_]+)\{([^}]*)\}`)
	matcher    = regexp.MustCompile(`([a-z_]+)\s*(=~|!~|!=|=)\s*"([^"]*)"`)
	grouping   = regexp.MustCompile(`\b(?:by|on|ignoring|without)\s*\(([^)]*)\)`)
)

// scrapeLabels are added by whoever scrapes.
func scrapeLabels() []string { return []string{"namespace", "job", "instance", "pod", "service"} }

// checkExpression: every metric is one that the gateway has, and every label and
// value of a label too.
func checkExpression(t *testing.T, where, expression string, c catalogue, others map[string]bool) {
	t.Helper()
	var labels []string
	for _, name := range metricName.FindAllString(expression, -1) {
		known, is := c[name]
		if !is && !others[name] {
			t.Errorf("%s: the gateway has no metric %s", where, name)
		}
		for l := range known {
			labels = append(labels, l)
		}
	}
	for _, s := range selector.FindAllStringSubmatch(expression, -1) {
		for _, m := range matcher.FindAllStringSubmatch(s[2], -1) {
			label, values := m[1], strings.Split(m[3], "|")
			if slices.Contains(scrapeLabels(), label) {
				continue
			}
			allowed, is := c[s[1]][label]
			if !is {
				t.Errorf("%s: %s has no label %s", where, s[1], label)
			}
			for _, v := range values {
				if allowed != nil && !slices.Contains(allowed, v) {
					t.Errorf("%s: %s is never %q for %s", where, label, v, s[1])
				}
			}
		}
	}
	for _, g := range grouping.FindAllStringSubmatch(expression, -1) {
		for l := range strings.SplitSeq(g[1], ",") {
			if l = strings.TrimSpace(l); l != "" && !slices.Contains(labels, l) && !slices.Contains(scrapeLabels(), l) {
				t.Errorf("%s: none of its metrics has a label %s", where, l)
			}
		}
	}
}
