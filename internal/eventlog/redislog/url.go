package redislog

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
)

// A form says how a log lies on Redis.
type form string

const (
	formOne      form = "one"      // one server
	formList     form = "list"     // independent servers: shard s is on server s % n
	formSentinel form = "sentinel" // a primary that Sentinels name
	formCluster  form = "cluster"  // a Redis Cluster
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

// A place is what a URL, or a list of them, says of a log.
type place struct {
	form    form
	servers []target // the servers, the Sentinels, or some members of the cluster
	master  string   // what the Sentinels call it
}

// Forms lists what a URL of a log can look like, for messages.
const Forms = "redis[s]://[user:password@]host[:port][/db], several of them with commas between, " +
	"redis[s]+sentinel://[user:password@]host[:port],…/MASTER[/db], or redis[s]+cluster://[user:password@]host[:port],…"

// CheckURL says what is wrong with the URL of a log, without a word of what
// may be secret in it.
func CheckURL(raw string) error {
	_, err := parsePlace(raw, TLSFiles{})
	return err
}

// parsePlace reads a URL. No part of its user information is in an error:
// url.Error would quote the whole text.
func parsePlace(raw string, files TLSFiles) (place, error) {
	scheme, _, _ := strings.Cut(raw, "://")
	secure, err := secureOf(scheme, files)
	if err != nil {
		return place{}, err
	}
	switch strings.TrimPrefix(strings.TrimPrefix(scheme, "rediss"), "redis") {
	case "+sentinel":
		return parseSentinel(raw, secure)
	case "+cluster":
		return parseCluster(raw, secure)
	default:
		return parseServers(raw, scheme, secure)
	}
}

// parseServers reads the URL of a server, or a list of them. A comma stands
// before a scheme only where the next URL begins: passwords have it too.
func parseServers(raw, scheme string, secure *tls.Config) (place, error) {
	p := place{form: formOne}
	for i, one := range strings.Split(raw, ","+scheme+"://") {
		if i > 0 {
			one = scheme + "://" + one
			p.form = formList
		}
		t, path, err := parseURL(one)
		if err == nil {
			t.db, err = parseDB(path)
		}
		if err == nil && strings.Contains(t.addr, ",") {
			err = fmt.Errorf("several servers need a whole URL each: want %s://host,%s://host", scheme, scheme)
		}
		if err != nil {
			return place{}, err
		}
		t.tls = secure
		t = t.at(withPort(t.addr, "6379"))
		if slices.ContainsFunc(p.servers, func(o target) bool { return o.addr == t.addr && o.db == t.db }) {
			return place{}, fmt.Errorf("the list names the server %s twice", t.addr)
		}
		p.servers = append(p.servers, t)
	}
	return p, nil
}

func parseSentinel(raw string, secure *tls.Config) (place, error) {
	t, path, err := parseURL(raw)
	if err != nil {
		return place{}, err
	}
	name, db, _ := strings.Cut(path, "/")
	if name == "" {
		return place{}, errors.New("the URL doesn't say what the Sentinels call the primary: want redis+sentinel://host:26379,…/MASTER")
	}
	if t.db, err = parseDB(db); err != nil {
		return place{}, err
	}
	t.tls = secure
	p := place{form: formSentinel, master: name}
	p.servers, err = eachHost(t, "26379")
	return p, err
}

func parseCluster(raw string, secure *tls.Config) (place, error) {
	t, path, err := parseURL(raw)
	if err != nil {
		return place{}, err
	}
	if path != "" && path != "0" {
		return place{}, errors.New("a cluster has no databases: want redis+cluster://host[:port],…")
	}
	t.tls = secure
	p := place{form: formCluster}
	p.servers, err = eachHost(t, "6379")
	return p, err
}

// eachHost is a target for each of the hosts in t's address.
func eachHost(t target, port string) ([]target, error) {
	var out []target
	for host := range strings.SplitSeq(t.addr, ",") {
		u, err := url.Parse("x://" + host)
		if err != nil || u.Hostname() == "" || u.Path != "" {
			return nil, errors.New("the Redis URL names an empty or impossible host: want host[:port] with commas between")
		}
		out = append(out, t.at(withPort(host, port)))
	}
	return out, nil
}

// parseURL reads what all forms have: it leaves several hosts as one address.
func parseURL(raw string) (t target, path string, err error) {
	scheme, rest, found := strings.Cut(raw, "://")
	if !found || strings.ContainsAny(rest, "#?") {
		return t, "", errors.New("the Redis URL has no ://, or has a ? or #, which mean nothing in it (in a password they are written %3F and %23): want " + Forms)
	}
	hosts, path, _ := strings.Cut(rest[strings.LastIndexByte(rest, '@')+1:], "/")
	user := rest[:strings.LastIndexByte(rest, '@')+1]
	// The parser takes no list of hosts.
	u, err := url.Parse(scheme + "://" + user + "host")
	if err != nil || strings.Contains(user, "/") {
		return t, "", errors.New("the Redis URL can't be parsed (special characters in a password must be percent-encoded): want " + Forms)
	}
	t.addr = hosts
	if u.User != nil {
		t.user = u.User.Username()
		t.password, _ = u.User.Password()
	}
	switch {
	case t.user != "" && t.password == "":
		return t, "", errors.New("the Redis URL has a user without a password: want redis[s]://user:password@host; redis://:password@host is for a password alone")
	case strings.Contains(hosts, ","):
		return t, strings.Trim(path, "/"), nil
	}
	h, err := url.Parse("x://" + hosts)
	if err != nil || h.Hostname() == "" || !usablePort(h.Port()) {
		return t, "", errors.New("the Redis URL names no host, or no usable port: want " + Forms)
	}
	return t, strings.Trim(path, "/"), nil
}

func usablePort(p string) bool {
	n, err := strconv.ParseUint(p, 10, 16)
	return p == "" || err == nil && n > 0
}

func parseDB(path string) (int, error) {
	if path == "" {
		return 0, nil
	}
	db, err := strconv.ParseUint(path, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("%q is not a database number: want redis://host/0", path)
	}
	return int(db), nil
}

// withPort adds the port that is meant where none is named.
func withPort(host, port string) string {
	u, err := url.Parse("x://" + host)
	if err != nil {
		return host
	}
	if u.Port() != "" {
		port = u.Port()
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// secureOf is the TLS configuration for a scheme; nil means plain text.
func secureOf(scheme string, files TLSFiles) (*tls.Config, error) {
	switch scheme {
	case "redis", "redis+sentinel", "redis+cluster":
		if files != (TLSFiles{}) {
			return nil, fmt.Errorf("certificate files are given, but %s:// is plain text: use rediss, or leave them out", scheme)
		}
		return nil, nil
	case "rediss", "rediss+sentinel", "rediss+cluster":
	default:
		return nil, errors.New("the scheme is none of a Redis: want " + Forms)
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
