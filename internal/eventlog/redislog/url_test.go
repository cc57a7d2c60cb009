package redislog

import (
	"path/filepath"
	"testing"
)

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
