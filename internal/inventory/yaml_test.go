package inventory

import (
	"errors"
	"strings"
	"testing"

	"downlink/internal/strictyaml"
)

// A text that the reader would take minutes for is refused before it is read.
func TestYAMLThatIsNoListIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	_, err := parse(formatYAML, []byte("- {id: a, url: u, groups: &g [x]}\n- {id: b, url: u, groups: *g}\n"))
	if wrong, ok := errors.AsType[*strictyaml.Error](err); !ok || wrong.Fault != strictyaml.NotPlain {
		t.Errorf("an alias: %v", err)
	}
	if _, err := parse(formatYAML, []byte("# "+strings.Repeat("x", maxYAMLBytes)+"\n[]")); !errors.Is(err, errLong) {
		t.Errorf("too long: %v", err)
	}
	entries, err := parse(formatYAML, []byte("- {id: \"a*&b\", url: 'https://x/?a=*b&c=[[[[[[', groups: [a, b]}\n-\n  id: c\n  url: https://y/\n  groups:\n  - a\n  - b\n"))
	if err != nil || len(entries) != 2 {
		t.Errorf("a list: %v, %v", entries, err)
	}
}
