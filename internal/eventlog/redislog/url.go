package redislog

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
)

// A target is what a URL says of a server.
type target struct {
	addr     string
	user     string
	password string
	db       int
	tls      *tls.Config
}

// parseURL reads a redis:// or rediss:// URL. No part of its user information
// is in an error: url.Error would quote the whole text.
func parseURL(raw string, files TLSFiles) (target, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return target{}, errors.New("the Redis URL can't be parsed (special characters in a password must be percent-encoded): want redis[s]://[user:password@]host[:port][/db]")
	}
	if u.Scheme != "redis" && u.Scheme != "rediss" {
		return target{}, fmt.Errorf("the scheme %q is not for one Redis server: want redis:// or rediss://", u.Scheme)
	}
	if u.Hostname() == "" || u.Fragment != "" || u.Opaque != "" {
		return target{}, errors.New("the Redis URL names no host, or has parts that mean nothing: want redis[s]://[user:password@]host[:port][/db]")
	}
	t := target{addr: net.JoinHostPort(u.Hostname(), portOf(u))}
	if u.User != nil {
		t.user = u.User.Username()
		t.password, _ = u.User.Password()
	}
	if t.user != "" && t.password == "" {
		return target{}, errors.New("the Redis URL has a user without a password: want redis[s]://user:password@host; redis://:password@host is for a password alone")
	}
	if path := strings.Trim(u.Path, "/"); path != "" {
		if t.db, err = strconv.Atoi(path); err != nil || t.db < 0 {
			return target{}, fmt.Errorf("%q is not a database number: want redis://host/0", path)
		}
	}
	t.tls, err = tlsOf(u, files)
	return t, err
}

func portOf(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	return "6379"
}

// tlsOf is the TLS configuration of a rediss:// URL; nil means plain text.
func tlsOf(u *url.URL, files TLSFiles) (*tls.Config, error) {
	if u.RawQuery != "" || u.ForceQuery {
		return nil, errors.New("a Redis URL takes no query; TLS files have settings of their own")
	}
	if u.Scheme == "redis" {
		if files != (TLSFiles{}) {
			return nil, errors.New("certificate files are given, but redis:// is plain text: use rediss://, or leave them out")
		}
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: u.Hostname()}
	if files.CA != "" {
		pool, err := readCAs(files.CA)
		if err != nil {
			return nil, err
		}
		c.RootCAs = pool
	}
	if files.Cert != "" || files.Key != "" {
		pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
		if err != nil {
			return nil, fmt.Errorf("reading the client certificate for Redis: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

func readCAs(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the certificates that vouch for Redis: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate in PEM form", file)
	}
	return pool, nil
}
