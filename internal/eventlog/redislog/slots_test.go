package redislog

import (
	"strings"
	"testing"
)

// The values are those of CLUSTER KEYSLOT.
func TestSlotOf(t *testing.T) {
	for key, want := range map[string]int{
		"": 0, "123456789": 12739, "foo": 12182, "{foo}bar": 12182, "x{foo}{bar}": 12182, "pos-ev:{foo}:17": 12182,
		"foo{}{bar}": 8363, "foo{{bar}}zap": 4015,
	} {
		if got := slotOf(key); got != want {
			t.Errorf("slot of %q is %d, want %d", key, got, want)
		}
	}
}

// The tags are part of the log's format: other numbers are another log.
func TestTagsStayTheSame(t *testing.T) {
	if got, want := strings.Join(tagsOf(16), " "), "18 3 61 58 19 2 60 59 102 1 63 49 103 0 62 48"; got != want {
		t.Errorf("tags %s, want %s", got, want)
	}
}

func TestTagsSpreadEvenly(t *testing.T) {
	for _, groups := range []int{1, 2, 3, 4, 8, 16, 24, 32, 64, maxGroups} {
		tags := tagsOf(groups)
		for masters := 1; masters <= 8; masters++ {
			each := make([]int, masters)
			for _, tag := range tags {
				for m := range masters { // as redis-cli splits the slots
					if slot := slotOf(tag); slot >= m*slots/masters && slot < (m+1)*slots/masters {
						each[m]++
					}
				}
			}
			for _, n := range each {
				if n < groups/masters-1 || n > groups/masters+2 {
					t.Errorf("%d groups on %d masters: %v", groups, masters, each)
					break
				}
			}
			if groups%masters == 0 && each[0] != groups/masters {
				t.Errorf("%d groups on %d masters: %v", groups, masters, each)
			}
		}
	}
}
