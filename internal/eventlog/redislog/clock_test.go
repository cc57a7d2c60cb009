package redislog

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// TestOnlyTheServersClockCounts: what is appended, judged, swept and pruned
// depends on Redis's clock alone. A bound from the clock of a gateway that is
// an hour ahead would remove the event that it has just acknowledged. So the
// package asks its own clock for time limits, measures, the rhythm of the guard,
// whose word counts about who serves what, how long a replica is waited for, and
// how lately the tail has read everything.
func TestOnlyTheServersClockCounts(t *testing.T) {
	may := []string{"assert", "reassert", "run", "doMulti", "do", "submit", "move", "survey", "clock", "source", "watchServer", "appoint", "dropLocked", "watched", "fetch", "wait", "elapsed", "load"}
	packages, err := parser.ParseDir(token.NewFileSet(), ".", nil, 0) //nolint:staticcheck // no types are needed
	if err != nil {
		t.Fatal(err)
	}
	for name, file := range packages["redislog"].Files {
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || slices.Contains(may, f.Name.Name) || strings.HasSuffix(name, "_test.go") {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "Now" {
					t.Errorf("%s: %s asks this machine's clock", name, f.Name.Name)
				}
				return true
			})
		}
	}
}
