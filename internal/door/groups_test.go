package door

import "testing"

// The value of no groups is written out, because nearly every device has it.
func TestTheValueOfNoGroups(t *testing.T) {
	if want := digest(nil); noGroups != want {
		t.Errorf("it is %q, should be %q", noGroups, want)
	}
}
