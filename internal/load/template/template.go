// Package template owns texts with placeholders such as {device}: URLs, header
// fields and bodies of requests to any server. It owns no value and no
// escaping. Its invariant: filling one in allocates nothing but what its
// destination grows by, and an unknown name is an error before anything runs.
package template

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A Template is a text with placeholders. Its zero value is the empty text.
type Template struct {
	parts []part
}

// A part is a text, or a placeholder's name.
type part struct{ text, name string }

// A placeholder is a lower-case word in braces; the braces of a JSON object
// are followed by something else.
var placeholder = regexp.MustCompile(`\{[a-z][a-z0-9_]*\}`)

// Parse reads a template. known are the names that it may use.
func Parse(text string, known ...string) (Template, error) {
	var t Template
	at := 0
	for _, span := range placeholder.FindAllStringIndex(text, -1) {
		name := text[span[0]+1 : span[1]-1]
		if !slices.Contains(known, name) {
			return Template{}, fmt.Errorf("{%s} is no placeholder here; known are {%s}", name, strings.Join(known, "}, {"))
		}
		if at < span[0] {
			t.parts = append(t.parts, part{text: text[at:span[0]]})
		}
		t.parts = append(t.parts, part{name: name})
		at = span[1]
	}
	if at < len(text) {
		t.parts = append(t.parts, part{text: text[at:]})
	}
	return t, nil
}

// Uses reports whether the template has a placeholder.
func (t Template) Uses(name string) bool {
	return slices.ContainsFunc(t.parts, func(p part) bool { return p.name == name })
}

// Append appends the text, with each placeholder's value appended by value.
func (t Template) Append(b []byte, value func(b []byte, name string) []byte) []byte {
	for _, p := range t.parts {
		if p.name == "" {
			b = append(b, p.text...)
		} else {
			b = value(b, p.name)
		}
	}
	return b
}
