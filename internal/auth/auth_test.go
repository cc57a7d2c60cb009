package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"downlink/internal/jwt"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// secret is long enough for every HMAC algorithm.
var secret = []byte(strings.Repeat("0123456789abcdef", 4))

// write writes a file and returns its path.
func write(t testing.TB, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// verifier has the secret, and what change adds.
func verifier(t testing.TB, change func(*JWTOptions)) *JWTs {
	t.Helper()
	o := JWTOptions{DeviceClaim: "sub", GroupsClaim: "groups", Keys: jwt.Options{
		HMACSecretFile: write(t, secret), Leeway: 10 * time.Second, Metrics: jwt.NewMetrics(nil), Logger: slog.New(slog.DiscardHandler),
	}}
	if change != nil {
		change(&o)
	}
	v, err := OpenJWTs(o)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// sign makes a token of any header and payload, by the secret.
func sign(header, payload string) string {
	text := encode(header) + "." + encode(payload)
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func encode(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// hs256 is a token of the given claims, with an exp in an hour unless they
// have one; nil takes a claim away.
func hs256(t testing.TB, claims map[string]any) string {
	t.Helper()
	return sign(`{"alg":"HS256","typ":"JWT"}`, payload(t, claims))
}

func payload(t testing.TB, claims map[string]any) string {
	t.Helper()
	all := map[string]any{"sub": "pos-1", "exp": time.Now().Add(time.Hour).Unix()}
	maps.Copy(all, claims)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// bearer is a request with the token in its header.
func bearer(token string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/events", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

// identify asks a gateway that knows nothing but JWTs.
func identify(v *JWTs, r *http.Request) (Identity, error) {
	return (&Methods{JWT: v, Cookie: "downlink_token", Metrics: NewMetrics(nil)}).Identify(r)
}

// failure is why a token isn't accepted; empty if it is.
func failure(t testing.TB, v *JWTs, r *http.Request) Failure {
	t.Helper()
	_, err := identify(v, r)
	if err == nil {
		return ""
	}
	e, ok := errors.AsType[*Error](err)
	if !ok {
		t.Fatalf("another error: %v", err)
	}
	return e.Failure
}

func TestIdentity(t *testing.T) {
	exp := time.Now().Add(time.Hour).Truncate(time.Second)
	for name, c := range map[string]struct {
		claims map[string]any
		want   Identity
	}{
		"plain":          {nil, Identity{Device: "pos-1"}},
		"groups":         {map[string]any{"groups": []string{"b", "a", "b"}}, Identity{Device: "pos-1", Groups: []string{"a", "b"}}},
		"one group":      {map[string]any{"groups": "a"}, Identity{Device: "pos-1", Groups: []string{"a"}}},
		"no groups":      {map[string]any{"groups": []string{}}, Identity{Device: "pos-1"}},
		"fraction":       {map[string]any{"exp": float64(exp.Unix()) + 0.5}, Identity{Device: "pos-1", Expires: exp.Add(10*time.Second + time.Second/2)}},
		"within leeway":  {map[string]any{"exp": time.Now().Add(-time.Second).Unix(), "nbf": time.Now().Add(8 * time.Second).Unix()}, Identity{Device: "pos-1", Expires: time.Unix(time.Now().Add(9*time.Second).Unix(), 0)}},
		"escaped":        {map[string]any{"sub": "매장-\"12\""}, Identity{Device: "매장-\"12\""}},
		"foreign claims": {map[string]any{"SUB": "other", "Sub": "other", "Exp": 1, "x": map[string]any{"sub": "other"}}, Identity{Device: "pos-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.claims["exp"] == nil {
				c.want.Expires = exp.Add(10 * time.Second)
				if c.claims == nil {
					c.claims = map[string]any{}
				}
				c.claims["exp"] = exp.Unix()
			}
			got, err := identify(verifier(t, nil), bearer(hs256(t, c.claims)))
			if err != nil {
				t.Fatal(err)
			}
			c.want.By = "jwt"
			if diff := cmp.Diff(c.want, got, cmp.Comparer(func(a, b time.Time) bool { return a.Sub(b).Abs() <= time.Second })); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestClaimsByConfiguration(t *testing.T) {
	v := verifier(t, func(o *JWTOptions) {
		o.DeviceClaim, o.GroupsClaim = "https://example.com/device", "roles"
		o.Keys.Issuers, o.Keys.Audiences = []string{"https://a.example", "https://b.example"}, []string{"downlink", "push"}
	})
	good := func() map[string]any {
		return map[string]any{
			"sub": nil, "https://example.com/device": "pos-2", "roles": []string{"x"},
			"iss": "https://b.example", "aud": []string{"other", "push"},
		}
	}
	id, err := identify(v, bearer(hs256(t, good())))
	if err != nil || id.Device != "pos-2" || !slices.Equal(id.Groups, []string{"x"}) {
		t.Errorf("%+v, %v", id, err)
	}
	for _, c := range []struct {
		claim string
		value any
		want  Failure
	}{
		{"iss", "https://a.example", ""},
		{"iss", "https://a.example/", WrongIssuer},
		{"iss", nil, WrongIssuer},
		{"iss", 1, WrongIssuer},
		{"aud", "downlink", ""},
		{"aud", "other", WrongAudience},
		{"aud", []any{"downlink", 1}, WrongAudience},
		{"aud", []string{}, WrongAudience},
		{"aud", nil, WrongAudience},
		{"https://example.com/device", nil, BadDevice},
	} {
		claims := good()
		claims[c.claim] = c.value
		if got := failure(t, v, bearer(hs256(t, claims))); got != c.want {
			t.Errorf("%s %v: %q, want %q", c.claim, c.value, got, c.want)
		}
	}
}

// TestWhatATokenSaysOfItsDevice: the form of device and groups, in a token that is
// good otherwise.
func TestWhatATokenSaysOfItsDevice(t *testing.T) {
	v := verifier(t, nil)
	raw := func(payload string) string { return sign(`{"alg":"HS256"}`, payload) }
	list := func(n int) string {
		groups := make([]string, n)
		for i := range groups {
			groups[i] = string(rune('A'+i/26)) + string(rune('a'+i%26))
		}
		return hs256(t, map[string]any{"groups": groups})
	}
	for name, c := range map[string]struct {
		token string
		want  Failure
	}{
		"no device":            {hs256(t, map[string]any{"sub": nil}), BadDevice},
		"device half a pair":   {raw(`{"sub":"\ud83d","exp":9999999999}`), BadDevice},
		"device a pair":        {raw(`{"sub":"\ud83d\ude00","exp":9999999999}`), ""},
		"group half a pair":    {raw(`{"sub":"a","groups":["\udc00"],"exp":9999999999}`), BadGroups},
		"device empty":         {hs256(t, map[string]any{"sub": ""}), BadDevice},
		"device a number":      {hs256(t, map[string]any{"sub": 7}), BadDevice},
		"device everybody":     {hs256(t, map[string]any{"sub": "*"}), BadDevice},
		"device a group":       {hs256(t, map[string]any{"sub": "@all"}), BadDevice},
		"device with line end": {hs256(t, map[string]any{"sub": "a\nb"}), BadDevice},
		"device with NUL":      {hs256(t, map[string]any{"sub": "a\x00"}), BadDevice},
		"device too long":      {hs256(t, map[string]any{"sub": strings.Repeat("x", 129)}), BadDevice},
		"groups a number":      {hs256(t, map[string]any{"groups": 1}), BadGroups},
		"groups an object":     {hs256(t, map[string]any{"groups": map[string]any{"a": 1}}), BadGroups},
		"groups nested":        {hs256(t, map[string]any{"groups": []any{[]string{"a"}}}), BadGroups},
		"group with @":         {hs256(t, map[string]any{"groups": []string{"north", "@north"}}), BadGroups},
		"one group with @":     {hs256(t, map[string]any{"groups": "@north"}), BadGroups},
		"group empty":          {hs256(t, map[string]any{"groups": []string{""}}), BadGroups},
		"64 groups":            {list(64), ""},
		"65 groups":            {list(65), BadGroups},
	} {
		if got := failure(t, v, bearer(c.token)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestWhereTheTokenIs(t *testing.T) {
	v := verifier(t, nil)
	good, bad := hs256(t, nil), "a.b.c"
	for name, c := range map[string]struct {
		target  string
		headers http.Header
		want    Failure
	}{
		"nowhere":                {"/events", nil, TokenMissing},
		"header":                 {"/events", http.Header{"Authorization": {"Bearer " + good}}, ""},
		"lower case":             {"/events", http.Header{"Authorization": {"bearer " + good}}, ""},
		"spaces":                 {"/events", http.Header{"Authorization": {"Bearer   " + good + " "}}, ""},
		"empty bearer":           {"/events", http.Header{"Authorization": {"Bearer"}}, TokenMalformed},
		"another scheme":         {"/events", http.Header{"Authorization": {"Basic " + good}}, TokenMissing},
		"two headers":            {"/events", http.Header{"Authorization": {"Bearer " + good, "Bearer " + good}}, TokenAmbiguous},
		"parameter":              {"/events?access_token=" + good, nil, ""},
		"parameter, escaped":     {"/events?access%5Ftoken=" + good, nil, ""},
		"escaped, good cookie":   {"/events?%61ccess_token=" + bad, http.Header{"Cookie": {"downlink_token=" + good}}, TokenMalformed},
		"parameter after others": {"/events?device=x&access_token=" + good + "&y", nil, ""},
		"two parameters":         {"/events?access_token=" + good + "&access_token=" + good, nil, TokenAmbiguous},
		"empty parameter":        {"/events?access_token=", nil, TokenMalformed},
		"similar parameter":      {"/events?x_access_token=" + good, nil, TokenMissing},
		"cookie":                 {"/events", http.Header{"Cookie": {"a=b; downlink_token=" + good}}, ""},
		"other cookie":           {"/events", http.Header{"Cookie": {"token=" + good}}, TokenMissing},
		"two cookies":            {"/events", http.Header{"Cookie": {"downlink_token=" + good + "; downlink_token=" + good}}, TokenAmbiguous},
		"header wins":            {"/events?access_token=" + good, http.Header{"Authorization": {"Bearer " + bad}}, TokenMalformed},
		"parameter wins":         {"/events?access_token=" + bad, http.Header{"Cookie": {"downlink_token=" + good}}, TokenMalformed},
		"beside a proxy's":       {"/events?access_token=" + good, http.Header{"Authorization": {"Basic eDp5"}}, ""},
	} {
		r := httptest.NewRequest(http.MethodGet, c.target, nil)
		maps.Copy(r.Header, c.headers)
		if got := failure(t, v, r); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestTheRequestLosesTheToken: what is left of it may live as long as the stream.
func TestTheRequestLosesTheToken(t *testing.T) {
	r := bearer(hs256(t, nil))
	r.Header.Set("Cookie", "downlink_token=x")
	if _, err := identify(verifier(t, nil), r); err != nil || len(r.Header) != 0 {
		t.Errorf("%v, %v", r.Header, err)
	}
}

// TestFailuresAreToldAndCounted: every failure of the tables above in the form
// of RFC 6750 §3, and without a word of the token.
func TestFailuresAreToldAndCounted(t *testing.T) {
	v := verifier(t, func(o *JWTOptions) { o.Keys.Issuers = []string{"me"} })
	methods := &Methods{JWT: v, Metrics: NewMetrics(nil)}
	form := regexp.MustCompile(`^Bearer realm="downlink", error="invalid_token", error_description="[\x20-\x21\x23-\x5b\x5d-\x7e]+"$`)
	const marker = "M4RK3R"
	for name, claims := range map[string]map[string]any{
		"expired":   {"exp": 1, "sub": marker},
		"early":     {"nbf": 99999999999, "sub": marker},
		"issuer":    {"iss": marker},
		"device":    {"iss": "me", "sub": "*" + marker},
		"groups":    {"iss": "me", "groups": []any{"@" + marker + "\n"}},
		"no expiry": {"exp": marker},
	} {
		token := hs256(t, claims)
		_, err := methods.Identify(bearer(token))
		e, ok := errors.AsType[*Error](err)
		if !ok {
			t.Fatalf("%s: %v", name, err)
		}
		told := e.Error() + e.Challenge()
		if !form.MatchString(e.Challenge()) || e.Status() != 401 || strings.Contains(told, marker) || strings.Contains(told, token[len(token)-20:]) {
			t.Errorf("%s: %d %s", name, e.Status(), told)
		}
		if n := testutil.ToFloat64(methods.Metrics.failures.WithLabelValues(string(e.Failure))); n == 0 {
			t.Errorf("%s isn't counted", e.Failure)
		}
	}
	for failure, want := range map[Failure]string{
		TokenMissing:   `Bearer realm="downlink"`,
		TokenAmbiguous: `Bearer realm="downlink", error="invalid_request", error_description="x"`,
	} {
		if got := (failed(failure, "x")).Challenge(); got != want {
			t.Errorf("%s: %s", failure, got)
		}
	}
}
