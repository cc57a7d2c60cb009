package config_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"downlink/internal/config"
)

func TestWaysToProveAnIdentity(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	expand := strings.NewReplacer("FILE", file, "TLS", "--tls-cert-file="+file+" --tls-key-file="+file, "SECRET", "--jwt-hmac-secret-file="+file,
		"PROXY", "--proxy-device-header=X-Device --trusted-proxies=10.0.0.0/8").Replace
	for _, c := range []struct {
		args string
		want string // part of the only problem; empty: there is none
	}{
		{"--auth=tokens --device-tokens-file=FILE", ""},
		{"--auth=mtls TLS --tls-client-ca-file=FILE --tls-client-crl-file=FILE", ""},
		{"--auth=proxy PROXY --proxy-groups-header=X-Groups", ""},
		{"--auth=jwt,tokens --auth=mtls TLS SECRET --device-tokens-file=FILE --tls-client-ca-file=FILE", ""},
		{"--auth=jwt,basic SECRET", `auth "jwt,basic" (--auth) isn't allowed`},
		{"--auth=,", "isn't allowed"},
		{"--auth=none,jwt SECRET", "would then protect nothing"},
		{"--auth=tokens", "device_tokens_file"},
		{"--auth=tokens --device-tokens-file=FILE.none", "can't be read"},
		{"--auth=mtls --tls-client-ca-file=FILE", "tls_cert_file"},
		{"--auth=mtls TLS", "tls_client_ca_file"},
		{"--auth=proxy --trusted-proxies=10.0.0.1", "proxy_device_header"},
		{"--auth=proxy --proxy-device-header=X-Device", "trusted_proxies"},
		{"--auth=jwt SECRET --device-tokens-file=FILE", "device_tokens_file"},
		{"--auth=jwt SECRET --tls-client-ca-file=FILE", "has no effect while auth is jwt; add mtls"},
		{"--auth=jwt SECRET --tls-client-crl-file=FILE", "has no effect"},
		{"--auth=jwt SECRET --proxy-device-header=X-Device", "has no effect"},
		{"--auth=jwt SECRET --proxy-groups-header=X-Groups", "has no effect"},
		{"--auth=jwt SECRET --trusted-proxies=10.0.0.0/8", ""}, // it is for the addresses of clients too
		{"--auth=proxy PROXY --trusted-proxies=0.0.0.0/0", "trusts every address"},
		{"--auth=proxy PROXY --trusted-proxies=::/0", "trusts every address"},
		{"--auth=proxy PROXY --trusted-proxies=proxy.example.com", "neither an address nor a network"},
		{"--auth=proxy PROXY --proxy-groups-header=x-device", "is the header with the device too"},
		{"--auth=proxy --trusted-proxies=10.0.0.1 --proxy-device-header=Authorization", "another purpose"},
		{"--auth=proxy --trusted-proxies=10.0.0.1 --proxy-device-header=X:Device", "can't be a header's name"},
		{"--auth=none --mtls-device-form=device", "must have {device}"},
		{"--auth=none --mtls-device-form={device}{device}", "must have {device}"},
		{"--auth=none --mtls-device=dn", "isn't allowed"},
		{"--auth=jwt --jwt-jwks-url=https://a.example,https://b.example", "without an issuer"},
	} {
		got := problems(t, append([]string{loopback}, strings.Fields(expand(c.args))...), nil)
		if c.want == "" && len(got) != 0 || c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)) {
			t.Errorf("%s: %q, want %q", c.args, got, c.want)
		}
	}
}

func TestKeySetsOfIssuers(t *testing.T) {
	for _, c := range []struct {
		value string
		want  []config.KeySet
		fault string
	}{
		{"https://a.example/keys", []config.KeySet{{URL: "https://a.example/keys"}}, ""},
		{"https://a.example https://a.example/keys, partner  http://127.0.0.1/b?c=d,https://c", []config.KeySet{
			{Issuer: "https://a.example", URL: "https://a.example/keys"}, {Issuer: "partner", URL: "http://127.0.0.1/b?c=d"}, {URL: "https://c"},
		}, ""},
		{"https://a.example https://a/1, https://a.example https://a/2", nil, "names an issuer twice"},
		{"https://a.example keys", nil, "isn't an https or http URL"},
		{"https://a.example https://u:hunter2@a.example/keys", nil, "user or password"},
	} {
		cfg, err := config.Load([]string{loopback, "--auth=jwt", "--jwt-jwks-url", c.value}, nil)
		if c.fault != "" {
			if err == nil || !strings.Contains(err.Error(), c.fault) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: %v, want %q", c.value, err, c.fault)
			}
			continue
		}
		if err != nil || !slices.Equal(cfg.KeySets(), c.want) {
			t.Errorf("%s: %+v, %v", c.value, cfg, err)
		}
	}
}

func TestProxiesAreRead(t *testing.T) {
	cfg, err := config.Load([]string{loopback, "--trusted-proxies=10.1.2.3/8, 192.0.2.7,::ffff:192.0.2.8,fd00::1%eth0"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var want []netip.Prefix
	for _, text := range []string{"10.0.0.0/8", "192.0.2.7/32", "192.0.2.8/32", "fd00::1/128"} {
		want = append(want, netip.MustParsePrefix(text))
	}
	if got := cfg.Proxies(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestOpenKeysAreWarnedOf: public keys that are for others too.
func TestOpenKeysAreWarnedOf(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string][]string{
		"--jwt-hmac-secret-file=" + file:                                                    nil,
		"--jwt-public-keys-file=" + file:                                                    {"jwt_public_keys_file without jwt_audience", "jwt_public_keys_file without jwt_issuer"},
		"--jwt-jwks-url=https://a.example/keys":                                             {"jwt_jwks_url without jwt_audience", "jwt_jwks_url without jwt_issuer"},
		"--jwt-jwks-url=https://a.example/keys --jwt-issuer=a":                              {"jwt_jwks_url without jwt_audience"},
		"--jwt-jwks-url=https://a.example/keys --jwt-audience=a":                            {"jwt_jwks_url without jwt_issuer"},
		"--jwt-jwks-url=https://a.example|https://a.example/keys --jwt-audience=a":          nil,
		"--jwt-jwks-url=https://a.example|http://a.example/keys --jwt-audience=a":           {"is http:"},
		"--jwt-jwks-url=https://a.example|http://127.0.0.1/keys --jwt-audience=downlink":    nil,
		"--jwt-hmac-secret-file=" + file + " --insecure-no-auth":                            {"insecure_no_auth has no effect"},
		"--jwt-public-keys-file=" + file + " --jwt-audience=downlink --jwt-issuer=https://": nil,
	} {
		var c config.Config
		l := config.NewLoader(nil)
		parser, err := kong.New(&c, l.Options()...)
		if err != nil {
			t.Fatal(err)
		}
		flags := append([]string{loopback, "--auth=jwt"}, strings.Fields(args)...)
		for i := range flags {
			flags[i] = strings.ReplaceAll(flags[i], "|", " ")
		}
		if _, err := parser.Parse(flags); err != nil {
			t.Fatal(err)
		}
		if err := l.Check(&c); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, w := range l.Warnings(&c) {
			if !strings.HasPrefix(w, "backend_") {
				got = append(got, w)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: %q, want %q", args, got, want)
			continue
		}
		for i := range want {
			if !strings.Contains(got[i], want[i]) {
				t.Errorf("%s: %q, want %q", args, got[i], want[i])
			}
		}
	}
}
