package access

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"downlink/internal/jwt"
	"downlink/internal/problem"
)

func hash(token string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(token))) }

const (
	erp     = "erp-token-0123456789abcdef0123456789"
	ops     = "ops-token-0123456789abcdef0123456789"
	kiosk   = "kiosk-token-0123456789abcdef012345678"
	noToken = "none-token-0123456789abcdef012345678"
)

// file has a publisher with devices, one that may do all, and one for tickets.
func file() string {
	return `
- name: erp
  sha256: ` + hash(erp) + `
  devices: [pos-*, A83F21]
  groups: [north, store-*]
- {name: ops, sha256: ` + hash(ops) + `, devices: ["*"], groups: ["*"], broadcast: true, admin: true}
- name: kiosk
  sha256: ` + strings.ToUpper(hash(kiosk)) + `
  devices: ["kiosk-*"]
  groups: [lobby]
  tickets: true
`
}

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "publishers.yml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func gate(t *testing.T, o Options) *Gate {
	t.Helper()
	o.Metrics = NewMetrics(nil)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	g, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func request(authorization ...string) *http.Request {
	r := httptest.NewRequest("POST", "/v1/events", nil)
	for _, a := range authorization {
		r.Header.Add("Authorization", a)
	}
	return r
}

// code is the problem that an error is; empty for none.
func code(t *testing.T, err error) problem.Code {
	t.Helper()
	if err == nil {
		return ""
	}
	d, ok := errors.AsType[*problem.Document](err)
	if !ok {
		t.Fatalf("%v is no problem document", err)
	}
	return d.Code()
}

func TestWhoMaySendToWhom(t *testing.T) {
	g := gate(t, Options{File: write(t, file())})
	for _, c := range []struct {
		token, targets, not string
	}{
		{erp, "A83F21 pos- pos-1 @north @store-17", "A83F2 A83F21x pos * @ @nort @north1 @stor kiosk-1 POS-1 xpos-1 @xstore-1"},
		{ops, "anything * @any", ""},
		{kiosk, "kiosk-7 @lobby", "* pos-1"},
	} {
		caller, err := g.Check(request("Bearer " + c.token))
		if err != nil {
			t.Fatal(err)
		}
		for target := range strings.FieldsSeq(c.targets) {
			if err := caller.Permit(target); err != nil {
				t.Errorf("%s to %s: %v", caller.Name(), target, err)
			}
		}
		for target := range strings.FieldsSeq(c.not) {
			err := caller.Permit(target)
			if code(t, err) != problem.Forbidden || !strings.Contains(err.Error(), caller.Name()) || !strings.Contains(err.Error(), "scope") {
				t.Errorf("%s to %s: %v", caller.Name(), target, err)
			}
		}
		if may := caller.PermitAdmin() == nil; may != (c.token == ops) {
			t.Errorf("%s may do everything: %v", caller.Name(), may)
		}
	}
}

// Asking how things stand is less than changing them.
func TestWhoMayAskTheGovernor(t *testing.T) {
	const game = "game-token-0123456789abcdef0123456789"
	g := gate(t, Options{File: write(t, file()+"- {name: game, sha256: "+hash(game)+", governor: true}\n")})
	nothing := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	for token, may := range map[string]struct{ ask, change bool }{erp: {}, kiosk: {}, game: {ask: true}, ops: {true, true}} {
		asked, changed := httptest.NewRecorder(), httptest.NewRecorder()
		g.Governor(nothing).ServeHTTP(asked, request("Bearer "+token))
		g.Admin(nothing).ServeHTTP(changed, request("Bearer "+token))
		status := map[bool]int{true: http.StatusNoContent, false: http.StatusForbidden}
		if asked.Code != status[may.ask] || changed.Code != status[may.change] {
			t.Errorf("%.4s: %d %d", token, asked.Code, changed.Code)
		}
	}
	caller, err := g.Check(request("Bearer " + game))
	if err != nil || caller.Permit("pos-1") == nil || caller.Permit("*") == nil || caller.PermitTicket("pos-1", nil) == nil {
		t.Errorf("it may more: %v", err)
	}
}

