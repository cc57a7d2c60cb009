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
func parseURL(raw string) (target, error) {
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
	t.tls, err = tlsOf(u)
	return t, err
}

func portOf(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	return "6379"
}

// tlsOf reads the query, whose only keys are for TLS; nil means plain text.
func tlsOf(u *url.URL) (*tls.Config, error) {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errors.New("the query of the Redis URL can't be parsed")
	}
	if u.Scheme == "redis" {
		if len(query) > 0 {
			return nil, errors.New("a redis:// URL takes no query; TLS options belong to rediss://")
		}
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: u.Hostname()}
	for key, values := range query {
		value := values[len(values)-1]
		switch key {
		case "ca_file":
			if c.RootCAs, err = readCAs(value); err != nil {
				return nil, err
			}
		case "server_name":
			c.ServerName = value
		case "skip_verify":
			if c.InsecureSkipVerify, err = strconv.ParseBool(value); err != nil {
				return nil, errors.New("skip_verify in the Redis URL must be true or false")
			}
		default:
			return nil, fmt.Errorf("the Redis URL has the unknown option %q: known are ca_file, server_name and skip_verify", key)
		}
	}
	return c, nil
}

func readCAs(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading ca_file of the Redis URL: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("ca_file %s of the Redis URL holds no certificate in PEM form", file)
	}
	return pool, nil
}
