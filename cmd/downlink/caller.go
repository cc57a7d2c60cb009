package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"downlink/internal/config"
)

// backendFlags are how a command reaches a gateway's back end, and by which
// right. A token is no flag of its own: other users can see a command line.
type backendFlags struct {
	Backend   string `default:"http://127.0.0.1:9090" env:"DOWNLINK_BACKEND" help:"The gateway's back-end port."`
	TokenFile string `placeholder:"FILE" help:"File with the publisher's token, where the gateway wants one (backend_auth). Without it the token is taken from DOWNLINK_TOKEN."`
	CAFile    string `name:"ca-file" placeholder:"FILE" help:"PEM certificates that vouch for the back end's port, instead of the system's."`
}

// at is the address of a path of the back end.
func (f *backendFlags) at(path string) (string, error) {
	u, err := url.Parse(f.Backend)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return "", errors.New("--backend isn't an address of a back end; write it as http://127.0.0.1:9090")
	}
	return strings.TrimRight(f.Backend, "/") + path, nil
}

// client asks with the token, and follows nobody elsewhere with it.
func (f *backendFlags) client(loader *config.Loader, timeout time.Duration) (*http.Client, error) {
	token, err := f.token(loader)
	if err != nil {
		return nil, err
	}
	transport, _ := http.DefaultTransport.(*http.Transport) // it is one
	transport = transport.Clone()
	if f.CAFile != "" {
		pem, err := os.ReadFile(f.CAFile)
		if err != nil {
			return nil, fmt.Errorf("--ca-file: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, errors.New("--ca-file holds no PEM certificate")
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return &http.Client{
		Timeout: timeout, Transport: authorized{transport, token},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// token is empty if there is none.
func (f *backendFlags) token(loader *config.Loader) (string, error) {
	token := loader.Variable("TOKEN")
	if f.TokenFile != "" {
		data, err := os.ReadFile(f.TokenFile)
		if err != nil {
			return "", fmt.Errorf("--token-file: %w", err)
		}
		if token = strings.TrimSpace(string(data)); token == "" {
			return "", errors.New("--token-file holds no token")
		}
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", errors.New("the token (--token-file or DOWNLINK_TOKEN) holds something that no token has: a space, a line end or a letter beyond ASCII")
	}
	return token, nil
}

// authorized adds a token to requests.
type authorized struct {
	*http.Transport
	token string
}

func (a authorized) RoundTrip(r *http.Request) (*http.Response, error) {
	if a.token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+a.token)
	}
	return a.Transport.RoundTrip(r)
}
