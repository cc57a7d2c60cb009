package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ordered notes the requests of orders and answers each.
func ordered(got *[]string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		*got = append(*got, fmt.Sprintf("%s %s %q %s", r.Method, r.URL.EscapedPath(), r.Header.Get("Authorization"), strings.TrimSpace(body(r))))
		fmt.Fprintln(w, `{"device":"a"}`)
	}
}

func TestOrdersAreGiven(t *testing.T) {
	var got []string
	url, _ := backend(t, ordered(&got))
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"disconnect", "a"}, `POST /v1/devices/a/disconnect "" {"reason":"","retry_ms":0}`},
		{[]string{"disconnect", "a", "--retry", "1m", "--reason", "moved <&>"}, `POST /v1/devices/a/disconnect "" {"reason":"moved <&>","retry_ms":60000}`},
		{[]string{"revoke", "store-1/pos-1", "--token-file", token}, `POST /v1/devices/store-1%2Fpos-1/revoke "Bearer s3cret" {"reason":""}`},
		{[]string{"restore", ".."}, `DELETE /v1/devices/%2E%2E/revoke "" {"reason":""}`},
		{[]string{"restore", "매장 12?#%"}, `DELETE /v1/devices/%EB%A7%A4%EC%9E%A5%2012%3F%23%25/revoke "" {"reason":""}`},
	} {
		got = nil
		code, out, errs := execute(t, "", nil, append(c.args, "--backend", url)...)
		if code != exitDone || out != `{"device":"a"}`+"\n" || errs != "" || len(got) != 1 || got[0] != c.want {
			t.Errorf("%v: %d %q %q, sent %q, want %q", c.args, code, out, errs, got, c.want)
		}
	}
}

func TestOrdersThatFail(t *testing.T) {
	var got []string
	url, _ := backend(t, unavailable, ordered(&got))
	if code, out, errs := execute(t, "", nil, "revoke", "a", "--backend", url); code != exitDone || out == "" || len(got) != 1 || !strings.Contains(errs, "trying again") {
		t.Errorf("after a 503: %d %q %q, sent %q", code, out, errs, got)
	}
	url, _ = backend(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"title":"T","status":403,"detail":"D","hint":"H"}`)
	})
	if code, _, errs := execute(t, "", nil, "revoke", "a", "--backend", url); code != exitRefused || errs != "downlink: T: D\ndownlink: H\n" {
		t.Errorf("refused: %d %q", code, errs)
	}
	for what, args := range map[string][]string{
		"no device":     {"revoke"},
		"a group":       {"revoke", "@g"},
		"everybody":     {"disconnect", "*"},
		"a long time":   {"disconnect", "a", "--retry", "2h"},
		"a long reason": {"restore", "a", "--reason", strings.Repeat("r", 257)},
		"no token":      {"restore", "a", "--token-file", filepath.Join(t.TempDir(), "none")},
		"no URL":        {"restore", "a", "--backend", "localhost:9090"},
	} {
		if code, out, errs := execute(t, "", nil, args...); code != exitUsage || out != "" || errs == "" {
			t.Errorf("%s: %d %q %q", what, code, out, errs)
		}
	}
}
