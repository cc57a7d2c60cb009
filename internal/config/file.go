package config

import (
	"errors"
	"fmt"
	"os"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"downlink/internal/strictyaml"
)

// maxFileBytes is far above any real file of settings; it keeps a wrong path
// (a device, a dump) from being read into memory.
const maxFileBytes = 1 << 20

// A fileValue is what the file says for one key.
type fileValue struct {
	text string
	line int
}

// readFile reads a YAML file of settings: one flat mapping from known keys to
// scalars. It goes on after a mistake, so that all are found at once.
func readFile(path string, known map[string]Key) (map[string]fileValue, Problems) {
	info, err := os.Stat(path)
	if err == nil && info.Size() > maxFileBytes {
		err = fmt.Errorf("%d bytes are too many for a file of settings", info.Size())
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(path)
	}
	if err != nil {
		if pathErr, ok := errors.AsType[*os.PathError](err); ok {
			err = pathErr.Err
		}
		return nil, Problems{{Key: "config", Value: path, Reason: fmt.Sprintf("can't be read: %v", err)}}
	}
	return parseFile(path, data, known)
}

func parseFile(path string, data []byte, known map[string]Key) (map[string]fileValue, Problems) {
	file, err := strictyaml.Parse(data, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, Problems{syntaxProblem(path, err)}
	}
	if len(file.Docs) > 1 {
		return nil, Problems{{Key: "config", Value: path, Reason: "holds several YAML documents (---); write one"}}
	}
	if len(file.Docs) == 0 || file.Docs[0].Body == nil {
		return nil, nil // empty, or comments only
	}
	mapping, ok := asMapping(file.Docs[0].Body)
	if !ok {
		return nil, Problems{{Key: "config", Value: path, Reason: "isn't a list of settings; write one `key: value` a line"}}
	}
	values := make(map[string]fileValue, len(mapping))
	var problems Problems
	for _, pair := range mapping {
		name, line := pair.Key.String(), pair.Key.GetToken().Position.Line
		at := Origin{Source: FromFile, Where: fmt.Sprintf("%s:%d", path, line)}
		text, scalar := scalarText(pair.Value)
		_, isKnown := known[name]
		_, twice := values[name]
		switch {
		case !isKnown:
			problems = append(problems, Problem{Key: name, Origin: at, Reason: "is not a setting" + suggest(name, known)})
		case twice:
			problems = append(problems, Problem{Key: name, Origin: at, Reason: "stands twice in the file"})
		case !scalar:
			problems = append(problems, Problem{Key: name, Origin: at, Reason: "needs one plain value; allowed: " + known[name].Allowed})
		default:
			values[name] = fileValue{text: text, line: line}
		}
	}
	return values, problems
}

func asMapping(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	default:
		return nil, false
	}
}

// scalarText is the text of a plain value; null isn't one.
func scalarText(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, true
	default:
		return "", false
	}
}

func syntaxProblem(path string, err error) Problem {
	p := Problem{Key: "config", Value: path, Reason: "isn't valid YAML"}
	wrong, ok := errors.AsType[*strictyaml.Error](err)
	if !ok {
		return p
	}
	if wrong.Line > 0 {
		p.Value = fmt.Sprintf("%s:%d", path, wrong.Line)
	}
	switch {
	case wrong.Message != "":
		p.Reason += ": " + wrong.Message
	case wrong.Fault == strictyaml.NotPlain:
		p.Reason = string(wrong.Fault)
	}
	return p
}
