// Package auth owns the proof of who a device is: it finds the credential in a
// request (methods.go: a client certificate, a token, or the word of a proxy
// in front), has it checked, and says device, groups and expiry. It doesn't decide
// what is said to the client beyond a failure's text, and knows no session; how
// signed tokens are checked is jwt's. Its invariant: the first credential that is
// offered decides, and none is believed before it was proven. No part of a token
// gets into an error, a log line or a metric.
package auth

import (
	"slices"
	"time"

	"downlink/internal/event"
)

// An Identity is what a credential proves. It shares no memory with a token.
type Identity struct {
	By      string // the method that has proven it: "jwt", "tokens", "mtls" or "proxy"
	Device  string
	Groups  []string  // sorted, none twice
	Expires time.Time // from then on the credential isn't accepted any more; zero: it is for ever
	// Valid reports whether a credential that was accepted once still stands:
	// it is asked again when files have changed. Nil: it isn't asked. Cheap, and
	// safe for concurrent use.
	Valid func() bool
}

// maxGroups bounds what one credential can make a shard index.
const maxGroups = 64

// tidy is groups sorted, none twice, or why they can't be; that completes the
// sentence "<what names them> …".
func tidy(groups []string) (tidied []string, why string) {
	for _, g := range groups {
		if event.ValidateGroup(g) != nil {
			return nil, "holds something that is no group: 1 to 127 bytes of text that don't begin with @ (write a group's name without it)"
		}
	}
	slices.Sort(groups)
	groups = slices.Compact(groups)
	if len(groups) > maxGroups {
		return nil, "names more than 64 groups"
	}
	return slices.Clip(groups), ""
}

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }
