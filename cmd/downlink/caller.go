package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"downlink/internal/config"
)

// callerFlags are how a command shows a back end who calls.
type callerFlags struct {
	TokenFile string `placeholder:"FILE" help:"File with a token, where the back end wants one (backend_auth). Without it the token is taken from DOWNLINK_TOKEN."`
	CAFile    string `name:"ca-file" placeholder:"FILE" help:"PEM certificates that vouch for the back end's port, instead of the system's."`
}

// backendFlags are how a command reaches a gateway's back end.
type backendFlags struct {
	Backend     string `default:"http://127.0.0.1:9090" env:"DOWNLINK_BACKEND" help:"The gateway's back-end port."`
	callerFlags `embed:""`
}

// at is the address of a path of the back end.
func (f *backendFlags) at(path string) (string, error) {
	u, err := url.Parse(f.Backend)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return "", errors.New("--backend isn't an address of a back end; write it as http://127.0.0.1:9090")
	}
	return strings.TrimRight(f.Backend, "/") + path, nil
}

// client asks with the token, and follows nobody elsewhere with it. It connects
// to the address dial, or to the URL's if that is empty.
func (f *callerFlags) client(loader *config.Loader, timeout time.Duration, dial string) (*http.Client, error) {
	token, err := f.token(loader)
	if err != nil {
		return nil, err
	}
	roots, err := readRoots(f.CAFile)
	if err != nil {
		return nil, err
	}
	transport, _ := http.DefaultTransport.(*http.Transport) // it is one
	transport = transport.Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	if dial != "" {
		transport.Proxy = nil // it would choose an address itself
		transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, dial)
		}
	}
	return &http.Client{
		Timeout: timeout, Transport: authorized{transport, token},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// once sends one request to the back end, on a connection of its own.
func (f *backendFlags) once(ctx context.Context, loader *config.Loader, timeout time.Duration, method, path string, body []byte) (status int, answer []byte, err error) {
	at, err := f.at(path)
	if err != nil {
		return 0, nil, usage(err)
	}
	client, err := f.client(loader, timeout, "")
	if err != nil {
		return 0, nil, usage(err)
	}
	defer client.CloseIdleConnections()
	return exchange(ctx, client, method, at, body)
}

// exchange sends one request and reads the answer, whatever its status is.
func exchange(ctx context.Context, client *http.Client, method, at string, body []byte) (status int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, at, bytes.NewReader(body))
	if err != nil {
		return 0, nil, usage(errors.New("--backend isn't an address of a back end"))
	}
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, unreachable(err)
	}
	defer resp.Body.Close()
	if answer, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer)); err != nil {
		return 0, nil, fmt.Errorf("the answer broke off: %w", err)
	}
	return resp.StatusCode, answer, nil
}

// readRoots are the certificates in a file, nil without one.
func readRoots(path string) (*x509.CertPool, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the certificates can't be read: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate in PEM form", path)
	}
	return roots, nil
}

// token is empty if there is none.
func (f *callerFlags) token(loader *config.Loader) (string, error) {
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
