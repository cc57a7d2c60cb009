package strictyaml

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// bombs are texts that the library takes minutes or all memory for.
func bombs() map[string]string {
	laughs := "- {a: &a0 [x]}\n"
	for i := 1; i < 12; i++ {
		laughs += fmt.Sprintf("- {a: &a%d [%s*a%d]}\n", i, strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 8), i-1)
	}
	return map[string]string{
		"aliases of aliases": laughs,
		"an alias":           "- {a: &g [x]}\n- {a: *g}\n",
		"of itself":          "- &a [*a]\n",
		"merged":             "- &a {<<: [*a, *a], a: a}\n",
		"brackets":           strings.Repeat("[", 20_000),
		"braces":             strings.Repeat("{a: ", 20_000),
		"dashes":             strings.Repeat("- ", 20_000) + "a",
		"question marks":     strings.Repeat("? ", 20_000),
		"lists in lists":     "- a: " + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + "\n",
	}
}

func TestBombsAreRefusedAtOnce(t *testing.T) {
	t.Parallel()
	for name, text := range bombs() {
		var into any
		if err := Read([]byte(text), &into); !is(err, NotPlain) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := Parse([]byte(text)); !is(err, NotPlain) {
			t.Errorf("%s, parsed: %v", name, err)
		}
	}
}

func is(err error, want Fault) bool {
	wrong, ok := errors.AsType[*Error](err)
	return ok && wrong.Fault == want
}

func TestRead(t *testing.T) {
	t.Parallel()
	var list []struct {
		ID     string   `yaml:"id"`
		Groups []string `yaml:"groups"`
	}
	if err := Read([]byte("- {id: \"a*&b[[[[[[\", groups: [a, b]}\n-\n  id: c\n  groups:\n  - a\n"), &list); err != nil || len(list) != 2 || list[0].ID != "a*&b[[[[[[" {
		t.Errorf("read %v, %v", list, err)
	}
	for text, want := range map[string]string{
		"- id: a\n  SECRET: x":           "line 2 isn't understood",
		"- id: [SECRET":                  "line 1 isn't understood",
		"- id: a\n  id: SECRET":          "line 2 isn't understood",
		"- id: a\n  groups: {x: SECRET}": "isn't understood",
		"SECRET":                         "isn't understood",
	} {
		err := Read([]byte(text), &list)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// FuzzRead: no text makes the reader panic.
func FuzzRead(f *testing.F) {
	for _, text := range bombs() {
		f.Add(text)
	}
	f.Add("- id: a\n  groups: [x]\n")
	f.Add("a: |\n  b\n")
	f.Fuzz(func(_ *testing.T, text string) {
		if len(text) > 1<<12 {
			return
		}
		var list []struct {
			ID string `yaml:"id"`
		}
		_ = Read([]byte(text), &list)
		_, _ = Parse([]byte(text))
	})
}
