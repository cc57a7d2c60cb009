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

func TestPublishersTicketsAndOrigins(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, want string }{ // the start of the only problem; empty: none
		{"--backend-listen=:9090", `backend_listen ":9090" (--backend-listen) can be reached from outside while backend_auth is none`},
		{"--backend-listen=10.0.0.1:9090", `backend_listen "10.0.0.1:9090" (--backend-listen) can be reached from outside`},
		{"--backend-listen=:9090 --insecure-open-backend", ""},
		{"--backend-listen=[::1]:9090", ""},
		{"--backend-listen=:9090 --backend-auth=tokens --publishers-file=" + file, ""},
		{"--backend-auth=tokens", `backend_auth "tokens" (--backend-auth) with tokens needs the file`},
		{"--backend-auth=tokens,none --publishers-file=" + file, `backend_auth "tokens,none" (--backend-auth) has none beside`},
		{"--backend-auth=basic", `backend_auth "basic" (--backend-auth) isn't allowed`},
		{"--backend-auth=jwt --backend-jwt-audience=x", `backend_auth "jwt" (--backend-auth) with jwt needs keys`},
		{"--backend-auth=jwt --backend-jwt-hmac-secret-file=" + file, `backend_auth "jwt" (--backend-auth) with jwt needs an audience`},
		{"--backend-auth=jwt --backend-jwt-audience=x --backend-jwt-hmac-secret-file=" + file, ""},
		{"--backend-auth=jwt,tokens --backend-jwt-audience=x --backend-jwt-jwks-url=https://idp.example --publishers-file=" + file, ""},
		{"--backend-auth=jwt --backend-jwt-audience=x --backend-jwt-jwks-url=https://u:hunter2@idp.example", `backend_jwt_jwks_url "https://u:***@idp.example" (--backend-jwt-jwks-url) has a user`},
		{"--backend-auth=jwt --backend-jwt-audience=x --jwt-audience=y,x --backend-jwt-public-keys-file=" + file, `backend_jwt_audience "x" (--backend-jwt-audience) names an audience of devices`},
		{"--publishers-file=" + file, `publishers_file "` + file + `" (--publishers-file) has no effect while backend_auth is none`},
		{"--backend-jwt-audience=x", `backend_jwt_audience "x" (--backend-jwt-audience) has no effect`},
		{"--backend-auth=tokens --publishers-file=/does/not/exist", `publishers_file "/does/not/exist" (--publishers-file) can't be read`},
		{"--backend-tls-cert-file=" + file, `backend_tls_cert_file "` + file + `" (--backend-tls-cert-file) needs backend_tls_key_file too`},
		{"--auth=tickets", `auth "tickets" (--auth) with tickets needs secrets`},
		{"--auth=tickets --ticket-secret-file=" + file, ""},
		{"--ticket-secret-file=" + file, `ticket_secret_file "` + file + `" (--ticket-secret-file) has no effect while auth is none`},
		{"--auth=tickets,none --ticket-secret-file=" + file, `auth "tickets,none" (--auth) has none beside`},
		{"--ticket-session=25h", `ticket_session "25h" (--ticket-session) isn't allowed`},
		{"--cors-origins=https://a.example,http://localhost:3000", ""},
		{"--cors-origins=*", ""},
		{"--cors-origins=*,https://a.example", `cors_origins "*,https://a.example" (--cors-origins) has * beside`},
		{"--cors-origins=null", `cors_origins "null" (--cors-origins) holds an origin that is what every sandboxed page`},
		{"--cors-origins=https://a.example/", `cors_origins "https://a.example/" (--cors-origins) holds an origin that isn't how a browser writes it; write https://a.example`},
	} {
		got := problems(t, append([]string{loopback}, strings.Fields(c.args)...), nil)
		if c.want == "" && len(got) != 0 || c.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], c.want)) {
			t.Errorf("%s: %q, want %q", c.args, got, c.want)
		}
	}
}

func TestPublisherWarnings(t *testing.T) {
	for args, want := range map[string]string{
		"": "",
		"--backend-listen=:9090 --insecure-open-backend":                         "whoever reaches this port can send to every device",
		"--backend-listen=:9090 --backend-auth=tokens":                           "without TLS",
		"--backend-listen=:9090 --backend-auth=tokens --backend-tls-cert-file=x": "",
		"--backend-auth=tokens --insecure-open-backend":                          "insecure_open_backend has no effect",
		"--backend-auth=jwt --backend-jwt-jwks-url=http://idp.example":           "can do everything",
		"--backend-auth=jwt --backend-jwt-jwks-url=http://127.0.0.1:1":           "",
	} {
		var c config.Config
		l := config.NewLoader([]string{"DOWNLINK_TOKEN=x"})
		parser, err := kong.New(&c, l.Options()...)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parser.Parse(append([]string{loopback}, strings.Fields(args)...)); err != nil {
			t.Fatal(err)
		}
		got := l.Warnings(&c)
		if want == "" && len(got) != 0 || want != "" && !slices.ContainsFunc(got, func(w string) bool { return strings.Contains(w, want) }) {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
}
