package auth

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
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

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
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
func verifier(t testing.TB, change func(*Options)) *Verifier {
	t.Helper()
	o := Options{
		HMACSecretFile: write(t, secret), Leeway: 10 * time.Second, DeviceClaim: "sub", GroupsClaim: "groups",
		Metrics: NewMetrics(nil), Logger: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&o)
	}
	v, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// sign makes a token of any header and payload.
func sign(t testing.TB, header, payload string, m jwt.SigningMethod, key any) string {
	t.Helper()
	text := encode(header) + "." + encode(payload)
	signature, err := m.Sign(text, key)
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

func encode(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// hs256 is a token of the given claims, with an exp in an hour unless they
// have one; nil takes a claim away.
func hs256(t testing.TB, claims map[string]any) string {
	t.Helper()
	return sign(t, `{"alg":"HS256","typ":"JWT"}`, payload(t, claims), jwt.SigningMethodHS256, secret)
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
func identify(v *Verifier, r *http.Request) (Identity, error) {
	return (&Methods{JWT: v, Cookie: "downlink_token", Metrics: v.opts.Metrics}).Identify(r)
}

// failure is why a token isn't accepted; empty if it is.
func failure(t testing.TB, v *Verifier, r *http.Request) Failure {
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
		"within leeway":  {map[string]any{"exp": time.Now().Add(-5 * time.Second).Unix(), "nbf": time.Now().Add(8 * time.Second).Unix()}, Identity{Device: "pos-1", Expires: time.Unix(time.Now().Add(5*time.Second).Unix(), 0)}},
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
	v := verifier(t, func(o *Options) {
		o.DeviceClaim, o.GroupsClaim = "https://example.com/device", "roles"
		o.Issuers, o.Audiences = []string{"https://a.example", "https://b.example"}, []string{"downlink", "push"}
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

// keys of every kind, made once.
type keys struct {
	rsa, otherRSA    *rsa.PrivateKey
	p256, p384, p521 *ecdsa.PrivateKey
	ed               ed25519.PrivateKey
}

func makeKeys(t testing.TB) keys {
	t.Helper()
	var k keys
	var errs [6]error
	k.rsa, errs[0] = rsa.GenerateKey(rand.Reader, 2048)
	k.otherRSA, errs[1] = rsa.GenerateKey(rand.Reader, 2048)
	k.p256, errs[2] = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	k.p384, errs[3] = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	k.p521, errs[4] = ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	_, k.ed, errs[5] = ed25519.GenerateKey(rand.Reader)
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	return k
}

// pemOf is a PEM block of a public key; kid may be empty.
func pemOf(t testing.TB, public crypto.PublicKey, kid string) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	block := &pem.Block{Type: "PUBLIC KEY", Bytes: der}
	if kid != "" {
		block.Headers = map[string]string{"kid": kid}
	}
	return pem.EncodeToMemory(block)
}

func TestEveryAlgorithm(t *testing.T) {
	k := makeKeys(t)
	var file []byte
	for _, public := range []crypto.PublicKey{&k.rsa.PublicKey, &k.p256.PublicKey, &k.p384.PublicKey, &k.p521.PublicKey, k.ed.Public()} {
		file = append(file, pemOf(t, public, "")...)
	}
	v := verifier(t, func(o *Options) { o.PublicKeysFile = write(t, file) })
	for m, key := range map[jwt.SigningMethod]any{
		jwt.SigningMethodHS256: secret, jwt.SigningMethodHS384: secret, jwt.SigningMethodHS512: secret,
		jwt.SigningMethodRS256: k.rsa, jwt.SigningMethodRS384: k.rsa, jwt.SigningMethodRS512: k.rsa,
		jwt.SigningMethodPS256: k.rsa, jwt.SigningMethodPS384: k.rsa, jwt.SigningMethodPS512: k.rsa,
		jwt.SigningMethodES256: k.p256, jwt.SigningMethodES384: k.p384, jwt.SigningMethodES512: k.p521,
		jwt.SigningMethodEdDSA: k.ed,
	} {
		token := sign(t, `{"alg":"`+m.Alg()+`"}`, payload(t, nil), m, key)
		if got := failure(t, v, bearer(token)); got != "" {
			t.Errorf("%s: %s", m.Alg(), got)
		}
		// The same signature under another payload.
		parts := strings.Split(token, ".")
		parts[1] = encode(payload(t, map[string]any{"sub": "pos-2"}))
		if got := failure(t, v, bearer(strings.Join(parts, "."))); got != BadSignature {
			t.Errorf("%s, forged: %q", m.Alg(), got)
		}
	}
}

// TestTheKeysTypeDecides: whatever a token says of its algorithm, no key is
// used for one that isn't its own.
func TestTheKeysTypeDecides(t *testing.T) {
	k := makeKeys(t)
	file := pemOf(t, &k.rsa.PublicKey, "")
	der, err := x509.MarshalPKIXPublicKey(&k.rsa.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	onlyRSA := verifier(t, func(o *Options) { o.HMACSecretFile, o.PublicKeysFile = "", write(t, file) })
	p := payload(t, nil)
	for name, token := range map[string]string{
		"none":             encode(`{"alg":"none"}`) + "." + encode(p) + ".",
		"None":             encode(`{"alg":"None"}`) + "." + encode(p) + ".",
		"empty":            encode(`{"alg":""}`) + "." + encode(p) + ".",
		"unknown":          encode(`{"alg":"HS257"}`) + "." + encode(p) + ".AAAA",
		"PEM as a secret":  sign(t, `{"alg":"HS256"}`, p, jwt.SigningMethodHS256, file),
		"PEM without end":  sign(t, `{"alg":"HS256"}`, p, jwt.SigningMethodHS256, bytes.TrimSpace(file)),
		"DER as a secret":  sign(t, `{"alg":"HS256"}`, p, jwt.SigningMethodHS256, der),
		"N as a secret":    sign(t, `{"alg":"HS512"}`, p, jwt.SigningMethodHS512, k.rsa.N.Bytes()),
		"another's curve":  sign(t, `{"alg":"ES256"}`, p, jwt.SigningMethodES256, k.p256),
		"key in its head":  sign(t, `{"alg":"ES256","jwk":{"kty":"EC"},"jku":"http://127.0.0.1:1/"}`, p, jwt.SigningMethodES256, k.p256),
		"lower case":       sign(t, `{"alg":"rs256"}`, p, jwt.SigningMethodRS256, k.rsa),
		"alg and ALG":      sign(t, `{"ALG":"RS256","alg":"none"}`, p, jwt.SigningMethodRS256, k.rsa),
		"HS by the wrong":  sign(t, `{"alg":"HS256"}`, p, jwt.SigningMethodHS256, []byte("guess")),
		"EdDSA without it": sign(t, `{"alg":"EdDSA"}`, p, jwt.SigningMethodEdDSA, k.ed),
	} {
		if got := failure(t, onlyRSA, bearer(token)); got != BadAlgorithm {
			t.Errorf("%s: %q", name, got)
		}
	}
	// ES256 on P-384, with a signature of ES256's size.
	wrongCurve := verifier(t, func(o *Options) { o.HMACSecretFile, o.PublicKeysFile = "", write(t, pemOf(t, &k.p384.PublicKey, "")) })
	if got := failure(t, wrongCurve, bearer(sign(t, `{"alg":"ES256"}`, p, jwt.SigningMethodES256, k.p256))); got != BadAlgorithm {
		t.Errorf("another curve: %q", got)
	}
	// A secret that is too short for the hash isn't used for it.
	short := verifier(t, func(o *Options) { o.HMACSecretFile = write(t, secret[:40]) })
	for m, want := range map[jwt.SigningMethod]Failure{jwt.SigningMethodHS256: "", jwt.SigningMethodHS384: BadAlgorithm, jwt.SigningMethodHS512: BadAlgorithm} {
		if got := failure(t, short, bearer(sign(t, `{"alg":"`+m.Alg()+`"}`, p, m, secret[:40]))); got != want {
			t.Errorf("%s with 40 bytes: %q, want %q", m.Alg(), got, want)
		}
	}
}

func TestHostileTokens(t *testing.T) {
	v := verifier(t, nil)
	good := hs256(t, nil)
	parts := strings.Split(good, ".")
	raw := func(header, payload string) string { return sign(t, header, payload, jwt.SigningMethodHS256, secret) }
	const hs = `{"alg":"HS256"}`
	exp := func(text string) string { return raw(hs, `{"sub":"a","exp":`+text+`}`) }
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
		"empty":                {"", TokenMalformed},
		"a word":               {"secret", TokenMalformed},
		"two parts":            {parts[0] + "." + parts[1], TokenMalformed},
		"four parts":           {good + ".x", TokenMalformed},
		"five parts (JWE)":     {"a.b.c.d.e", TokenMalformed},
		"dots":                 {"..", TokenMalformed},
		"many dots":            {strings.Repeat(".", 8000), TokenMalformed},
		"padded":               {good + "=", TokenMalformed},
		"standard base64":      {parts[0] + "." + parts[1] + ".+/+/", TokenMalformed},
		"line end":             {parts[0] + "." + parts[1] + ".\n" + parts[2], TokenMalformed},
		"loose last bits":      {good[:len(good)-1] + looseEnd(good), TokenMalformed},
		"cut signature":        {good[:len(good)-3], BadSignature},
		"no signature":         {parts[0] + "." + parts[1] + ".", BadSignature},
		"header no object":     {raw(`["HS256"]`, `{}`), TokenMalformed},
		"header null":          {raw(`null`, `{}`), TokenMalformed},
		"header no JSON":       {raw(`{"alg":"HS256"`, `{}`), TokenMalformed},
		"two documents":        {raw(hs+hs, `{}`), TokenMalformed},
		"alg is a number":      {raw(`{"alg":1}`, `{}`), TokenMalformed},
		"alg is missing":       {raw(`{}`, `{}`), TokenMalformed},
		"kid is a list":        {raw(`{"alg":"HS256","kid":["a"]}`, `{}`), TokenMalformed},
		"crit":                 {raw(`{"alg":"HS256","crit":["exp"]}`, payload(t, nil)), TokenMalformed},
		"unencoded payload":    {raw(`{"alg":"HS256","b64":false,"crit":["b64"]}`, payload(t, nil)), TokenMalformed},
		"alg twice":            {raw(`{"alg":"none","alg":"HS256"}`, payload(t, nil)), TokenMalformed},
		"alg twice, escaped":   {raw(`{"alg":"HS256","\u0061lg":"HS256"}`, payload(t, nil)), TokenMalformed},
		"kid twice":            {raw(`{"alg":"HS256","kid":"a","kid":"b"}`, payload(t, nil)), TokenMalformed},
		"kid is a path":        {raw(`{"alg":"HS256","kid":"../../../../dev/null"}`, payload(t, nil)), ""}, // a secret has no ID: it isn't looked for
		"exp twice":            {raw(hs, `{"sub":"a","exp":1,"exp":9999999999}`), TokenMalformed},
		"sub twice":            {raw(hs, `{"sub":"a","sub":"b","exp":9999999999}`), TokenMalformed},
		"groups twice":         {raw(hs, `{"sub":"a","groups":[],"groups":["x"],"exp":9999999999}`), TokenMalformed},
		"another twice":        {raw(hs, `{"sub":"a","x":1,"x":2,"exp":9999999999}`), ""},
		"its own key":          {raw(`{"alg":"HS256","jwk":{"kty":"oct","k":"AAAA"},"x5c":["AAAA"],"jku":"http://127.0.0.1:1/","x5u":"http://127.0.0.1:1/"}`, payload(t, nil)), ""}, // it means nothing
		"JSON form":            {`{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`, TokenMalformed},
		"payload no object":    {raw(hs, `"sub"`), TokenMalformed},
		"payload no UTF-8":     {raw(hs, "{\"sub\":\"a\xff\",\"exp\":9999999999}"), TokenMalformed},
		"deep payload":         {raw(hs, strings.Repeat("[", 20000)), TokenMalformed},
		"no exp":               {hs256(t, map[string]any{"exp": nil}), TokenMalformed},
		"exp null":             {exp("null"), TokenMalformed},
		"exp a string":         {exp(`"9999999999"`), TokenMalformed},
		"exp hexadecimal":      {exp(`0x7fffffff`), TokenMalformed},
		"exp too large":        {exp(`1e300`), TokenMalformed},
		"exp infinite":         {exp(`1e999`), TokenMalformed},
		"exp negative":         {exp(`-1`), TokenMalformed},
		"exp zero":             {exp(`0`), TokenExpired},
		"exp long ago":         {hs256(t, map[string]any{"exp": time.Now().Add(-11 * time.Second).Unix()}), TokenExpired},
		"nbf in the future":    {hs256(t, map[string]any{"nbf": time.Now().Add(20 * time.Second).Unix()}), TokenTooEarly},
		"nbf a string":         {hs256(t, map[string]any{"nbf": "now"}), TokenMalformed},
		"no device":            {hs256(t, map[string]any{"sub": nil}), BadDevice},
		"device half a pair":   {raw(hs, `{"sub":"\ud83d","exp":9999999999}`), BadDevice},
		"device a pair":        {raw(hs, `{"sub":"\ud83d\ude00","exp":9999999999}`), ""},
		"group half a pair":    {raw(hs, `{"sub":"a","groups":["\udc00"],"exp":9999999999}`), BadGroups},
		"kid half a pair":      {raw(`{"alg":"HS256","kid":"\ud83d"}`, payload(t, nil)), TokenMalformed},
		"another half a pair":  {raw(hs, `{"sub":"a","name":"\ud83d","exp":9999999999}`), ""}, // it doesn't count
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
		"group empty":          {hs256(t, map[string]any{"groups": []string{""}}), BadGroups},
		"64 groups":            {list(64), ""},
		"65 groups":            {list(65), BadGroups},
	} {
		if got := failure(t, v, bearer(c.token)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// looseEnd is a last character that decodes to the same bytes, for a decoder
// that isn't strict.
func looseEnd(token string) string {
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return string(digits[strings.IndexByte(digits, token[len(token)-1])|1])
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
	v := verifier(t, func(o *Options) { o.Issuers = []string{"me"} })
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
		_, err := identify(v, bearer(token))
		e, ok := errors.AsType[*Error](err)
		if !ok {
			t.Fatalf("%s: %v", name, err)
		}
		told := e.Error() + e.Challenge()
		if !form.MatchString(e.Challenge()) || e.Status() != 401 || strings.Contains(told, marker) || strings.Contains(told, token[len(token)-20:]) {
			t.Errorf("%s: %d %s", name, e.Status(), told)
		}
		if n := testutil.ToFloat64(v.opts.Metrics.failures.WithLabelValues(string(e.Failure))); n == 0 {
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
