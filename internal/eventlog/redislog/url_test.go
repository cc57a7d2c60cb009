package redislog

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParsePlace(t *testing.T) {
	one := func(servers ...target) place { return place{form: formOne, servers: servers} }
	for raw, want := range map[string]place{
		"redis://host":                    one(target{addr: "host:6379"}),
		"redis://host:1/":                 one(target{addr: "host:1"}),
		"redis://:pw@host/3":              one(target{addr: "host:6379", password: "pw", db: 3}),
		"redis://u:p%40ss@[::1]:7000/0":   one(target{addr: "[::1]:7000", user: "u", password: "p@ss"}),
		"redis://u:a,b@host":              one(target{addr: "host:6379", user: "u", password: "a,b"}),
		"redis://u:p@host.example:6380/1": one(target{addr: "host.example:6380", user: "u", password: "p", db: 1}),
		"redis://a,redis://:q@b:1/2": {form: formList, servers: []target{
			{addr: "a:6379"}, {addr: "b:1", password: "q", db: 2},
		}},
		"redis+sentinel://u:p@a,b:1,[::1]/events/2": {form: formSentinel, master: "events", servers: []target{
			{addr: "a:26379", user: "u", password: "p", db: 2}, {addr: "b:1", user: "u", password: "p", db: 2},
			{addr: "[::1]:26379", user: "u", password: "p", db: 2},
		}},
		"redis+sentinel://a/events":  {form: formSentinel, master: "events", servers: []target{{addr: "a:26379"}}},
		"redis+cluster://:p@a,b:1/0": {form: formCluster, servers: []target{{addr: "a:6379", password: "p"}, {addr: "b:1", password: "p"}}},
	} {
		got, err := parsePlace(raw, TLSFiles{})
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(place{}, target{})); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", raw, err, diff)
		}
	}
	for _, raw := range []string{"", "host", "redis://", "redis:host", "redis://user@host", "redis://h/-1", "redis://h/1/2",
		"redis://h?x=y", "rediss://h?x=y", "redis://h?", "redis://h#1", "redis://h:0", "redis://h:x", "redis://a,b",
		"redis://a,rediss://b", "redis://a,redis://a", "redis://a,redis://a:6379/0", "redis://a,redis://", "http://h",
		"redis+sentinel://a", "redis+sentinel://a/", "redis+sentinel://a/m/x", "redis+sentinel://a,,b/m", "redis+sentinel:///m",
		"redis+cluster://a/1", "redis+cluster://", "redis+cluster://a,", "redis+other://a"} {
		if got, err := parsePlace(raw, TLSFiles{}); err == nil {
			t.Errorf("%q is taken for %+v", raw, got)
		}
	}
}

func TestPlacesOverTLS(t *testing.T) {
	for raw, names := range map[string][]string{
		"rediss://h": {"h"}, "rediss://a,rediss://b:1": {"a", "b"}, "rediss+sentinel://a,b/m": {"a", "b"}, "rediss+cluster://[::1]": {"::1"},
	} {
		p, err := parsePlace(raw, TLSFiles{})
		if err != nil || len(p.servers) != len(names) {
			t.Errorf("%s: %+v, %v", raw, p, err)
			continue
		}
		for i, s := range p.servers {
			if s.tls.ServerName != names[i] || s.tls.InsecureSkipVerify {
				t.Errorf("%s: server %d is to be %q", raw, i, s.tls.ServerName)
			}
		}
		if other := p.servers[0].at("found.example:7"); other.tls.ServerName != "found.example" || p.servers[0].tls.ServerName != names[0] {
			t.Errorf("%s: a server that was found is to be %q", raw, other.tls.ServerName)
		}
	}
	missing := filepath.Join(t.TempDir(), "missing.pem")
	for raw, files := range map[string]TLSFiles{
		"redis://plain": {CA: missing}, "redis+cluster://plain": {CA: missing},
		"rediss://ca": {CA: missing}, "rediss://key": {Key: missing}, "rediss://cert": {Cert: missing},
	} {
		if _, err := parsePlace(raw, files); err == nil {
			t.Errorf("%s with %+v is taken", raw, files)
		}
	}
}

func FuzzParsePlace(f *testing.F) {
	f.Add("redis://u:p%40ss@[::1]:7000/0")
	f.Add("rediss://:s3cr3t@h:1/2?x=y")
	f.Add("redis://a,redis://u:p@b:1")
	f.Add("redis+sentinel://u:p@a,b:1/m/0")
	f.Add("redis+cluster://u:p@a,b:1")
	f.Fuzz(func(t *testing.T, raw string) {
		got, err := parsePlace(raw, TLSFiles{})
		if err != nil {
			return
		}
		for _, s := range got.servers {
			if s.addr == "" || s.db < 0 || strings.Contains(s.addr, "@") {
				t.Errorf("%q is taken for %+v", raw, got)
			}
		}
	})
}
