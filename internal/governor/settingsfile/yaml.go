package settingsfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// toJSON turns a file into the form in which settings are written everywhere else.
// Its errors repeat nothing of the file.
func toJSON(text []byte) (out []byte, err error) {
	// A file that is being written anew is empty for a moment.
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, errors.New("it is empty; to leave everything as it is by itself, write {}")
	}
	// Some texts that aren't YAML make the library panic, which a file must not do to
	// a program that runs.
	defer func() {
		if recover() != nil {
			err = errShape
		}
	}()
	if !plain(text) {
		return nil, errShape
	}
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, lineOf(err)
	}
	if len(file.Docs) != 1 || file.Docs[0].Body == nil {
		return nil, errShape
	}
	var v any
	if err := yaml.UnmarshalWithOptions(text, &v, yaml.Strict()); err != nil {
		return nil, lineOf(err)
	}
	if out, err = json.Marshal(v); err != nil { // .inf, .nan
		return nil, errShape
	}
	return out, nil
}

// lineOf names the line of a mistake, if it is known.
func lineOf(err error) error {
	if bad, ok := errors.AsType[yaml.Error](err); ok {
		if t := bad.GetToken(); t != nil && t.Position != nil {
			return fmt.Errorf("line %d: %w", t.Position.Line, errShape)
		}
	}
	return errShape
}

// maxNested is how deep brackets may stand in one another: signals, one of them,
// its levers, and one to spare.
const maxNested = 4

// plain reports whether a YAML text is of the simple kind that settings need. The
// reader would take minutes for brackets that nest by the thousand, and more memory
// than there is for aliases.
func plain(text []byte) bool {
	depth := 0
	for _, t := range lexer.Tokenize(string(text)) {
		switch t.Type {
		case token.AnchorType, token.AliasType, token.MergeKeyType, token.MappingKeyType, token.TagType:
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
