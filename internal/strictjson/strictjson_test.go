package strictjson

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	for text, want := range map[string]Error{
		`{"a":"x","n":1,"list":["y"]}`:          {},
		" {} \n":                                {},
		`{"a":null}`:                            {},
		`{"a":"x","a":"y"}`:                     {Twice, "a"},
		`{"a":"x","\u0061":"y"}`:                {Twice, "a"},
		`{"A":"x"}`:                             {Unknown, "A"},
		`{"b":{"a":"x"}}`:                       {Unknown, "b"},
		`{"` + strings.Repeat("é", 40) + `":1}`: {Unknown, strings.Repeat("é", 32) + "…"},
		`{"a":1}`:                               {WrongKind, "a"},
		`{"n":1.5}`:                             {WrongKind, "n"},
		`{"n":99999999999999999999}`:            {WrongKind, "n"},
		`{"list":["y",1]}`:                      {WrongKind, "list"},
		`{"a":"\ud83d\ude00"}`:                  {},
		`{"a":"\ud83d"}`:                        {WrongKind, "a"},
		`{"list":["\ud83d","\ude00"]}`:          {WrongKind, "list"},
		``:                                      {Fault: NoObject},
		` `:                                     {Fault: NoObject},
		`null`:                                  {Fault: NoObject},
		`[{"a":"x"}]`:                           {Fault: NoObject},
		`{"a":"x"}{"a":"y"}`:                    {Fault: NoObject},
		`{"a":"x"`:                              {Fault: NoObject},
		"{\"a\":\"\xff\"}":                      {Fault: NoObject},
		"\xef\xbb\xbf{}":                        {Fault: NoObject},
		`{"a":"x",}`:                            {Fault: NoObject},
	} {
		var a string
		var n int64
		var list []string
		err := Read([]byte(text), map[string]any{"a": &a, "n": &n, "list": &list})
		got, wrong := errors.AsType[*Error](err)
		if wrong != (want.Fault != "") || wrong && *got != want {
			t.Errorf("%s: %v, want %v", text, err, want)
		}
	}
}

func TestPick(t *testing.T) {
	var a string
	err := Pick([]byte(`{"A":"no","b":1,"b":2,"c":{"a":"no"},"a":"yes"}`), map[string]any{"a": &a})
	if err != nil || a != "yes" {
		t.Errorf("%q %v", a, err)
	}
	if err := Pick([]byte(`{"a":"x","a":"x"}`), map[string]any{"a": &a}); err == nil {
		t.Error("a member that counts stands twice, and the object is taken")
	}
}

func TestHalfPair(t *testing.T) {
	for text, want := range map[string]bool{
		``: false, `"\\ud800"`: false, `"\u00e9\n\"\/"`: false, `"\ud7ff\ue000"`: false,
		`"\ud83d\ude00"`: false, `"\uD83D\uDE00\uD83D\uDE00"`: false, `["\udbff\udfff","\n"]`: false,
		`"\ud800"`: true, `"\uDFFF"`: true, `"\udbff\udbff\udfff"`: true, `"\ude00\ud83d"`: true, `"\ud83dx\ude00"`: true,
		`"\ud83d\n"`: true, `"\ud83d\n\u0041"`: true, `"\ud83d\u0041"`: true, `["\ud83d","\ude00"]`: true, `"\\\ud800"`: true,
	} {
		if got := HalfPair(text); got != want || HalfPair([]byte(text)) != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// FuzzRead: no text panics, and what is accepted is what encoding/json reads too,
// if it is told the names exactly.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"a":"x","n":1}`))
	f.Add([]byte(`{"\u0061":"x" , "n" : null } `))
	f.Fuzz(func(t *testing.T, text []byte) {
		var got, want struct {
			A string `json:"a"`
			N *int64 `json:"n"`
		}
		if Read(text, map[string]any{"a": &got.A, "n": &got.N}) != nil {
			return
		}
		if err := json.Unmarshal(text, &want); err != nil || got.A != want.A || (got.N == nil) != (want.N == nil) {
			t.Errorf("%q: %+v, encoding/json reads %+v, %v", text, got, want, err)
		}
	})
}
