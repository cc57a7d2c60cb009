package auth

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"downlink/internal/testkit"
)

const longToken = "dl_0123456789abcdef0123456789abcdef"

func TestStaticTokens(t *testing.T) {
	e := newEverything(t)
	tokens := e.methods.Tokens
	for name, c := range map[string]struct{ token, want string }{
		"known":      {e.token, ""},
		"another":    {e.token + "x", string(TokenUnknown)},
		"cut":        {e.token[:len(e.token)-1], string(TokenUnknown)},
		"short":      {"short", string(TokenMalformed)},
		"its digest": {fmt.Sprintf("%x", sha256.Sum256([]byte(e.token))), string(TokenUnknown)},
		"empty":      {"", string(TokenMalformed)},
	} {
		_, err := tokens.check(c.token)
		got := ""
		if err != nil {
			got = string(err.(*Error).Failure) //nolint:errorlint // made there
			if c.token != "" && strings.Contains(err.Error(), c.token) && c.token != "short" {
				t.Errorf("%s: the error holds the token", name)
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestTokenIsWithdrawn: an identity stands as long as the file says the same of
// its token.
func TestTokenIsWithdrawn(t *testing.T) {
	e := newEverything(t)
	load := func() {
		t.Helper()
		if changed, err := e.methods.Tokens.Load(); err != nil || !changed {
			t.Fatalf("changed %v, %v", changed, err)
		}
	}
	e.putToken(t, e.token, "a", "g", "h")
	load()
	id, err := e.methods.Tokens.check(e.token)
	if err != nil || !id.Valid() || !slices.Equal(id.Groups, []string{"g", "h"}) {
		t.Fatalf("%+v, %v", id, err)
	}
	for _, step := range []struct {
		what  string
		put   func()
		valid bool
	}{
		{"another device", func() { e.putToken(t, e.token, "b", "g", "h") }, false},
		{"as before", func() { e.putToken(t, e.token, "a", "h", "g") }, true},
		{"another group", func() { e.putToken(t, e.token, "a", "g") }, false},
		{"another token", func() { e.putToken(t, longToken, "a", "g", "h") }, false},
		{"as before again", func() { e.putToken(t, e.token, "a", "g", "h") }, true},
		{"nobody", func() { testkit.Put(t, e.tokens, []byte("# nobody\n")) }, false},
	} {
		step.put()
		load()
		if id.Valid() != step.valid {
			t.Errorf("%s: valid is %v", step.what, !step.valid)
		}
	}
	if changed, err := e.methods.Tokens.Load(); err != nil || changed {
		t.Errorf("the same file again: changed %v, %v", changed, err)
	}
}

func TestTokenExpires(t *testing.T) {
	path := write(t, nil)
	synctest.Test(t, func(t *testing.T) {
		line, err := NewTokenLine(longToken, "a", nil, time.Now().Add(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		testkit.Put(t, path, []byte(line))
		tokens, err := OpenTokens(path)
		if err != nil {
			t.Fatal(err)
		}
		id, err := tokens.check(longToken)
		if err != nil || !id.Expires.Equal(time.Now().Add(time.Minute)) {
			t.Errorf("%v, %v", id.Expires, err)
		}
		time.Sleep(time.Minute) //nolint:forbidigo // in a bubble
		_, err = tokens.check(longToken)
		if failure, ok := err.(*Error); !ok || failure.Failure != TokenExpired || failure.Claimed != "a" { //nolint:errorlint // made there
			t.Errorf("a minute later: %v", err)
		}
	})
}

func TestTokenFilesThatCannotBeUsed(t *testing.T) {
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(longToken)))
	line := func(more string) string { return `{"sha256":"` + sum + `","device":"a"` + more + `}` }
	for name, c := range map[string]struct{ text, want string }{
		"empty":             {"", "empty"},
		"white":             {" \n\r\n", "empty"},
		"a token":           {longToken, "line 1 isn't of the form"},
		"after a comment":   {"# x\n" + longToken, "line 2 isn't of the form"},
		"cut off":           {line("")[:40], "line 1 isn't of the form"},
		"no object":         {`["` + sum + `"]`, "isn't of the form"},
		"two objects":       {line("") + line(""), "isn't of the form"},
		"unknown member":    {line(`,"M4RK3R":1`), "isn't of the form"},
		"another case":      {line(`,"Device":"b"`), "isn't of the form"},
		"device twice":      {line(`,"device":"b"`), "isn't of the form"},
		"groups no list":    {line(`,"groups":"M4RK3R"`), "isn't of the form"},
		"short digest":      {`{"sha256":"00","device":"a"}`, "sha256"},
		"no digest":         {`{"device":"a"}`, "sha256"},
		"the token itself":  {`{"sha256":"` + longToken + `","device":"a"}`, "sha256"},
		"no device":         {`{"sha256":"` + sum + `"}`, "device ID"},
		"device everybody":  {`{"sha256":"` + sum + `","device":"*"}`, "device ID"},
		"bad group":         {line(`,"groups":[""]`), "groups"},
		"group with @":      {line(`,"groups":["@north"]`), "without"},
		"half a pair":       {line(`,"groups":["\ud83d"]`), "isn't of the form"},
		"expires no time":   {line(`,"expires":"M4RK3R"`), "expires"},
		"expires a date":    {line(`,"expires":"2030-01-01"`), "expires"},
		"the same twice":    {line("") + "\n" + line(`,"groups":["g"]`), "line 2 stands in another"},
		"more than fits in": {"#" + strings.Repeat("x", maxTokensBytes), "too large"},
	} {
		path := write(t, []byte(c.text))
		_, err := OpenTokens(path)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), longToken) || strings.Contains(err.Error(), "M4RK3R") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if _, err := OpenTokens(t.TempDir() + "/none"); err == nil {
		t.Error("a file that isn't there is taken")
	}
	path := write(t, []byte(line("")))
	tokens, err := OpenTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Put(t, path, nil)
	if _, err := tokens.Load(); err == nil {
		t.Error("an empty file takes the place of a good one")
	}
	if _, err := tokens.check(longToken); err != nil {
		t.Errorf("after a file that can't be used: %v", err)
	}
}

func TestTokenLinesThatCannotBe(t *testing.T) {
	for _, c := range []struct {
		token, device string
		groups        []string
	}{{"short", "a", nil}, {longToken, "", nil}, {longToken, "@a", nil}, {longToken, "a", []string{"\n"}}} {
		if line, err := NewTokenLine(c.token, c.device, c.groups, time.Time{}); err == nil || strings.Contains(err.Error(), c.token) {
			t.Errorf("%+v: %s, %v", c, line, err)
		}
	}
	if line, err := NewTokenLine(longToken, `매장 "<1>"`, nil, time.Time{}); err != nil || !strings.Contains(line, `매장 \"<1>\"`) {
		t.Errorf("%s, %v", line, err)
	}
}

// FuzzTokenFile: no text but the token itself is ever the token of a line, and
// who is let in has a name.
func FuzzTokenFile(f *testing.F) {
	line, err := NewTokenLine(longToken, "a", []string{"g"}, time.Unix(4e9, 0))
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(line), longToken)
	f.Add([]byte("# x\n"+line+"\n"+line), longToken)
	f.Add([]byte(`{"sha256":"`), "")
	f.Fuzz(func(t *testing.T, data []byte, token string) {
		lines, err := parseTokens(data)
		if err != nil {
			return
		}
		tokens := &Tokens{}
		tokens.now.Store(&tokenFile{lines: lines})
		id, err := tokens.check(token)
		if err != nil {
			return
		}
		if sum := fmt.Sprintf("%x", sha256.Sum256([]byte(token))); !strings.Contains(strings.ToLower(string(data)), sum) || id.Device == "" || !id.Valid() {
			t.Errorf("%q is accepted as %+v", token, id)
		}
	})
}
