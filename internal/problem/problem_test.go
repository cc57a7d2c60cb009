package problem_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"downlink/internal/problem"
)

// Every Code that the source declares has a row in the table, and a chapter in
// the reference.
func TestEveryCodeHasAKindAndAChapter(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "kinds.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/reference/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[problem.Code]problem.Kind{}
	for _, k := range problem.Kinds() {
		if kinds[k.Code].Code != "" || k.Title == "" || k.Hint == "" || k.Meaning == "" || k.Status < 400 || k.Status > 599 {
			t.Errorf("%+v", k)
		}
		kinds[k.Code] = k
	}
	declared := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		typ, _ := spec.Type.(*ast.Ident)
		value, isText := spec.Values[0].(*ast.BasicLit)
		if typ == nil || typ.Name != "Code" || !isText {
			return true
		}
		declared++
		code, err := strconv.Unquote(value.Value)
		if err != nil || kinds[problem.Code(code)].Code == "" {
			t.Errorf("%s has no row in the table", spec.Names[0].Name)
		}
		if !strings.Contains(string(page), "\n## "+code+"\n") {
			t.Errorf("%s has no chapter in docs/reference/errors.md; run `make docs`", code)
		}
		return true
	})
	if declared != len(kinds) {
		t.Errorf("%d codes are declared, the table has %d", declared, len(kinds))
	}
}

func TestWrite(t *testing.T) {
	a := httptest.NewRecorder()
	problem.Write(a, problem.New(problem.EventTooLarge, "5 bytes").At("payload"))
	var got map[string]any
	if err := json.Unmarshal(a.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"type": "urn:downlink:problem:event-too-large", "title": "The event is too large", "status": 413.0,
		"detail": "5 bytes", "field": "payload", "hint": got["hint"],
	}
	if diff := cmp.Diff(want, got); diff != "" || got["hint"] == "" || a.Code != 413 || a.Header().Get("Content-Type") != problem.ContentType {
		t.Errorf("%d %v %s", a.Code, a.Header(), diff)
	}
}

func TestRetryAfterIsSpread(t *testing.T) {
	seen := map[string]bool{}
	for range 200 {
		a := httptest.NewRecorder()
		problem.Write(a, problem.New(problem.LogUnavailable, ""))
		n, err := strconv.Atoi(a.Header().Get("Retry-After"))
		if err != nil || n < 1 || n > 5 {
			t.Fatalf("Retry-After %q", a.Header().Get("Retry-After"))
		}
		seen[strconv.Itoa(n)] = true
	}
	if len(seen) != 5 {
		t.Errorf("only %v", seen)
	}
}

func TestWhatCantBeEncodedIsAnInternalProblem(t *testing.T) {
	a := httptest.NewRecorder()
	problem.WriteAs(a, 400, func() {})
	if a.Code != 500 || !strings.Contains(a.Body.String(), "urn:downlink:problem:internal") {
		t.Errorf("%d %s", a.Code, a.Body)
	}
	if d := problem.New("no-such-code", "x"); d.Code() != problem.Internal || d.Error() == "" {
		t.Errorf("%+v", d)
	}
}
