package template

import "testing"

func TestTemplates(t *testing.T) {
	value := func(b []byte, name string) []byte { return append(b, "<"+name+">"...) }
	for text, want := range map[string]string{
		"":                     "",
		"plain":                "plain",
		"{device}":             "<device>",
		"a{n}b{n}c":            "a<n>b<n>c",
		`{"a":{"b":{device}}}`: `{"a":{"b":<device>}}`,
		"{}{A}{ n }":           "{}{A}{ n }",
	} {
		tmpl, err := Parse(text, "device", "n")
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got := string(tmpl.Append([]byte("="), value)); got != "="+want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if _, err := Parse("{devise}", "device", "n"); err == nil || err.Error() != "{devise} is no placeholder here; known are {device}, {n}" {
		t.Errorf("an unknown name: %v", err)
	}
	tmpl, _ := Parse("x{n}", "device", "n")
	if !tmpl.Uses("n") || tmpl.Uses("device") {
		t.Error("Uses is wrong")
	}
}
