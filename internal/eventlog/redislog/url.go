package redislog

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"

	"downlink/internal/eventlog/redisurl"
)

// A target is a server and how one gets in.
type target struct {
	addr     string
	user     string
	password string
	db       int
	tls      *tls.Config // nil: plain text
}

// at is the same way in to another server.
func (t target) at(addr string) target {
	t.addr = addr
	if t.tls != nil {
		host, _, _ := net.SplitHostPort(addr)
		t.tls = t.tls.Clone()
		t.tls.ServerName = host
	}
	return t
}

// A place is where the log is: servers, Sentinels or members of a cluster.
type place struct {
	form    redisurl.Form
	servers []target
	master  string // what the Sentinels call the primary
}

// parsePlace reads a URL and the files for it. No secret is in an error.
func parsePlace(raw string, files TLSFiles) (place, error) {
	u, err := redisurl.Parse(raw)
	if err != nil {
		return place{}, err
	}
	secure, err := secureOf(redisurl.Secure(raw), files)
	if err != nil {
		return place{}, err
	}
	p := place{form: u.Form, master: u.Master}
	for _, s := range u.Servers {
		t := target{user: s.User, password: s.Password, db: s.DB, tls: secure}
		p.servers = append(p.servers, t.at(s.Addr))
	}
	return p, nil
}

// secureOf is the TLS configuration; nil means plain text.
func secureOf(secure bool, files TLSFiles) (*tls.Config, error) {
	if !secure {
		if files != (TLSFiles{}) {
			return nil, errors.New("certificate files are given, but the URL is one for plain text: use rediss, or leave them out")
		}
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
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
