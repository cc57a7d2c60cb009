package downlink_test

import (
	"go/ast"
	"path"
	"slices"
	"strings"
	"testing"
)

// TestPackageComments: each package has exactly one comment that says what it
// owns, what it doesn't, and its one invariant; to its end.
func TestPackageComments(t *testing.T) {
	for _, p := range packages(t) {
		var commented []string
		for _, f := range p.files {
			if f.ast.Doc != nil {
				commented = append(commented, f.path)
				if text, _, _ := strings.Cut(f.ast.Doc.Text(), "\n\n\t"); !strings.HasSuffix(strings.TrimRight(text, "\n)"), ".") { // but for an example
					t.Errorf("the package comment in %s breaks off", f.path)
				}
			}
		}
		if len(p.files) > 0 && len(commented) != 1 {
			t.Errorf("package %s has %d package comments %v, want one", p.name, len(commented), commented)
		}
	}
}

// TestNoInit: what runs before main can't be given options, fail, or run twice.
func TestNoInit(t *testing.T) {
	for _, p := range packages(t) {
		for _, f := range slices.Concat(p.files, p.tests) {
			for _, decl := range f.ast.Decls {
				if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" && !generated(f.path) {
					t.Errorf("%s has an init function", f.path)
				}
			}
		}
	}
}

// TestPackageNames: a name that says nothing collects what belongs elsewhere.
func TestPackageNames(t *testing.T) {
	grabBags := []string{"util", "utils", "common", "helper", "helpers", "manager", "base", "misc", "shared", "types"}
	for _, p := range packages(t) {
		name := path.Base(p.name)
		if slices.Contains(grabBags, name) || strings.HasSuffix(name, "util") || strings.HasSuffix(name, "utils") {
			t.Errorf("package %s: name it for what it owns", p.name)
		}
	}
}

// TestLeakChecks: a package that starts goroutines proves in its tests that
// they end. One that is made for tests runs in those of others.
func TestLeakChecks(t *testing.T) {
	for _, p := range packages(t) {
		starts := slices.ContainsFunc(p.files, startsGoroutine)
		checks := slices.ContainsFunc(p.tests, func(f file) bool { return calls(f, "VerifyTestMain") })
		forTests := slices.ContainsFunc(p.files, importsTesting)
		if starts && !checks && !forTests {
			t.Errorf("package %s starts goroutines: call goleak.VerifyTestMain in its TestMain", p.name)
		}
	}
}

func startsGoroutine(f file) bool {
	found := false
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if _, ok := n.(*ast.GoStmt); ok {
			found = true
		}
		return !found
	})
	return found || calls(f, "Go") // sync.WaitGroup, errgroup.Group
}

func importsTesting(f file) bool {
	return slices.ContainsFunc(f.ast.Imports, func(spec *ast.ImportSpec) bool { return spec.Path.Value == `"testing"` })
}

// calls reports whether a file calls a method or a package's function by name.
func calls(f file, name string) bool {
	found := false
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if sel, ok := call.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == name {
				found = true
			}
		}
		return !found
	})
	return found
}
