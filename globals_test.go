package downlink_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A checked package is one of ours with its types.
type checked struct {
	path  string
	fset  *token.FileSet
	files []*ast.File
	types *types.Package
	info  *types.Info
}

// TestNoMutablePackageVariables: two gateways in one process must not meet in
// a variable. A package variable may hold what is never changed after its
// declaration: an error, a compiled pattern, an embedded file, a table.
func TestNoMutablePackageVariables(t *testing.T) {
	for _, p := range checkedPackages(t) {
		if p.path == module+"/"+generatedDir {
			continue
		}
		for _, name := range p.types.Scope().Names() {
			if v, ok := p.types.Scope().Lookup(name).(*types.Var); ok && holdsState(v.Type()) {
				t.Errorf("%s: package variable %s holds state (%s): make it a field", p.fset.Position(v.Pos()), name, v.Type())
			}
		}
		for _, f := range p.files {
			ast.Inspect(f, func(n ast.Node) bool {
				for _, target := range changed(p.info, n) {
					if v := packageVar(p.info, target); v != nil {
						t.Errorf("%s: package variable %s is changed, or its address given away: make it a field", p.fset.Position(n.Pos()), v.Name())
					}
				}
				return true
			})
		}
	}
}

// TestPublicPackagesShowNothingInternal: what an importer of client or throttle
// can't import, it can't use.
func TestPublicPackagesShowNothingInternal(t *testing.T) {
	for _, p := range checkedPackages(t) {
		if p.path != module+"/client" && p.path != module+"/throttle" {
			continue
		}
		scope := p.types.Scope()
		for _, name := range scope.Names() {
			obj := scope.Lookup(name)
			if !obj.Exported() {
				continue
			}
			for _, shown := range surface(obj) {
				if strings.Contains(shown, module+"/internal/") {
					t.Errorf("%s.%s shows an internal type: %s", p.types.Name(), name, shown)
				}
			}
		}
	}
}

// surface is what an importer sees of an object: its own type, and the
// exported fields and methods of a named one.
func surface(obj types.Object) []string {
	named, ok := types.Unalias(obj.Type()).(*types.Named)
	if _, isType := obj.(*types.TypeName); !isType || !ok {
		return []string{obj.Type().String()}
	}
	var shown []string
	methods := types.NewMethodSet(types.NewPointer(named))
	for m := range methods.Methods() {
		if m.Obj().Exported() {
			shown = append(shown, m.Obj().Type().String())
		}
	}
	s, isStruct := named.Underlying().(*types.Struct)
	if !isStruct {
		return append(shown, named.Underlying().String())
	}
	for f := range s.Fields() {
		if f.Exported() {
			shown = append(shown, f.Type().String())
		}
	}
	return shown
}

// holdsState reports whether a variable of the type can only be there to be
// changed: a channel, a lock, an atomic, a pool, a metric, a client, or a
// struct of ours with one inside.
func holdsState(t types.Type) bool {
	if p, ok := t.Underlying().(*types.Pointer); ok {
		t = p.Elem()
	}
	if _, ok := t.Underlying().(*types.Chan); ok {
		return true
	}
	named, ok := types.Unalias(t).(*types.Named)
	if !ok || named.Obj().Pkg() == nil {
		return false
	}
	home := named.Obj().Pkg().Path()
	stateful := []string{"sync", "sync/atomic", "math/rand", "math/rand/v2", "net/http", prometheus + "/prometheus"}
	if slices.Contains(stateful, home) {
		return true
	}
	s, ok := t.Underlying().(*types.Struct)
	if !ok || !within(home, module) {
		return false
	}
	for f := range s.Fields() {
		if _, pointer := f.Type().Underlying().(*types.Pointer); !pointer && holdsState(f.Type()) {
			return true
		}
	}
	return false
}

// changed lists the expressions whose variable a node changes or could let
// others change.
func changed(info *types.Info, n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.AssignStmt:
		return n.Lhs
	case *ast.IncDecStmt:
		return []ast.Expr{n.X}
	case *ast.RangeStmt:
		return []ast.Expr{n.Key, n.Value}
	case *ast.UnaryExpr:
		if n.Op == token.AND {
			return []ast.Expr{n.X}
		}
	case *ast.CallExpr:
		if fn, ok := n.Fun.(*ast.Ident); ok && len(n.Args) > 0 && slices.Contains([]string{"delete", "clear", "copy"}, fn.Name) {
			return n.Args[:1]
		}
	case *ast.SelectorExpr: // a call of a pointer's method on a value takes its address
		if s := info.Selections[n]; s != nil && s.Kind() == types.MethodVal && takesAddress(s) {
			return []ast.Expr{n.X}
		}
	}
	return nil
}

func takesAddress(s *types.Selection) bool {
	recv := s.Obj().(*types.Func).Signature().Recv().Type()
	_, wantsPointer := recv.(*types.Pointer)
	_, isPointer := s.Recv().Underlying().(*types.Pointer)
	return wantsPointer && !isPointer && !s.Indirect()
}

// packageVar is the package variable that an expression is a part of, or nil.
func packageVar(info *types.Info, e ast.Expr) *types.Var {
	for e != nil {
		switch x := e.(type) {
		case *ast.Ident:
			return asPackageVar(info.Uses[x])
		case *ast.SelectorExpr:
			if v := asPackageVar(info.Uses[x.Sel]); v != nil {
				return v // of another package
			}
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.SliceExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		default:
			return nil
		}
	}
	return nil
}

func asPackageVar(obj types.Object) *types.Var {
	v, ok := obj.(*types.Var)
	if ok && v.Pkg() != nil && v.Parent() == v.Pkg().Scope() {
		return v
	}
	return nil
}

// typed is every package of ours with its types, checked once for all tests.
var typed = sync.OnceValues(checkAll)

func checkedPackages(t *testing.T) []checked {
	t.Helper()
	all, err := typed()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// checkAll type-checks against the compiler's export data for what is imported.
func checkAll() ([]checked, error) {
	type listed struct {
		ImportPath, Dir, Export string
		GoFiles                 []string
	}
	out, err := goList(nil, "-deps", "-export", "-json=ImportPath,Dir,Export,GoFiles", "./...")
	if err != nil {
		return nil, err
	}
	exports := map[string]string{}
	var ours []listed
	for dec := json.NewDecoder(strings.NewReader(out)); ; {
		var l listed
		err := dec.Decode(&l)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		exports[l.ImportPath] = l.Export
		if within(l.ImportPath, module) && len(l.GoFiles) > 0 {
			ours = append(ours, l)
		}
	}
	fset := token.NewFileSet()
	imported := importer.ForCompiler(fset, "gc", func(importPath string) (io.ReadCloser, error) { return os.Open(exports[importPath]) }) // each package once, for all of ours
	all := make([]checked, 0, len(ours))
	for _, l := range ours {
		c, err := check(fset, imported, l.ImportPath, l.Dir, l.GoFiles)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

func check(fset *token.FileSet, imported types.Importer, importPath, dir string, names []string) (checked, error) {
	c := checked{
		path: importPath,
		fset: fset,
		info: &types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{}},
	}
	for _, name := range names {
		f, err := parser.ParseFile(c.fset, filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return c, err
		}
		c.files = append(c.files, f)
	}
	conf := types.Config{Importer: imported}
	p, err := conf.Check(importPath, c.fset, c.files, c.info)
	if err != nil {
		return c, fmt.Errorf("%s: %w", importPath, err)
	}
	c.types = p
	return c, nil
}
