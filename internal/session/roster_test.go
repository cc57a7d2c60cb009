package session

import "testing"

// TestWithdrawn: whose credential stands no longer is ended when the roster is
// told to look, or at once if it comes late; all others stay.
func TestWithdrawn(t *testing.T) {
	var r Roster
	stands := true
	add := func(valid func() bool) *Session {
		s := New("a", new(wakes), &Options{})
		if !r.Add(s, valid) {
			t.Fatal("it isn't let in")
		}
		return s
	}
	unasked, asked, other := add(nil), add(func() bool { return stands }), add(func() bool { return true })
	r.EndWithdrawn()
	if asked.Ended() != "" {
		t.Errorf("ended as %q although it stands", asked.Ended())
	}
	stands = false
	r.EndWithdrawn()
	late := add(func() bool { return stands })
	for _, c := range []struct {
		s    *Session
		want EndReason
	}{{unasked, ""}, {asked, Withdrawn}, {other, ""}, {late, Withdrawn}} {
		if got := c.s.Ended(); got != c.want {
			t.Errorf("ended as %q, want %q", got, c.want)
		}
	}
}