func TestWhoMayMakeTickets(t *testing.T) {
	g := gate(t, Options{File: write(t, file())})
	for _, c := range []struct {
		token, device string
		groups        []string
		may           bool
	}{
		{kiosk, "kiosk-1", nil, true},
		{kiosk, "kiosk-1", []string{"lobby"}, true},
		{kiosk, "kiosk-1", []string{"lobby", "north"}, false},
		{kiosk, "pos-1", nil, false},
		{erp, "pos-1", nil, false}, // to send to a device isn't to be it
		{ops, "pos-1", nil, false},
	} {
		caller, err := g.Check(request("bearer  " + c.token))
		if err != nil {
			t.Fatal(err)
		}
		if got := code(t, caller.PermitTicket(c.device, c.groups)); (got == "") != c.may || (!c.may && got != problem.Forbidden) {
			t.Errorf("%s for %s of %v: %q", caller.Name(), c.device, c.groups, got)
		}
	}
}

func TestWhoIsNotLetThrough(t *testing.T) {
	g := gate(t, Options{File: write(t, file())})
	for name, c := range map[string]struct {
		r   *http.Request
		why denial
	}{
		"nothing":     {request(), missing},
		"two":         {request("Bearer "+erp, "Bearer "+erp), missing},
		"scheme":      {request("Basic " + erp), missing},
		"bare":        {request(erp), missing},
		"unknown":     {request("Bearer " + noToken), unknown},
		"empty":       {request("Bearer "), unknown},
		"hash":        {request("Bearer " + hash(erp)), unknown},
		"longer":      {request("Bearer " + erp + "x"), unknown},
		"form of JWT": {request("Bearer a.b.c"), unknown},
	} {
		before := testutil.ToFloat64(g.opts.Metrics.denials.WithLabelValues(string(c.why)))
		_, err := g.Check(c.r)
		if code(t, err) != problem.Unauthorized || strings.Contains(err.Error(), erp[:8]) || strings.Contains(err.Error(), noToken[:8]) {
			t.Errorf("%s: %v", name, err)
		}
		if n := testutil.ToFloat64(g.opts.Metrics.denials.WithLabelValues(string(c.why))); n != before+1 {
			t.Errorf("%s isn't counted as %s", name, c.why)
		}
	}
}

// TestDenialsAreSaid: whoever runs the gateway reads why a producer is refused,
// once a minute for each, and no part of a token.
func TestDenialsAreSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		i := &issuer{err: &jwt.Error{Failure: jwt.Expired}}
		g := gate(t, Options{File: write(t, file()), JWT: i, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		said := func() []string {
			defer log.Reset()
			return strings.Split(strings.TrimSpace(log.String()), "\n")
		}
		call := func() {
			for range 100 {
				caller, err := g.Check(request("Bearer " + erp))
				if err != nil || caller.Permit("kiosk-1") == nil || caller.Permit("kiosk-2") == nil || caller.PermitAdmin() == nil {
					t.Fatal("let through")
				}
				for _, token := range []string{noToken, "a.b.M4RK3R"} {
					if _, err := g.Check(request("Bearer " + token)); err == nil {
						t.Fatal("let through")
					}
				}
			}
		}
		call()
		first := said()
		time.Sleep(59 * time.Second) //nolint:forbidigo // in a bubble
		call()
		if early := said(); len(first) != 4 || len(early) != 1 || early[0] != "" {
			t.Errorf("said at first:\n%s\nwithin a minute:\n%s", strings.Join(first, "\n"), strings.Join(early, "\n"))
		}
		time.Sleep(time.Second)                       //nolint:forbidigo // in a bubble
		i.err = &jwt.Error{Failure: jwt.BadSignature} // another kind is said at once
		call()
		later := said()
		text := strings.Join(append(first, later...), "\n")
		for _, want := range []string{
			`reason=scope_missing detail="the publisher \"erp\" may not send to the device \"kiosk-1\": its scope devices doesn't cover it" hidden=0 publisher=erp`,
			`its scope devices doesn't cover it" hidden=399 publisher=erp`, `scope admin" hidden=199 publisher=erp`,
			`reason=token_unknown detail="the token is not, or no longer, among those of publishers_file" hidden=199 from=192.0.2.1:1234`,
			"reason=token_rejected",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("not said: %s", want)
			}
		}
		if len(later) != 4 || strings.Contains(text, noToken[:8]) || strings.Contains(text, erp[:8]) || strings.Contains(text, "M4RK3R") || strings.Contains(text, hash(noToken)[:8]) {
			t.Errorf("said:\n%s", text)
		}
	})
}

