package publish

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestDepthIsBoundedAsInTheDecoder(t *testing.T) {
	for _, depth := range []int{maxDepth, maxDepth + 1} {
		text := strings.Repeat("[", depth) + strings.Repeat("]", depth)
		s := scanner{text: text}
		if ok := s.skip(); ok != json.Valid([]byte(text)) {
			t.Errorf("depth %d: valid is %v for the scanner", depth, ok)
		}
	}
}

// FuzzScanner holds the scanner against encoding/json: both take the same
// texts, and the values of an object are the same.
func FuzzScanner(f *testing.F) {
	for _, s := range []string{
		`{"a":[1,-0,2.50,1e5,1E+5,1e-5,{"b":"\"}]"}],"c":{}}`, `01`, `-`, `1.`, `.5`, `1e`, `+1`, `tru`, `true `, `"\u12g4"`, `"\x"`, "\"\t\"", `[1,]`, `[,1]`,
		`{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `[}`, `{]`, `{"a":1]`, `[1}`, `[] []`, ``, ` `, "\x00", "1\x00", `"\ud800"`, "[\"\xff\"]", `{1:2}`, `nulll`, `"a`, `"\`, `"\u00`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			return
		}
		s := scanner{text: text}
		ok := s.skip() && s.next() == 0 && s.at == len(text)
		if ok != json.Valid([]byte(text)) {
			t.Fatalf("%.200q: valid is %v for the scanner", text, ok)
		}
		got := map[string]string{}
		err := walk(text, func(name, raw string) error {
			got[name] = raw
			return nil
		})
		if err != nil {
			return
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatalf("%.200q is walked, but %v", text, err)
		}
		for name, raw := range want {
			if got[name] != string(raw) {
				t.Fatalf("%.200q: %q is %q, want %q", text, name, got[name], raw)
			}
		}
	})
}
