package gateway

import (
	"bytes"
	"context"
	"crypto/x509"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"downlink/internal/auth"
	"downlink/internal/certs"
	"downlink/internal/jwt"
	"downlink/internal/reload"
	"downlink/internal/testkit"
)

// heard is what was logged.
type heard struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (h *heard) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.buf.Write(b)
}

func (h *heard) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.buf.String()
}

func noInstruments() instruments {
	return instruments{auth: auth.NewMetrics(nil), jwt: jwt.NewMetrics(nil), certs: certs.NewMetrics(nil), reload: reload.NewMetrics(nil)}
}

// TestDatesAreWatched: what becomes wrong while the gateway runs is said, once.
func TestDatesAreWatched(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	synctest.Test(t, func(t *testing.T) {
		ca := testkit.NewAuthority(t, "ca")
		testkit.WriteCertificates(t, file("ca.pem"), ca.Cert)
		testkit.Put(t, file("crl.pem"), ca.Revoke(nil)) // for an hour
		ca.Issue("localhost", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(90 * time.Minute) }).Write(t, dir, "server")
		var said heard
		c, err := openCredentials(Options{
			Certificate: CertFiles{Cert: file("server.pem"), Key: file("server-key.pem")},
			Identity:    IdentityOptions{Certificates: &ClientCertOptions{CAFile: file("ca.pem"), CRLFile: file("crl.pem"), Field: "cn", Form: "{device}"}},
			Logger:      slog.New(slog.NewTextHandler(&said, nil)),
		}, noInstruments())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var watching sync.WaitGroup
		watching.Go(func() { c.watchDates(ctx, time.Minute) })
		for _, step := range []struct {
			wait time.Duration
			want int
		}{{59 * time.Minute, 0}, {3 * time.Minute, 1}, {30 * time.Minute, 2}, {5 * time.Hour, 2}} {
			time.Sleep(step.wait) //nolint:forbidigo // in a bubble
			synctest.Wait()
			if n := strings.Count(said.String(), "likely to be regretted"); n != step.want {
				t.Errorf("after another %v it was said %d times, want %d:\n%s", step.wait, n, step.want, said.String())
			}
		}
		cancel()
		watching.Wait()
	})
}

// TestFilesThatCannotBeOpened are known at once, and named.
func TestFilesThatCannotBeOpened(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	for _, id := range []IdentityOptions{
		{TokensFile: none},
		{JWT: &TokenOptions{Keys: KeyOptions{HMACSecretFile: none}}},
		{Certificates: &ClientCertOptions{CAFile: none, Form: "{device}"}},
	} {
		if _, err := CheckFiles(Options{Identity: id, Logger: slog.New(slog.DiscardHandler)}); err == nil || !strings.Contains(err.Error(), none) {
			t.Errorf("%+v: %v", id, err)
		}
	}
}
