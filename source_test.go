package downlink_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// module is the path in go.mod.
const module = "downlink"

// A file is one Go file of the module.
type file struct {
	path string // from the module's root, with slashes
	ast  *ast.File
}

// A pkg is one directory with Go files.
type pkg struct {
	name  string // as in the table of rules; "." for the root
	files []file
	tests []file // both of the package itself and of its external tests
}

// tree lists every file of the repository, from its root and with slashes,
// without what git and the builds keep for themselves.
func tree(t *testing.T) []string {
	t.Helper()
	names, err := walk()
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func walk() (found []string, err error) {
	ignored := []string{".git", "bin", "downlink", "downlink-data", "node_modules"}
	err = filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case slices.Contains(ignored, name) && name != ".":
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		case d.Type().IsRegular():
			found = append(found, filepath.ToSlash(name))
		}
		return nil
	})
	return found, err
}

// parsed is every Go file of this module, read once for all tests: under the
// race detector each time costs seconds.
var parsed = sync.OnceValues(parseAll)

// packages are all of this module; tools with a module of their own are theirs.
func packages(t *testing.T) []pkg {
	t.Helper()
	all, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func parseAll() ([]pkg, error) {
	byDir := map[string]*pkg{}
	names, err := walk()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		dir := path.Dir(name)
		if path.Ext(name) != ".go" || strings.Contains(name, "testdata/") || inOtherModule(dir) {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		p := byDir[dir]
		if p == nil {
			p = &pkg{name: shortName(module + "/" + dir)}
			byDir[dir] = p
		}
		if f := (file{name, parsed}); strings.HasSuffix(name, "_test.go") {
			p.tests = append(p.tests, f)
		} else {
			p.files = append(p.files, f)
		}
	}
	all := make([]pkg, 0, len(byDir))
	for _, p := range byDir {
		all = append(all, *p)
	}
	slices.SortFunc(all, func(a, b pkg) int { return strings.Compare(a.name, b.name) })
	return all, nil
}

// generatedDir holds code that nobody writes (make proto). It is as its generator
// likes it, and shares state with no other package.
const generatedDir = "internal/governor/rpc/governorv1"

// generated reports whether a file, by its path from the root, is such code.
func generated(name string) bool { return path.Dir(name) == generatedDir }

// inOtherModule reports whether a directory below the root lies under another go.mod.
func inOtherModule(dir string) bool {
	for ; dir != "."; dir = path.Dir(dir) {
		if _, err := os.Stat(path.Join(dir, "go.mod")); err == nil {
			return true
		}
	}
	return false
}

// shortName is a package's name in the table of rules.
func shortName(importPath string) string {
	return strings.TrimPrefix(strings.TrimPrefix(importPath, module+"/"), "internal/")
}

// goList runs "go list" in the module's root, with env beside our own environment.
func goList(env []string, args ...string) (string, error) {
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go list %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out), nil
}
