// Package strictyaml owns the reading of YAML files that a program may have to read
// while it runs. It doesn't know what they mean. Its invariants: no text makes the
// program panic, or takes more than a small multiple of its own size in time and
// memory; and an error repeats nothing of the text, in which a secret may stand.
package strictyaml

import (
	"errors"
	"fmt"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// A Fault is what is wrong with a text.
type Fault string

// The faults.
const (
	// NotUnderstood: it isn't YAML, or holds a member or a type that wasn't asked for.
	NotUnderstood Fault = "isn't understood"
	// NotPlain: the reader would take minutes for brackets that nest by the thousand,
	// and more memory than there is for aliases: a kilobyte of those can stand for a
	// thousand million values.
	NotPlain Fault = "has anchors, aliases, complex keys or deeply nested brackets, which nothing here needs"
)

// An Error is a fault and its line; 0: that isn't known.
type Error struct {
	Fault Fault
	Line  int
	// Message is the library's, if there is one. It may repeat a word of the text, and
	// isn't in Error: it is for files in which no secret stands.
	Message string
}

func (e *Error) Error() string { return e.Where() + " " + string(e.Fault) }

// Where is "line 3", or "it".
func (e *Error) Where() string {
	if e.Line == 0 {
		return "it"
	}
	return fmt.Sprintf("line %d", e.Line)
}

// Read decodes the text into what into points to, whose members must be all that
// the text has. The error is an *Error.
func Read(text []byte, into any) error {
	return guarded(text, func() error { return yaml.UnmarshalWithOptions(text, into, yaml.Strict()) })
}

// Parse is the text's tree. The error is an *Error.
func Parse(text []byte, options ...parser.Option) (file *ast.File, err error) {
	err = guarded(text, func() error {
		file, err = parser.ParseBytes(text, 0, options...)
		return err
	})
	return file, err
}

// guarded reads a text that is plain. Some that aren't YAML make the library panic.
func guarded(text []byte, read func() error) (err error) {
	defer func() {
		if recover() != nil {
			err = &Error{Fault: NotUnderstood}
		}
	}()
	if !plain(text) {
		return &Error{Fault: NotPlain}
	}
	err = read()
	if err == nil {
		return nil
	}
	wrong := &Error{Fault: NotUnderstood}
	if bad, ok := errors.AsType[yaml.Error](err); ok {
		wrong.Message = bad.GetMessage()
		if t := bad.GetToken(); t != nil && t.Position != nil {
			wrong.Line = t.Position.Line
		}
	}
	return wrong
}

// maxNested is how deep brackets may stand in one another: one for a list, one for
// an entry, one for what it lists, and one to spare.
const maxNested = 4

func plain(text []byte) bool {
	depth := 0
	for _, t := range lexer.Tokenize(string(text)) {
		switch t.Type {
		case token.AnchorType, token.AliasType, token.MergeKeyType, token.MappingKeyType:
			return false
		case token.SequenceEntryType: // "- - - …" is nested too
			if t.Prev != nil && t.Prev.Type == token.SequenceEntryType && t.Prev.Position.Line == t.Position.Line {
				return false
			}
		case token.SequenceStartType, token.MappingStartType:
			depth++
		case token.SequenceEndType, token.MappingEndType:
			depth--
		}
		if depth > maxNested {
			return false
		}
	}
	return true
}
