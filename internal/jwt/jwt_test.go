package jwt

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
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	jws "github.com/golang-jwt/jwt/v5"
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
		HMACSecretFile: write(t, secret), Leeway: 10 * time.Second, Claims: []string{"sub", "groups"}, Holders: Devices,
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
func sign(t testing.TB, header, payload string, m jws.SigningMethod, key any) string {
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
	return sign(t, `{"alg":"HS256","typ":"JWT"}`, payload(t, claims), jws.SigningMethodHS256, secret)
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

// failure is why a token isn't accepted; empty if it is.
func failure(t testing.TB, v *Verifier, token string) Failure {
	t.Helper()
	_, _, err := v.Check(t.Context(), token)
	if err == nil {
		return ""
	}
	e, ok := errors.AsType[*Error](err)
	if !ok {
		t.Fatalf("another error: %v", err)
	}
	return e.Failure
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
	for m, key := range map[jws.SigningMethod]any{
		jws.SigningMethodHS256: secret, jws.SigningMethodHS384: secret, jws.SigningMethodHS512: secret,
		jws.SigningMethodRS256: k.rsa, jws.SigningMethodRS384: k.rsa, jws.SigningMethodRS512: k.rsa,
		jws.SigningMethodPS256: k.rsa, jws.SigningMethodPS384: k.rsa, jws.SigningMethodPS512: k.rsa,
		jws.SigningMethodES256: k.p256, jws.SigningMethodES384: k.p384, jws.SigningMethodES512: k.p521,
		jws.SigningMethodEdDSA: k.ed,
	} {
		token := sign(t, `{"alg":"`+m.Alg()+`"}`, payload(t, nil), m, key)
		if got := failure(t, v, token); got != "" {
			t.Errorf("%s: %s", m.Alg(), got)
		}
		// The same signature under another payload.
		parts := strings.Split(token, ".")
		parts[1] = encode(payload(t, map[string]any{"sub": "pos-2"}))
		if got := failure(t, v, strings.Join(parts, ".")); got != BadSignature {
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
		"PEM as a secret":  sign(t, `{"alg":"HS256"}`, p, jws.SigningMethodHS256, file),
		"PEM without end":  sign(t, `{"alg":"HS256"}`, p, jws.SigningMethodHS256, bytes.TrimSpace(file)),
		"DER as a secret":  sign(t, `{"alg":"HS256"}`, p, jws.SigningMethodHS256, der),
		"N as a secret":    sign(t, `{"alg":"HS512"}`, p, jws.SigningMethodHS512, k.rsa.N.Bytes()),
		"another's curve":  sign(t, `{"alg":"ES256"}`, p, jws.SigningMethodES256, k.p256),
		"key in its head":  sign(t, `{"alg":"ES256","jwk":{"kty":"EC"},"jku":"http://127.0.0.1:1/"}`, p, jws.SigningMethodES256, k.p256),
		"lower case":       sign(t, `{"alg":"rs256"}`, p, jws.SigningMethodRS256, k.rsa),
		"alg and ALG":      sign(t, `{"ALG":"RS256","alg":"none"}`, p, jws.SigningMethodRS256, k.rsa),
		"HS by the wrong":  sign(t, `{"alg":"HS256"}`, p, jws.SigningMethodHS256, []byte("guess")),
		"EdDSA without it": sign(t, `{"alg":"EdDSA"}`, p, jws.SigningMethodEdDSA, k.ed),
	} {
		if got := failure(t, onlyRSA, token); got != BadAlgorithm {
			t.Errorf("%s: %q", name, got)
		}
	}
	// ES256 on P-384, with a signature of ES256's size.
	wrongCurve := verifier(t, func(o *Options) { o.HMACSecretFile, o.PublicKeysFile = "", write(t, pemOf(t, &k.p384.PublicKey, "")) })
	if got := failure(t, wrongCurve, sign(t, `{"alg":"ES256"}`, p, jws.SigningMethodES256, k.p256)); got != BadAlgorithm {
		t.Errorf("another curve: %q", got)
	}
	// A secret that is too short for the hash isn't used for it.
	short := verifier(t, func(o *Options) { o.HMACSecretFile = write(t, secret[:40]) })
	for m, want := range map[jws.SigningMethod]Failure{jws.SigningMethodHS256: "", jws.SigningMethodHS384: BadAlgorithm, jws.SigningMethodHS512: BadAlgorithm} {
		if got := failure(t, short, sign(t, `{"alg":"`+m.Alg()+`"}`, p, m, secret[:40])); got != want {
			t.Errorf("%s with 40 bytes: %q, want %q", m.Alg(), got, want)
		}
	}
}

func TestHostileTokens(t *testing.T) {
	v := verifier(t, nil)
	good := hs256(t, nil)
	parts := strings.Split(good, ".")
	raw := func(header, payload string) string { return sign(t, header, payload, jws.SigningMethodHS256, secret) }
	const hs = `{"alg":"HS256"}`
	exp := func(text string) string { return raw(hs, `{"sub":"a","exp":`+text+`}`) }
	for name, c := range map[string]struct {
		token string
		want  Failure
	}{
		"empty":               {"", Malformed},
		"a word":              {"secret", Malformed},
		"two parts":           {parts[0] + "." + parts[1], Malformed},
		"four parts":          {good + ".x", Malformed},
		"five parts (JWE)":    {"a.b.c.d.e", Malformed},
		"dots":                {"..", Malformed},
		"many dots":           {strings.Repeat(".", 8000), Malformed},
		"padded":              {good + "=", Malformed},
		"standard base64":     {parts[0] + "." + parts[1] + ".+/+/", Malformed},
		"line end":            {parts[0] + "." + parts[1] + ".\n" + parts[2], Malformed},
		"loose last bits":     {good[:len(good)-1] + looseEnd(good), Malformed},
		"cut signature":       {good[:len(good)-3], BadSignature},
		"no signature":        {parts[0] + "." + parts[1] + ".", BadSignature},
		"header no object":    {raw(`["HS256"]`, `{}`), Malformed},
		"header null":         {raw(`null`, `{}`), Malformed},
		"header no JSON":      {raw(`{"alg":"HS256"`, `{}`), Malformed},
		"two documents":       {raw(hs+hs, `{}`), Malformed},
		"alg is a number":     {raw(`{"alg":1}`, `{}`), Malformed},
		"alg is missing":      {raw(`{}`, `{}`), Malformed},
		"kid is a list":       {raw(`{"alg":"HS256","kid":["a"]}`, `{}`), Malformed},
		"crit":                {raw(`{"alg":"HS256","crit":["exp"]}`, payload(t, nil)), Malformed},
		"unencoded payload":   {raw(`{"alg":"HS256","b64":false,"crit":["b64"]}`, payload(t, nil)), Malformed},
		"alg twice":           {raw(`{"alg":"none","alg":"HS256"}`, payload(t, nil)), Malformed},
		"alg twice, escaped":  {raw(`{"alg":"HS256","\u0061lg":"HS256"}`, payload(t, nil)), Malformed},
		"kid twice":           {raw(`{"alg":"HS256","kid":"a","kid":"b"}`, payload(t, nil)), Malformed},
		"kid is a path":       {raw(`{"alg":"HS256","kid":"../../../../dev/null"}`, payload(t, nil)), ""}, // a secret has no ID: it isn't looked for
		"exp twice":           {raw(hs, `{"sub":"a","exp":1,"exp":9999999999}`), Malformed},
		"sub twice":           {raw(hs, `{"sub":"a","sub":"b","exp":9999999999}`), Malformed},
		"groups twice":        {raw(hs, `{"sub":"a","groups":[],"groups":["x"],"exp":9999999999}`), Malformed},
		"another twice":       {raw(hs, `{"sub":"a","x":1,"x":2,"exp":9999999999}`), ""},
		"its own key":         {raw(`{"alg":"HS256","jwk":{"kty":"oct","k":"AAAA"},"x5c":["AAAA"],"jku":"http://127.0.0.1:1/","x5u":"http://127.0.0.1:1/"}`, payload(t, nil)), ""}, // it means nothing
		"JSON form":           {`{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`, Malformed},
		"payload no object":   {raw(hs, `"sub"`), Malformed},
		"payload no UTF-8":    {raw(hs, "{\"sub\":\"a\xff\",\"exp\":9999999999}"), Malformed},
		"deep payload":        {raw(hs, strings.Repeat("[", 20000)), Malformed},
		"no exp":              {hs256(t, map[string]any{"exp": nil}), Malformed},
		"exp null":            {exp("null"), Malformed},
		"exp a string":        {exp(`"9999999999"`), Malformed},
		"exp hexadecimal":     {exp(`0x7fffffff`), Malformed},
		"exp too large":       {exp(`1e300`), Malformed},
		"exp infinite":        {exp(`1e999`), Malformed},
		"exp negative":        {exp(`-1`), Malformed},
		"exp zero":            {exp(`0`), Expired},
		"exp long ago":        {hs256(t, map[string]any{"exp": time.Now().Add(-11 * time.Second).Unix()}), Expired},
		"nbf in the future":   {hs256(t, map[string]any{"nbf": time.Now().Add(20 * time.Second).Unix()}), TooEarly},
		"nbf a string":        {hs256(t, map[string]any{"nbf": "now"}), Malformed},
		"kid half a pair":     {raw(`{"alg":"HS256","kid":"\ud83d"}`, payload(t, nil)), Malformed},
		"another half a pair": {raw(hs, `{"sub":"a","name":"\ud83d","exp":9999999999}`), ""}, // it doesn't count
	} {
		if got := failure(t, v, c.token); got != c.want {
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
