package inventory

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// A short text that stands for a long one, or that the reader would take minutes
// for, is refused before it is read.
func TestYAMLThatIsNoListIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	laughs := "- {id: a0, url: u, groups: &a0 [x]}\n"
	for i := 1; i < 12; i++ {
		laughs += fmt.Sprintf("- {id: a%d, url: u, groups: &a%d [%s*a%d]}\n", i, i, strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 8), i-1)
	}
	for name, text := range map[string]string{
		"aliases of aliases": laughs,
		"an alias":           "- {id: a, url: u, groups: &g [x]}\n- {id: b, url: u, groups: *g}\n",
		"of itself":          "- &a [*a]\n",
		"merged":             "- &a {<<: [*a, *a], id: a}\n",
		"brackets":           strings.Repeat("[", 20_000),
		"braces":             strings.Repeat("{a: ", 20_000),
		"dashes":             strings.Repeat("- ", 20_000) + "a",
		"question marks":     strings.Repeat("? ", 20_000),
		"groups in groups":   "- id: a\n  url: u\n  groups: " + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + "\n",
	} {
		if _, err := parse(formatYAML, []byte(text)); !errors.Is(err, errPlain) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := parse(formatYAML, []byte("# "+strings.Repeat("x", maxYAMLBytes)+"\n[]")); !errors.Is(err, errLong) {
		t.Errorf("too long: %v", err)
	}
	entries, err := parse(formatYAML, []byte("- {id: \"a*&b\", url: 'https://x/?a=*b&c=[[[[[[', groups: [a, b]}\n-\n  id: c\n  url: https://y/\n  groups:\n  - a\n  - b\n"))
	if err != nil || len(entries) != 2 {
		t.Errorf("a list: %v, %v", entries, err)
	}
}