// TestDenialsAreBounded: however many publishers there are.
func TestDenialsAreBounded(t *testing.T) {
	var d denials
	now := time.Now()
	lines := 0
	for i := range 3 * mostTold {
		if _, say := d.due(told{scopeMissing, fmt.Sprint(i), "devices"}, now); say {
			lines++
		}
	}
	if len(d.told) != mostTold+1 || lines != mostTold+1 {
		t.Errorf("%d are told apart, in %d lines", len(d.told), lines)
	}
	if hidden, say := d.due(told{scopeMissing, "new", "devices"}, now.Add(sayEvery)); !say || hidden != 0 || len(d.told) != 1 {
		t.Errorf("a minute later: %v, %d hidden, %d told apart", say, hidden, len(d.told))
	}
}

func TestAdmin(t *testing.T) {
	inner := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	closed := gate(t, Options{File: write(t, file())})
	for _, c := range []struct {
		g      *Gate
		r      *http.Request
		status int
	}{
		{closed, request("Bearer " + ops), 418},
		{closed, request("Bearer " + erp), 403},
		{closed, request(), 401},
		{gate(t, Options{}), request(), 418},
	} {
		a := httptest.NewRecorder()
		c.g.Admin(inner).ServeHTTP(a, c.r)
		if a.Code != c.status || (a.Code == 401) != (a.Header().Get("WWW-Authenticate") != "") {
			t.Errorf("%d %s, want %d", a.Code, a.Body, c.status)
		}
	}
}

func TestOpenGate(t *testing.T) {
	c, err := gate(t, Options{}).Check(request("Bearer " + noToken))
	if err != nil || c.Name() != "" || c.Permit("*") != nil || c.PermitAdmin() != nil || c.PermitTicket("a", []string{"g"}) != nil {
		t.Errorf("%+v %v", c, err)
	}
}

// TestLoad: a changed file counts, and a broken one changes nothing.
func TestLoad(t *testing.T) {
	path := write(t, file())
	g := gate(t, Options{File: path})
	for _, c := range []struct {
		content      string
		changed, bad bool
		erp          bool
	}{
		{file(), false, false, true},
		{"- name: x", false, true, true},
		{"", false, true, true},
		{"[]", true, false, false},
		{file(), true, false, true},
	} {
		if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		changed, err := g.Load()
		_, denied := g.Check(request("Bearer " + erp))
		if changed != c.changed || (err != nil) != c.bad || (denied == nil) != c.erp {
			t.Errorf("%q: changed is %v, %v; %v", c.content, changed, err, denied)
		}
	}
}

func TestFilesThatCannotBeUsed(t *testing.T) {
	const marker = "M4RK3R"
	one := func(rest string) string { return "- {name: erp, sha256: " + hash(erp) + ", " + rest + "}" }
	for name, c := range map[string]struct{ content, want string }{
		"empty":           {" \n", "is empty"},
		"no list":         {"name: " + marker, "line 1"},
		"unknown member":  {"- name: erp\n  token: " + marker, "line 2"},
		"twice":           {"- name: erp\n  name: " + marker, "name, sha256"},
		"no YAML":         {"- {" + marker, "name, sha256"},
		"no name":         {"- {sha256: " + hash(erp) + ", admin: true}", "entry 1 has no name"},
		"control in name": {`- {name: "a\nb", sha256: ` + hash(erp) + `, admin: true}`, "entry 1 has no name"},
		"token as hash":   {"- {name: erp, sha256: " + marker + ", admin: true}", "sha256"},
		"short hash":      {"- {name: erp, sha256: abcd, admin: true}", "sha256"},
		"nothing":         {one("broadcast: false"), "may do nothing"},
		"lone tickets":    {one("tickets: true"), "has no devices"},
		"tickets, groups": {one("tickets: true, groups: [a]"), "has no devices"},
		"device":          {one(`devices: ["@a"]`), "devices that can't be"},
		"empty device":    {one(`devices: [""]`), "devices that can't be"},
		"group":           {one(`groups: [""]`), "groups that can't be"},
		"group with @":    {one(`groups: ["@north"]`), "without"},
		"many":            {one("devices: [" + strings.Repeat("a,", 257) + "]"), "at most 256"},
		"same token":      {one("admin: true") + "\n" + strings.Replace(one("admin: true"), "erp", "other", 1), `"erp" and "other"`},
		"wrong kind":      {one("devices: {a: " + marker + "}"), "line 1"},
	} {
		path := write(t, c.content)
		_, err := New(Options{File: path, Metrics: NewMetrics(nil)})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), marker) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if _, err := New(Options{File: filepath.Join(t.TempDir(), "none"), Metrics: NewMetrics(nil)}); err == nil {
		t.Error("a file that isn't there is taken")
	}
}

