package operate

import (
	"strings"
	"testing"
)

func TestAdvice(t *testing.T) {
	got := Advice("token_expired")
	if len(got) == 0 || !strings.Contains(got[0], "jwt_leeway") || strings.ContainsAny(strings.Join(got, ""), "`#[") {
		t.Errorf("%q", got)
	}
	if got := Advice("expired"); len(got) == 0 || strings.Contains(strings.Join(got, " "), "(#") || strings.HasPrefix(got[0], "The answer names") {
		t.Errorf("%q", got)
	}
	for _, word := range []string{"", "no such word", "Where to look first"} {
		if got := Advice(word); got != nil {
			t.Errorf("%q: %q", word, got)
		}
	}
}
