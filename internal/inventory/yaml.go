package inventory

import (
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"
)

// maxNested is how deep brackets may stand in one another: one for the list, one
// for a device, one for its groups, and one to spare.
const maxNested = 4

// maxYAMLBytes bounds a list in YAML: the reader needs a hundred times a text's
// size in memory, and seconds for each megabyte.
const maxYAMLBytes = 8 << 20

// plain reports whether a YAML text is of the simple kind that a list of devices
// needs. The reader would take minutes for brackets that nest by the thousand,
// and more memory than there is for aliases: a kilobyte of those can stand for
// a thousand million groups.
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
