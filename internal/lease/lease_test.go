package lease

import (
	"testing"
	"time"
)

func TestLive(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		deadline, now time.Time
		want          bool
	}{
		"for ever":          {time.Time{}, now, true},
		"before":            {now.Add(time.Second), now, true},
		"at the deadline":   {now, now, false},
		"after":             {now, now.Add(1), false},
		"far before":        {now.Add(time.Hour), now, true},
		"only a wall clock": {now.Add(time.Minute), now.Add(time.Hour).Round(0), false},
	} {
		if got := (Lease{Deadline: c.deadline}).Live(c.now); got != c.want {
			t.Errorf("%s: live is %v", name, got)
		}
	}
}

func TestNames(t *testing.T) {
	for name, good := range map[string]bool{
		"gateway-0.example:9090": true, "": false, "a b": false, "a\n": false, "é": false, string(make([]byte, 200)): false,
	} {
		if err := ValidateName(name); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestAProposalStandsByWhatIsHeard: the clock alone doesn't make it stand. Whoever
// was held up, or hasn't asked since, doesn't know that it still does.
func TestAProposalStandsByWhatIsHeard(t *testing.T) {
	const settle = 3 * time.Second
	v, begun := newView(1), time.Now()
	for after, want := range map[time.Duration]bool{0: false, settle - 1: false, settle: true, time.Hour: true} {
		v.meet(begun, begun, nil, settle, settle)
		v.propose([]string{"b"}, begun)
		v.meet(begun.Add(after), begun.Add(time.Hour), nil, 2*time.Hour, 0)
		if got := v.standing(0, settle); got != want {
			t.Errorf("asked %v after it came up: it stands: %v", after, got)
		}
	}
}
