package downlink_test

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write cmd/downlink/deps.txt anew")

// linkedModules is where a change of what is linked into the binary shows up
// in a review.
const linkedModules = "cmd/downlink/deps.txt"

// TestLinkedModules compares the modules of the Linux binary with the list.
func TestLinkedModules(t *testing.T) {
	linux := []string{"GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0"}
	out, err := goList(linux, "-deps", "-f", "{{with .Module}}{{if .Version}}{{.Path}}@{{.Version}}{{end}}{{end}}", "./cmd/downlink")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(out)
	slices.Sort(lines)
	got := strings.Join(slices.Compact(lines), "\n") + "\n"

	if *update {
		if err := os.WriteFile(linkedModules, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(linkedModules)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("the binary links other modules than %s says. If that is meant, run \"make docs\" and say why in the commit.\n%s", linkedModules, diff)
	}
}
