// Package openapitest holds answers against the description of the back end's
// port. Only tests import it; what is answered is theirs. Its invariant: an
// answer passes only if the document has its status, its media type and its form.
package openapitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"downlink/internal/openapi"
)

// An Object is a part of the document.
type Object = map[string]any

// A Document is the description, and which answers of it have been seen.
type Document struct {
	root Object
	seen map[string]bool
}

// Read reads the document that is served.
func Read(t *testing.T) *Document {
	t.Helper()
	var doc, viaJSON Object
	if err := yaml.Unmarshal([]byte(openapi.Text()), &doc); err != nil {
		t.Fatal(err)
	}
	// Through JSON, so that numbers have the type they have in an answer.
	data, err := json.Marshal(doc)
	if err == nil {
		err = json.Unmarshal(data, &viaJSON)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &Document{root: viaJSON, seen: make(map[string]bool)}
}

// Dig is what stands under these names, one inside the other; nil if nothing.
func (d *Document) Dig(names ...string) any { return Dig(d.root, names...) }

// Check holds a value against a schema of the document.
func (d *Document) Check(schema, v any) error { return check(d.root, schema, v) }

// Dig is what stands in o under these names, one inside the other.
func Dig(o any, path ...string) any {
	for _, p := range path {
		m, ok := o.(Object)
		if !ok {
			return nil
		}
		o = m[p]
	}
	return o
}

// check holds a value against a schema: the words that the document uses.
func check(doc Object, schema any, v any) error {
	s, _ := schema.(Object)
	if ref, ok := s["$ref"].(string); ok {
		return check(doc, Dig(doc, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...), v)
	}
	if alternatives, ok := s["oneOf"].([]any); ok {
		fits := 0
		for _, a := range alternatives {
			if check(doc, a, v) == nil {
				fits++
			}
		}
		if fits != 1 {
			return fmt.Errorf("%v fits %d alternatives", v, fits)
		}
	}
	switch s["type"] {
	case "string":
		text, ok := v.(string)
		if p, has := s["pattern"].(string); !ok || (has && !regexp.MustCompile(p).MatchString(text)) {
			return fmt.Errorf("%v isn't such a string: %v", v, s)
		}
	case "integer":
		n, ok := v.(float64)
		if least, has := s["minimum"].(float64); !ok || n != float64(int(n)) || (has && n < least) {
			return fmt.Errorf("%v isn't such an integer: %v", v, s)
		}
	case "boolean":
		if _, ok := v.(bool); !ok {
			return fmt.Errorf("%v isn't a boolean", v)
		}
	case "array":
		list, ok := v.([]any)
		if !ok {
			return fmt.Errorf("%v isn't an array", v)
		}
		for _, e := range list {
			if err := check(doc, s["items"], e); err != nil {
				return err
			}
		}
	}
	return checkMembers(doc, s, v)
}

func checkMembers(doc, s Object, v any) error {
	m, isObject := v.(Object)
	if s["type"] == "object" && !isObject {
		return fmt.Errorf("%v isn't an object", v)
	}
	required, _ := s["required"].([]any)
	for _, name := range required {
		if _, ok := m[name.(string)]; !ok {
			return fmt.Errorf("%v has no %v", v, name)
		}
	}
	properties, _ := s["properties"].(Object)
	for name, member := range m {
		p, known := properties[name]
		if !known && s["additionalProperties"] == false {
			return fmt.Errorf("%s isn't in the schema", name)
		}
		if err := check(doc, p, member); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// Answer checks an answer to a path of the document, with the names of its
// parameters in braces, and notes that it has been seen. Headers that are said
// to be optional may be missing.
func (d *Document) Answer(t *testing.T, what, path, method string, status int, header http.Header, body []byte) {
	t.Helper()
	method = strings.ToLower(method)
	response := d.Dig("paths", path, method, "responses", fmt.Sprint(status))
	if response == nil {
		t.Errorf("%s: %s %s answers %d, which isn't documented: %s", what, method, path, status, body)
		return
	}
	if ref, ok := Dig(response, "$ref").(string); ok {
		response = d.Dig(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
	}
	d.seen[key(path, method, fmt.Sprint(status))] = true
	headers, _ := Dig(response, "headers").(Object)
	for name, h := range headers {
		if header.Get(name) == "" && Dig(h, "required") == true {
			t.Errorf("%s: no header %s", what, name)
		}
	}
	media, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	schema := Dig(response, "content", media, "schema")
	if schema == nil && len(body) == 0 && Dig(response, "content") == nil {
		return
	}
	if schema == nil {
		t.Errorf("%s: %s %s answers %d as %q, which isn't documented", what, method, path, status, media)
		return
	}
	d.values(t, what, schema, media, body)
}

func (d *Document) values(t *testing.T, what string, schema any, media string, body []byte) {
	t.Helper()
	values := [][]byte{body}
	if media == "application/x-ndjson" {
		values = slices.Collect(bytes.Lines(body))
	}
	for _, text := range values {
		var v any = string(text)
		if strings.Contains(media, "json") {
			if err := json.Unmarshal(text, &v); err != nil {
				t.Errorf("%s: %v in %s", what, err, text)
			}
		}
		if err := d.Check(schema, v); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// WantAllSeen fails for each documented answer of these paths that no call of
// Answer has had.
func (d *Document) WantAllSeen(t *testing.T, paths ...string) {
	t.Helper()
	for _, path := range paths {
		operations, _ := d.Dig("paths", path).(Object)
		if len(operations) == 0 {
			t.Errorf("%s isn't documented", path)
		}
		for method := range operations {
			statuses, _ := Dig(operations, method, "responses").(Object)
			for status := range statuses {
				if !d.seen[key(path, method, status)] {
					t.Errorf("%s %s %s is documented, and no test has seen it", method, path, status)
				}
			}
		}
	}
}

func key(path, method, status string) string { return path + " " + method + " " + status }
