package redisurl

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	one := func(servers ...Server) Place { return Place{Form: One, Servers: servers} }
	for raw, want := range map[string]Place{
		"redis://host":                    one(Server{Addr: "host:6379"}),
		"redis://host:1/":                 one(Server{Addr: "host:1"}),
		"redis://:pw@host/3":              one(Server{Addr: "host:6379", Password: "pw", DB: 3}),
		"redis://u:p%40ss@[::1]:7000/0":   one(Server{Addr: "[::1]:7000", User: "u", Password: "p@ss"}),
		"redis://u:a,b@host":              one(Server{Addr: "host:6379", User: "u", Password: "a,b"}),
		"redis://u:p@host.example:6380/1": one(Server{Addr: "host.example:6380", User: "u", Password: "p", DB: 1}),
		"redis://a,redis://:q@b:1/2": {Form: List, Servers: []Server{
			{Addr: "a:6379"}, {Addr: "b:1", Password: "q", DB: 2},
		}},
		"redis+sentinel://u:p@a,b:1,[::1]/events/2": {Form: Sentinel, Master: "events", Servers: []Server{
			{Addr: "a:26379", User: "u", Password: "p", DB: 2}, {Addr: "b:1", User: "u", Password: "p", DB: 2},
			{Addr: "[::1]:26379", User: "u", Password: "p", DB: 2},
		}},
		"redis+sentinel://a/events":  {Form: Sentinel, Master: "events", Servers: []Server{{Addr: "a:26379"}}},
		"redis+cluster://:p@a,b:1/0": {Form: Cluster, Servers: []Server{{Addr: "a:6379", Password: "p"}, {Addr: "b:1", Password: "p"}}},
	} {
		got, err := Parse(raw)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", raw, err, diff)
		}
	}
	for _, raw := range []string{"", "host", "redis://", "redis:host", "redis://user@host", "redis://h/-1", "redis://h/1/2",
		"redis://h?x=y", "rediss://h?x=y", "redis://h?", "redis://h#1", "redis://h:0", "redis://h:x", "redis://a,b",
		"redis://a,rediss://b", "redis://a,redis://a", "redis://a,redis://a:6379/0", "redis://a,redis://", "http://h",
		"redis+sentinel://a", "redis+sentinel://a/", "redis+sentinel://a/m/x", "redis+sentinel://a,,b/m", "redis+sentinel:///m",
		"redis+cluster://a/1", "redis+cluster://", "redis+cluster://a,", "redis+other://a"} {
		if got, err := Parse(raw); err == nil {
			t.Errorf("%q is taken for %+v", raw, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("redis://u:p%40ss@[::1]:7000/0")
	f.Add("rediss://:s3cr3t@h:1/2?x=y")
	f.Add("redis://a,redis://u:p@b:1")
	f.Add("redis+sentinel://u:p@a,b:1/m/0")
	f.Add("redis+cluster://u:p@a,b:1")
	f.Fuzz(func(t *testing.T, raw string) {
		got, err := Parse(raw)
		if err != nil {
			return
		}
		for _, s := range got.Servers {
			if s.Addr == "" || s.DB < 0 || strings.Contains(s.Addr, "@") {
				t.Errorf("%q is taken for %+v", raw, got)
			}
		}
	})
}
