package fdtable

import (
	"os"
	"regexp"
	"strconv"
	"testing"
)

// size is the number of descriptors that the table has room for (proc(5)).
func size(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^FDSize:\s*(\d+)$`).FindSubmatch(status)
	if m == nil {
		t.Fatalf("no FDSize in %s", status)
	}
	n, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func open(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

func TestGrow(t *testing.T) {
	before, opened := size(t), open(t)
	for _, n := range []int{-1, 0, 1, before, 1 << 30} { // 1<<30: the bound counts, or the process's limit, whichever is lower
		Grow(n)
	}
	Grow(4 * before)
	if got := size(t); got < 4*before || got > most {
		t.Errorf("the table has room for %d descriptors, want %d", got, 4*before)
	}
	if got := open(t); got != opened {
		t.Errorf("%d descriptors are open, %d were", got, opened)
	}
}
