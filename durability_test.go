package downlink_test

import (
	"regexp"
	"strings"
	"testing"
)

var namedTest = regexp.MustCompile("`(Test[A-Za-z]+)(?:/([a-z]+))?`")

// TestDurabilityIsHeld: each line of the tables in docs/operate/durability.md
// names the tests that hold it, and they are there.
func TestDurabilityIsHeld(t *testing.T) {
	const page = "docs/operate/durability.md"
	sources := make(map[string]string) // of each test function
	for _, p := range packages(t) {
		for _, f := range p.tests {
			text := read(t, f.path)
			for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(text, -1) {
				sources[m[1]] = text
			}
		}
	}
	lines := 0
	for line := range strings.Lines(read(t, page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		last := strings.TrimSpace(cells[len(cells)-1])
		if len(cells) < 5 || last == "held by" || strings.HasPrefix(last, "---") {
			continue
		}
		lines++
		named := namedTest.FindAllStringSubmatch(last, -1)
		if len(named) == 0 {
			t.Errorf("%s: no test holds %q", page, strings.TrimSpace(cells[0]))
		}
		for _, m := range named {
			source, there := sources[m[1]]
			if !there || m[2] != "" && !strings.Contains(source, `"`+m[2]+`"`) {
				t.Errorf("%s names %s, and there is no such test", page, m[0])
			}
		}
	}
	if lines < 20 {
		t.Errorf("%s has only %d lines that tests hold", page, lines)
	}
}

// TestRedisMetricsAreExplained: docs/operate/redis.md has a line for each metric
// that concerns Redis.
func TestRedisMetricsAreExplained(t *testing.T) {
	const page = "docs/operate/redis.md"
	text := read(t, page)
	found := regexp.MustCompile("(?m)^\\| `(downlink_(?:redis|log|tail|sweep)_[a-z_]+)`").FindAllStringSubmatch(read(t, "docs/reference/metrics.md"), -1)
	if len(found) < 10 {
		t.Errorf("the reference has only %d metrics of Redis", len(found))
	}
	for _, m := range found {
		if !strings.Contains(text, "\n| `"+m[1]+"` |") {
			t.Errorf("%s has no line for %s", page, m[1])
		}
	}
}
