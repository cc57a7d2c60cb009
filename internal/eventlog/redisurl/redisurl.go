// Package redisurl owns the URLs of a log on Redis: what forms they have and
// what each says. It connects to nothing. Its invariant: no part of a URL's user
// or password is in an error.
package redisurl

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// A Form says how a log lies on Redis.
type Form string

// The forms of a log on Redis.
const (
	One      Form = "one"      // one server
	List     Form = "list"     // independent servers: shard s is on server s % n
	Sentinel Form = "sentinel" // a primary that Sentinels name
	Cluster  Form = "cluster"  // a Redis Cluster
)

// A Server is a server and how one gets in.
type Server struct {
	Addr     string // host:port
	User     string
	Password string
	DB       int
}

// A Place is what a URL, or a list of them, says of a log.
type Place struct {
	Form    Form
	Servers []Server // the servers, the Sentinels, or some members of the cluster
	Master  string   // what the Sentinels call it
}

// Forms lists what a URL of a log can look like, for messages.
const Forms = "redis[s]://[user:password@]host[:port][/db], several of them with commas between, " +
	"redis[s]+sentinel://[user:password@]host[:port],…/MASTER[/db], or redis[s]+cluster://[user:password@]host[:port],…"

// Parse reads a URL, or a list of them.
func Parse(raw string) (Place, error) {
	scheme, _, _ := strings.Cut(raw, "://")
	switch scheme {
	case "redis", "rediss":
		return parseServers(raw, scheme)
	case "redis+sentinel", "rediss+sentinel":
		return parseSentinel(raw)
	case "redis+cluster", "rediss+cluster":
		return parseCluster(raw)
	default:
		return Place{}, errors.New("the scheme is none of a Redis: want " + Forms)
	}
}

// Secure reports whether a URL is one of those that mean TLS.
func Secure(raw string) bool { return strings.HasPrefix(raw, "rediss") }

// parseServers reads the URL of a server, or a list of them. A comma stands
// before a scheme only where the next URL begins: passwords have it too.
func parseServers(raw, scheme string) (Place, error) {
	p := Place{Form: One}
	for i, one := range strings.Split(raw, ","+scheme+"://") {
		if i > 0 {
			one = scheme + "://" + one
			p.Form = List
		}
		t, path, err := parseURL(one)
		if err == nil {
			t.DB, err = parseDB(path)
		}
		if err == nil && strings.Contains(t.Addr, ",") {
			err = fmt.Errorf("several servers need a whole URL each: want %s://host,%s://host", scheme, scheme)
		}
		if err != nil {
			return Place{}, err
		}
		t.Addr = withPort(t.Addr, "6379")
		if slices.ContainsFunc(p.Servers, func(o Server) bool { return o.Addr == t.Addr && o.DB == t.DB }) {
			return Place{}, errors.New("the list names a server twice")
		}
		p.Servers = append(p.Servers, t)
	}
	return p, nil
}

func parseSentinel(raw string) (Place, error) {
	t, path, err := parseURL(raw)
	if err != nil {
		return Place{}, err
	}
	name, db, _ := strings.Cut(path, "/")
	if name == "" {
		return Place{}, errors.New("the URL doesn't say what the Sentinels call the primary: want redis+sentinel://host:26379,…/MASTER")
	}
	if t.DB, err = parseDB(db); err != nil {
		return Place{}, err
	}
	p := Place{Form: Sentinel, Master: name}
	p.Servers, err = eachHost(t, "26379")
	return p, err
}

func parseCluster(raw string) (Place, error) {
	t, path, err := parseURL(raw)
	if err != nil {
		return Place{}, err
	}
	if path != "" && path != "0" {
		return Place{}, errors.New("a cluster has no databases: want redis+cluster://host[:port],…")
	}
	p := Place{Form: Cluster}
	p.Servers, err = eachHost(t, "6379")
	return p, err
}

// eachHost is a Server for each of the hosts in t's address.
func eachHost(t Server, port string) ([]Server, error) {
	var out []Server
	for host := range strings.SplitSeq(t.Addr, ",") {
		u, err := url.Parse("x://" + host)
		if err != nil || u.Hostname() == "" || u.Path != "" {
			return nil, errors.New("the Redis URL names an empty or impossible host: want host[:port] with commas between")
		}
		t.Addr = withPort(host, port)
		out = append(out, t)
	}
	return out, nil
}

// parseURL reads what all forms have: it leaves several hosts as one address.
func parseURL(raw string) (t Server, path string, err error) {
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
	t.Addr = hosts
	if u.User != nil {
		t.User = u.User.Username()
		t.Password, _ = u.User.Password()
	}
	switch {
	case t.User != "" && t.Password == "":
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
		return 0, errors.New("what follows the host is not a database number: want redis://host/0")
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
