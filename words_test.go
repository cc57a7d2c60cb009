package downlink_test

import (
	"strings"
	"testing"

	"downlink/internal/auth"
	"downlink/internal/dial"
	"downlink/internal/door"
	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/session"
	"downlink/internal/ticket"
)

// TestEveryWordIsExplained: whoever searches the troubleshooting page for a
// word of a metric, header or log line finds it.
func TestEveryWordIsExplained(t *testing.T) {
	page := read(t, "docs/operate/troubleshooting.md")
	heading := func(kind, word string) {
		if !strings.Contains(page, "\n### "+word+"\n") {
			t.Errorf("docs/operate/troubleshooting.md has no heading for the %s %q", kind, word)
		}
	}
	for _, r := range session.EndReasons() {
		heading("end", string(r))
	}
	for _, r := range door.Refusals() {
		heading("refusal", string(r))
	}
	heading("outcome", door.Rejected)
	heading("outcome", door.Revoked)
	for _, f := range auth.Failures() {
		heading("failure", string(f))
	}
	for _, f := range ticket.Failures() {
		heading("failure", string(f))
	}
	for _, r := range event.Reasons() {
		heading("resync", string(r))
	}
	row := func(kind, word string) {
		if !strings.Contains(page, "\n| `"+word+"` |") {
			t.Errorf("docs/operate/troubleshooting.md doesn't explain the %s %q", kind, word)
		}
	}
	for _, r := range dial.Results() {
		row("attempt", string(r))
	}
	for _, e := range dial.Ends() {
		row("end of a dialled call", string(e))
	}
	for _, f := range eventlog.Faults() {
		if !strings.Contains(page, "\n| `"+string(f)+"` |") {
			t.Errorf("docs/operate/troubleshooting.md doesn't explain the fault %q", f)
		}
	}
}
