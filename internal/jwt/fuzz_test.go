package jwt

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// FuzzMembers holds the walk against encoding/json: the same members with the
// same values, the last of each name.
func FuzzMembers(f *testing.F) {
	for _, s := range []string{
		`{}`, ` { } `, `{"a":1}`, `{"a":[1,{"b":"]}"}],"c":"\"}\\"} `, `{"\u0061":null,"a":true}`, `[]`, `null`, `{"a":-1.5e3 , "b" : [ ] }`,
		`{"a":"\ud800"}`, "{\"a\":\"\xff\"}", `{"a":1}{}`, `{"":{"":{}}}`, `{"a":[[["x"]],[]]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		want := map[string]json.RawMessage{}
		valid := utf8.Valid(data) && json.Unmarshal(data, &want) == nil && !bytes.Equal(bytes.TrimSpace(data), []byte("null"))
		got := map[string]json.RawMessage{}
		if ok := members(data, func(name, value []byte) { got[string(name)] = value }); ok != valid {
			t.Fatalf("ok is %v, want %v", ok, valid)
		}
		if !valid {
			return
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
		for name, value := range got {
			compareValue(t, name, value)
		}
	})
}

// compareValue reads a value as a string and as a list in both ways.
func compareValue(t *testing.T, name string, value []byte) {
	t.Helper()
	var text string
	isText := value[0] == '"' && json.Unmarshal(value, &text) == nil
	if isText && strings.Contains(text, "\uFFFD") && !bytes.Contains(value, []byte("\uFFFD")) && !bytes.Contains(bytes.ToLower(value), []byte(`\ufffd`)) {
		isText, text = false, "" // half of a surrogate pair
	}
	if s, ok := Value(value).Text(); ok != isText || s != text {
		t.Errorf("%q: %q %v, want %q %v", name, s, ok, text, isText)
	}
	var want []json.RawMessage
	isList := value[0] == '[' && json.Unmarshal(value, &want) == nil
	var got []json.RawMessage
	ok := elements(value, func(v []byte) { got = append(got, v) })
	if ok != isList || len(got) != len(want) {
		t.Fatalf("%q: %q %v, want %q %v", name, got, ok, want, isList)
	}
	for i := range want {
		if !bytes.Equal(got[i], want[i]) {
			t.Errorf("%q: %q, want %q", name, got[i], want[i])
		}
	}
}

// FuzzToken: no text but those that were signed is accepted, and none is
// repeated in an error.
func FuzzToken(f *testing.F) {
	v := verifier(f, nil)
	good := hs256(f, map[string]any{"groups": []string{"a"}})
	for _, s := range []string{good, good + ".", good[:40], "a.b.c", "..", encode(`{"alg":"none"}`) + "." + encode(`{"sub":"a","exp":9999999999}`) + "."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		_, _, err := v.Check(t.Context(), text)
		if err == nil && text != good {
			t.Errorf("%q is accepted", text)
		}
		if err != nil && len(text) > 12 && strings.Contains(err.Error(), text) {
			t.Errorf("the error holds the token: %v", err)
		}
	})
}
