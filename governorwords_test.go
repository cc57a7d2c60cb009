package downlink_test

import (
	"os"
	"strings"
	"testing"

	"downlink/internal/governor"
)

// TestWordsOfTheGovernorAreExplained: each word that "downlink governor show", a log
// line or a metric's label has for how a signal stands, or for what a lever did, is on
// the page that an operator looks at.
func TestWordsOfTheGovernorAreExplained(t *testing.T) {
	const page = "docs/operate/governor.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, v := range governor.Verdicts() {
		words = append(words, string(v))
	}
	for _, k := range governor.Kinds() {
		words = append(words, string(k))
	}
	if len(words) < 13 {
		t.Fatalf("found %q", words)
	}
	for _, w := range words {
		if !strings.Contains(string(text), "`"+w+"`") {
			t.Errorf("%s doesn't explain `%s`", page, w)
		}
	}
}
