package watch

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseTarget(t *testing.T) {
	for text, want := range map[string]Target{
		"gw=12":     {Name: "gw", PIDs: []int{12}},
		"a b=3,1,3": {Name: "a b", PIDs: []int{1, 3}},
		"r=7+":      {Name: "r", PIDs: []int{7}, Children: true},
	} {
		got, err := ParseTarget(text)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%q: %v %s", text, err, diff)
		}
	}
	for _, text := range []string{"", "gw", "=1", "gw=", "gw=x", "gw=0", "gw=-1", "gw=1,,2", "gw=+"} {
		if got, err := ParseTarget(text); err == nil {
			t.Errorf("%q was taken for %v", text, got)
		}
	}
}

func read(t *testing.T, target Target) Use {
	t.Helper()
	u, err := Read(target, true)
	if errors.Is(err, ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestReadSeesWorkAndMemory(t *testing.T) {
	self := Target{Name: "self", PIDs: []int{os.Getpid()}}
	before := read(t, self)
	if before.PSS <= 1<<20 || before.RSS < before.PSS {
		t.Errorf("%+v", before)
	}
	held := make([]byte, 64<<20)
	for i := range held {
		held[i] = byte(i)
	}
	var after Use
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); { // until 100 ms of work were seen
		if after = read(t, self); after.CPU-before.CPU >= 0.1 {
			break
		}
	}
	if worked := after.CPU - before.CPU; worked < 0.1 || worked > 60 {
		t.Errorf("%.2f s of work were seen", worked)
	}
	if grown := after.PSS - before.PSS; grown < 60<<20 || int(held[5]) != 5 {
		t.Errorf("memory grew by %d bytes", grown)
	}
	if bytes, err := Slab(); err != nil || bytes < 1<<20 {
		t.Errorf("the kernel's small objects: %d %v", bytes, err)
	}
	if bytes, err := TCPMemory(); err != nil || bytes < 0 {
		t.Errorf("the kernel's memory: %d %v", bytes, err)
	}
}

func TestReadFindsDescendantsAndMissesTheDead(t *testing.T) {
	self := Target{Name: "self", PIDs: []int{os.Getpid()}, Children: true}
	read(t, self)
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	pid := child.Process.Pid
	if found := read(t, self).PIDs; !slices.Contains(found, pid) {
		t.Errorf("the child %d isn't among %v", pid, found)
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	if _, err := Read(Target{Name: "gone", PIDs: []int{pid}}, true); err == nil {
		t.Error("a process that has ended was read")
	}
}
