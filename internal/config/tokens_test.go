package config_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"downlink/internal/config"
)

func TestDeviceTokens(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	secret := "--jwt-hmac-secret-file=" + file
	for _, c := range []struct {
		args string
		want []string // starts of the problems
	}{
		{"--auth=jwt " + secret, nil},
		{"--auth=jwt --listen=:8080 " + secret, nil}, // not only on loopback
		{"--auth=jwt --jwt-public-keys-file=" + file, nil},
		{"--auth=jwt --jwt-jwks-url=https://idp.example.com/keys?p=x", nil},
		{"--auth=jwt", []string{`auth "jwt" (--auth) with jwt needs keys`}},
		{"--auth=jwt --listen=:8080", []string{`auth "jwt" (--auth) with jwt needs keys`}},
		{secret, []string{`jwt_hmac_secret_file "` + file + `" (--jwt-hmac-secret-file) has no effect while auth is none`}},
		{"--auth=jwt --jwt-hmac-secret-file=/does/not/exist", []string{`jwt_hmac_secret_file "/does/not/exist" (--jwt-hmac-secret-file) can't be read`}},
		{"--auth=jwt --jwt-hmac-secret-file=/dev/null", []string{`jwt_hmac_secret_file "/dev/null" (--jwt-hmac-secret-file) can't be read again`}},
		{"--auth=jwt --jwt-jwks-url=https://u:hunter2@idp.example.com/keys", []string{`jwt_jwks_url "https:***" (--jwt-jwks-url) has a user or password`}},
		{"--auth=jwt --jwt-jwks-url=idp.example.com", []string{`jwt_jwks_url "idp.example.com" (--jwt-jwks-url) isn't an https or http URL`}},
		{"--auth=jwt --jwt-jwks-url=file:///etc/keys", []string{`jwt_jwks_url "file:///etc/keys" (--jwt-jwks-url) isn't`}},
		{"--auth=jwt --jwt-leeway=1h " + secret, []string{`jwt_leeway "1h" (--jwt-leeway) isn't allowed; allowed: 0 (off), or 1ms to 5m`}},
		{"--auth=jwt --jwt-cookie=a;b " + secret, []string{`jwt_cookie "a;b" (--jwt-cookie) can't be a cookie's name`}},
		{"--auth=jwt --jwt-device-claim= " + secret, []string{`jwt_device_claim (--jwt-device-claim) is empty`}},
		{"--tls-cert-file=" + file, []string{`tls_cert_file "` + file + `" (--tls-cert-file) needs tls_key_file too`}},
		{"--tls-key-file=" + file, []string{`tls_key_file "` + file + `" (--tls-key-file) needs tls_cert_file too`}},
	} {
		args := append([]string{loopback}, strings.Fields(c.args)...)
		if strings.Contains(c.args, "--listen") {
			args = args[1:]
		}
		got := problems(t, args, nil)
		if len(got) != len(c.want) || slices.IndexFunc(got, func(g string) bool { return !strings.HasPrefix(g, c.want[0]) }) >= 0 {
			t.Errorf("%s: %q, want %q", c.args, got, c.want)
		}
	}
}

func TestLists(t *testing.T) {
	path := write(t, "jwt_issuer: https://a.example, https://b.example\njwt_audience: x\n")
	c, err := config.Load([]string{loopback, "--config", path, "--jwt-audience=y, z", "--jwt-audience=w,"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.JWTIssuers.Items(); !slices.Equal(got, []string{"https://a.example", "https://b.example"}) {
		t.Errorf("issuers: %q", got)
	}
	if got := c.JWTAudiences.Items(); !slices.Equal(got, []string{"y", "z", "w"}) {
		t.Errorf("audiences: %q", got)
	}
}

func TestTokenWarningsAndWhatIsShown(t *testing.T) {
	var c config.Config
	l := config.NewLoader(nil)
	parser, err := kong.New(&c, l.Options()...)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"--auth=jwt", "--insecure-no-auth", "--jwt-jwks-url=http://idp.example.com/keys", "--jwt-issuer=https://idp.example.com/realms/x", "--jwt-audience=,"}
	if _, err := parser.Parse(args); err != nil {
		t.Fatal(err)
	}
	if err := l.Check(&c); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(l.Warnings(&c), "\n")
	for _, want := range []string{"insecure_no_auth has no effect", "without jwt_audience", "is http:"} {
		if strings.Count(got, want) != 1 {
			t.Errorf("no warning that says %q:\n%s", want, got)
		}
	}
	for _, s := range l.Settings(&c) {
		if want := map[string]string{"jwt_jwks_url": "http://idp.example.com/keys", "jwt_issuer": "https://idp.example.com/realms/x"}[s.Key.Name]; want != "" && s.Value != want {
			t.Errorf("%s is shown as %s", s.Key.Name, s.Value)
		}
	}
}
