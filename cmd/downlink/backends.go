package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
)

// An askable is the back-end port of one gateway.
type askable struct {
	name string // for people
	url  string // without a slash at its end
	dial string // host:port to connect to; empty: as the URL says
}

// findBackends are the gateways behind some URLs.
func findBackends(ctx context.Context, urls []string) ([]askable, error) {
	var found []askable
	for _, text := range urls {
		u, err := url.Parse(text)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			return nil, usage(errors.New("--backend isn't an address of a back end; write it as http://127.0.0.1:9090"))
		}
		base := strings.TrimRight(text, "/")
		addresses := addressesOf(ctx, u.Hostname())
		if len(addresses) < 2 {
			found = append(found, askable{name: u.Host, url: base})
			continue
		}
		for _, a := range addresses {
			at := net.JoinHostPort(a, portOf(u))
			found = append(found, askable{name: at, url: base, dial: at})
		}
	}
	return found, nil
}

// addressesOf are the addresses of a host name that may each be a gateway's:
// those of IPv4, if there are any, because one machine mostly has one of each
// kind. None where it can't be told, or where all are this machine.
func addressesOf(ctx context.Context, host string) []string {
	if _, err := netip.ParseAddr(host); err == nil {
		return nil
	}
	all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil // asking by name says why
	}
	var four, six []string
	for _, a := range all {
		switch a = a.Unmap(); {
		case a.IsLoopback():
			return nil
		case a.Is4():
			four = append(four, a.String())
		default:
			six = append(six, a.String())
		}
	}
	if len(four) > 0 {
		return four
	}
	return six
}

func portOf(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	default:
		return "80"
	}
}

// transport connects to this gateway, whichever address its name has.
func (b askable) transport(roots rootCertificates) *http.Transport {
	t := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true}
	if roots != nil {
		t.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	if b.dial != "" {
		t.Proxy = nil // it would choose an address itself
		t.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, b.dial)
		}
	}
	return t
}

// stay follows no redirect: a token isn't for others.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// silence says in a few words why a gateway doesn't answer: neither its URL,
// which may hold a password, nor its address, which stands beside.
func silence(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return errors.New("no answer within the timeout")
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	if sys, ok := errors.AsType[*os.SyscallError](err); ok {
		err = sys.Err
	}
	return fmt.Errorf("no answer: %w", err)
}

// segment is a device ID as one segment of a path. Dots alone would be taken for
// a step in the path.
func segment(device string) string {
	if strings.Trim(device, ".") == "" {
		return strings.ReplaceAll(device, ".", "%2E")
	}
	return url.PathEscape(device)
}

// adminToken is what a token file holds, without the line end; a file isn't
// needed.
func adminToken(path string) (string, error) {
	if path == "" {
		return os.Getenv("DOWNLINK_TOKEN"), nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("the token can't be read: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", fmt.Errorf("%s holds no token", path)
	}
	return token, nil
}

// rootCertificates vouch for a server; nil: the system's.
type rootCertificates = *x509.CertPool

func readRoots(path string) (rootCertificates, error) {
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
