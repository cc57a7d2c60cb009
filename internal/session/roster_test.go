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

// TestClosed: a closed roster lets nobody in, and gives those that are there; it
// can be opened again.
func TestClosed(t *testing.T) {
	var r Roster
	add := func() *Session {
		s := New("a", new(wakes), &Options{})
		if !r.Add(s, nil) {
			return nil
		}
		return s
	}
	for range 3 {
		add()
	}
	ended := add()
	ended.EndWith(Draining, 0)
	everybody := func(*Session) bool { return true }
	for n, want := range map[int]int{-1: 0, 0: 0, 2: 2, 9: 3} {
		if got := r.Some(n, everybody); len(got) != want {
			t.Errorf("of three that live %d are %d", n, len(got))
		}
	}
	if got := r.Some(9, func(*Session) bool { return false }); len(got) != 0 {
		t.Errorf("%d are unwanted", len(got))
	}
	if all := r.Close(); len(all) != 4 || add() != nil || r.Came() != 4 {
		t.Errorf("%d are there, %d have come", len(all), r.Came())
	}
	r.Reopen()
	if add() == nil || r.Came() != 5 {
		t.Errorf("%d have come", r.Came())
	}
}

// TestPendingOfAll: what waits is counted until it is taken.
func TestPendingOfAll(t *testing.T) {
	r := newRig(t, roomy)
	var all Roster
	if bytes, n := all.Pending(); bytes != 0 || n != 0 {
		t.Errorf("nobody is there: %d bytes of %d", bytes, n)
	}
	all.Add(r.s, nil)
	all.Add(New("idle", new(wakes), &Options{}), nil)
	r.event("one")
	if bytes, n := all.Pending(); n != 1 || bytes < 2 || bytes != int64(r.s.View().Bytes) {
		t.Errorf("%d bytes of %d sessions; the session has %d", bytes, n, r.s.View().Bytes)
	}
	r.s.Next(nil, 1<<20)
	if bytes, n := all.Pending(); bytes != 0 || n != 0 {
		t.Errorf("all was taken: %d bytes of %d", bytes, n)
	}
}
