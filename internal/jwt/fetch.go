package jwt

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
)

// maxKeySetBytes is far above any real key set.
const maxKeySetBytes = 1 << 20

// A fetcher gets a key set over HTTP.
type fetcher struct {
	url  *url.URL
	http *http.Client
}

func newFetcher(o JWKSOptions) (*fetcher, error) {
	// The parser's error would repeat the URL, which may hold a password.
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return nil, errors.New("the address of the key set must be an https or http URL")
	}
	transport := &http.Transport{
		Proxy:           http.ProxyFromEnvironment,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12},
		// One small answer in minutes: a kept connection would only go stale.
		DisableKeepAlives: true,
	}
	if o.CAFile != "" {
		text, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, err
		}
		transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s holds no certificate in PEM form", o.CAFile)
		}
	}
	return &fetcher{url: u, http: &http.Client{Transport: transport, CheckRedirect: checkRedirect}}, nil
}

const maxRedirects = 5

// checkRedirect: whoever could answer over http in place of the issuer could
// make tokens.
func checkRedirect(next *http.Request, via []*http.Request) error {
	if len(via) >= maxRedirects {
		return errors.New("it redirects in a loop")
	}
	if next.URL.Scheme != "https" && via[0].URL.Scheme == "https" {
		return errors.New("it redirects from https to http")
	}
	return nil
}

// fetch gets the key set once. Its errors name the host and no more of the
// URL.
func (f *fetcher) fetch(ctx context.Context) (keyring, error) {
	keys, err := f.get(ctx)
	if err != nil {
		return nil, fmt.Errorf("the key set of %s: %w", f.url.Host, err)
	}
	return keys, nil
}

func (f *fetcher) get(ctx context.Context) (keyring, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url.String(), nil)
	if err != nil {
		return nil, errors.New("its address can't be used")
	}
	req.Header.Set("Accept", "application/jwk-set+json, application/json")
	resp, err := f.http.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // without the URL
		}
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answers %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxKeySetBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxKeySetBytes {
		return nil, errors.New("it answers with more than 1 MiB, which no key set has")
	}
	return parseKeySet(data)
}