// An issuer believes every token, and says of it what it is told to.
type issuer struct {
	payload string
	expires time.Time
	err     error
	asked   int
}

func (i *issuer) Check(context.Context, string) ([]byte, time.Time, error) {
	i.asked++
	return []byte(i.payload), i.expires, i.err
}

func TestJWT(t *testing.T) {
	const good = `{"sub":"erp","downlink":{"devices":["pos-*"],"groups":["north"],"broadcast":true,"tickets":true,"governor":true,"admin":true}}`
	later := time.Now().Add(time.Hour)
	for name, c := range map[string]struct {
		issuer issuer
		code   problem.Code
		want   string
	}{
		"good":            {issuer{good, later, nil, 0}, "", ""},
		"a device's":      {issuer{`{"sub":"pos-1","groups":["north"]}`, later, nil, 0}, problem.Forbidden, "a device's token"},
		"null scopes":     {issuer{`{"sub":"erp","downlink":null}`, later, nil, 0}, problem.Unauthorized, "form"},
		"list":            {issuer{`{"sub":"erp","downlink":["*"]}`, later, nil, 0}, problem.Unauthorized, "form"},
		"unknown scope":   {issuer{`{"sub":"erp","downlink":{"device":["*"]}}`, later, nil, 0}, problem.Unauthorized, "form"},
		"no name":         {issuer{`{"downlink":{"admin":true}}`, later, nil, 0}, problem.Unauthorized, "sub"},
		"number as name":  {issuer{`{"sub":1,"downlink":{"admin":true}}`, later, nil, 0}, problem.Unauthorized, "sub"},
		"other case":      {issuer{`{"sub":"erp","Downlink":{"admin":true}}`, later, nil, 0}, problem.Forbidden, "no scopes"},
		"name's case":     {issuer{`{"SUB":"erp","downlink":{"admin":true}}`, later, nil, 0}, problem.Unauthorized, "sub"},
		"scope's case":    {issuer{`{"sub":"erp","downlink":{"ADMIN":true}}`, later, nil, 0}, problem.Unauthorized, "form"},
		"scopes twice":    {issuer{`{"sub":"erp","downlink":{},"downlink":{"admin":true}}`, later, nil, 0}, problem.Unauthorized, "twice"},
		"name twice":      {issuer{`{"sub":"a","sub":"erp","downlink":{"admin":true}}`, later, nil, 0}, problem.Unauthorized, "twice"},
		"scope twice":     {issuer{`{"sub":"erp","downlink":{"devices":["a"],"devices":["*"]}}`, later, nil, 0}, problem.Unauthorized, "once"},
		"nothing":         {issuer{`{"sub":"erp","downlink":{}}`, later, nil, 0}, problem.Unauthorized, "may do nothing"},
		"not accepted":    {issuer{"", later, &jwt.Error{Failure: jwt.BadSignature}, 0}, problem.Unauthorized, ""},
		"can't be judged": {issuer{"", later, fmt.Errorf("x: %w", jwt.ErrKeysUnavailable), 0}, problem.KeysUnavailable, ""},
	} {
		g := gate(t, Options{JWT: &c.issuer})
		caller, err := g.Check(request("Bearer a.b.c"))
		if code(t, err) != c.code || (err != nil && !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && (caller.Name() != "erp" || caller.Permit("pos-1") != nil || caller.Permit("other") == nil || caller.Permit("@north") != nil || caller.Permit("*") != nil || caller.PermitAdmin() != nil || caller.PermitTicket("pos-1", nil) != nil) {
			t.Errorf("%s: %+v", name, caller)
		}
	}
}

// TestVerdicts: a token is checked once in a while, not for each event, never
// beyond its end, and what was refused is checked again.
func TestVerdicts(t *testing.T) {
	i := &issuer{payload: `{"sub":"erp","downlink":{"admin":true}}`, expires: time.Now().Add(time.Hour)}
	g := gate(t, Options{JWT: i, File: write(t, file())})
	for range 3 {
		if _, err := g.Check(request("Bearer a.b.c")); err != nil {
			t.Fatal(err)
		}
	}
	if i.asked != 1 {
		t.Errorf("asked %d times", i.asked)
	}
	if c, err := g.Check(request("Bearer " + erp)); err != nil || c.Name() != "erp" || i.asked != 1 {
		t.Errorf("a static token is asked about: %v, %d", err, i.asked)
	}
	i.expires = time.Now()
	for range 2 {
		if _, err := g.Check(request("Bearer d.e.f")); err != nil {
			t.Fatal(err)
		}
	}
	i.err = &jwt.Error{Failure: jwt.BadSignature}
	for range 2 {
		if _, err := g.Check(request("Bearer g.h.i")); err == nil {
			t.Fatal("let through")
		}
	}
	if i.asked != 5 {
		t.Errorf("asked %d times", i.asked)
	}
}

func TestVerdictsAreBounded(t *testing.T) {
	var v verdicts
	now := time.Now()
	for i := range 3 * maxVerdicts {
		until := now.Add(time.Hour)
		if i%2 == 0 {
			until = now
		}
		v.keep(sha256.Sum256([]byte{byte(i), byte(i >> 8)}), verdict{everybody, until}, now)
		if len(v.good) > maxVerdicts {
			t.Fatalf("%d are kept", len(v.good))
		}
	}
}

// A producer shows its token with each event.
func TestCheckAllocatesNothing(t *testing.T) {
	g := gate(t, Options{File: write(t, file()), JWT: &issuer{payload: `{"sub":"erp","downlink":{"devices":["*"]}}`, expires: time.Now().Add(time.Hour)}})
	for _, token := range []string{erp, "a.b.c"} {
		r := request("Bearer " + token)
		if n := testing.AllocsPerRun(100, func() {
			c, err := g.Check(r)
			if err != nil || c.Permit("pos-1") != nil {
				t.Fatal(err)
			}
		}); n > 1 { // of the token as bytes
			t.Errorf("%v allocations", n)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	path := filepath.Join(b.TempDir(), "publishers.yml")
	if err := os.WriteFile(path, []byte(file()), 0o600); err != nil {
		b.Fatal(err)
	}
	g, err := New(Options{File: path, Metrics: NewMetrics(nil)})
	if err != nil {
		b.Fatal(err)
	}
	r := request("Bearer " + erp)
	b.ReportAllocs()
	for b.Loop() {
		c, err := g.Check(r)
		if err != nil || c.Permit("pos-1") != nil {
			b.Fatal(err)
		}
	}
}

// FuzzFile: no file panics, and no error repeats what stands in it.
func FuzzFile(f *testing.F) {
	f.Add(file())
	f.Add("- name: a\n  sha256: x\n")
	f.Add("[{name: a, devices: [")
	f.Fuzz(func(t *testing.T, content string) {
		callers, err := parsePublishers([]byte(content), &denials{})
		for _, c := range callers {
			if err != nil || c.Name() == "" {
				t.Errorf("%v, %+v", err, c)
			}
		}
	})
}

func FuzzClaims(f *testing.F) {
	f.Add(`{"sub":"erp","downlink":{"devices":["pos-*"],"admin":true}}`)
	f.Fuzz(func(t *testing.T, payload string) {
		c, why := readClaims([]byte(payload))
		if (c == nil) == (why == "") || c != nil && c.Name() == "" {
			t.Errorf("%q: %+v %q", payload, c, why)
		}
	})
}
