package inventory

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"downlink/internal/reload"
)

// HTTPOptions say where a list is fetched.
type HTTPOptions struct {
	URL       string
	TokenFile string        // with a bearer token, read at each fetch; empty: none
	CAFile    string        // certificates that vouch for the server; empty: the system's
	Timeout   time.Duration // of one fetch, whole; 0 means 30 s
}

// An HTTP is a source that asks a server.
type HTTP struct {
	opts HTTPOptions
	url  *url.URL
	http *http.Client

	etag string            // of the answer that counts
	used [sha256.Size]byte // of its text
}

// NewHTTP is a source that fetches an address. Its error says what is wrong with
// the options, without the address, which may hold a secret.
func NewHTTP(o HTTPOptions) (*HTTP, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil {
		return nil, errors.New("the address of the inventory must be an https or http URL without user and password")
	}
	if o.Timeout <= 0 {
		o.Timeout = 30 * time.Second
	}
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CAFile != "" {
		text, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, err
		}
		secure.RootCAs = x509.NewCertPool()
		if !secure.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s holds no certificate in PEM form", o.CAFile)
		}
	}
	// One answer each few seconds: a kept connection would only go stale.
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: secure, DisableKeepAlives: true}
	return &HTTP{opts: o, url: u, http: &http.Client{Transport: transport, Timeout: o.Timeout, CheckRedirect: checkRedirect}}, nil
}

const maxRedirects = 5

// checkRedirect: whoever could answer over http in the server's place could say
// where events are sent.
func checkRedirect(next *http.Request, via []*http.Request) error {
	if len(via) >= maxRedirects {
		return errors.New("it redirects in a loop")
	}
	if next.URL.Scheme != "https" && via[0].URL.Scheme == "https" {
		return errors.New("it redirects from https to http")
	}
	return nil
}

// Name is the address without its query.
func (h *HTTP) Name() string { return h.url.Scheme + "://" + h.url.Host + h.url.EscapedPath() }

// Fetch asks the server, and tells it which answer counts (ETag).
func (h *HTTP) Fetch(ctx context.Context) (*List, error) {
	list, err := h.fetch(ctx)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // without the URL
		}
		return nil, fmt.Errorf("the inventory from %s: %w", h.Name(), err)
	}
	return list, nil
}

func (h *HTTP) fetch(ctx context.Context) (*List, error) {
	req, err := h.request(ctx)
	if err != nil {
		return nil, err
	}
	resp, err := h.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotModified:
		if h.etag != "" {
			return nil, nil
		}
		return nil, errors.New("it answers 304 to a question without a condition")
	default:
		return nil, fmt.Errorf("it answers %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	form, err := h.formatOf(resp)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxListBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxListBytes {
		return nil, fmt.Errorf("it answers with more than %d bytes, which no inventory has", maxListBytes)
	}
	list, err := listOf("its answer", form, text, &h.used)
	if list == nil || err != nil {
		return nil, err
	}
	etag, note := resp.Header.Get("ETag"), list.Used
	list.Used = func() { note(); h.etag = etag }
	return list, nil
}

func (h *HTTP) request(ctx context.Context) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.url.String(), http.NoBody)
	if err != nil {
		return nil, errors.New("its address can't be used")
	}
	req.Header.Set("Accept", "application/json, text/csv")
	if h.etag != "" {
		req.Header.Set("If-None-Match", h.etag)
	}
	if h.opts.TokenFile == "" {
		return req, nil
	}
	token, err := readToken(h.opts.TokenFile)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	return req, nil
}

// maxTokenBytes is far above any real token.
const maxTokenBytes = 16 << 10

func readToken(path string) (string, error) {
	text, err := reload.File(path, maxTokenBytes)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%s doesn't hold one token: printable characters without spaces", path)
	}
	return token, nil
}

// formatOf says how an answer is written. It is never YAML, in which a few lines
// from somebody else can stand for gigabytes.
func (h *HTTP) formatOf(resp *http.Response) (format, error) {
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch media {
	case "application/json":
		return formatJSON, nil
	case "text/csv":
		return formatCSV, nil
	}
	if f, err := formatOf(h.url.Path); err == nil && f != formatYAML {
		return f, nil
	}
	return "", errors.New("its Content-Type is neither application/json nor text/csv")
}
