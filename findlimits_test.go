package downlink_test

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"downlink/internal/config"
	"downlink/internal/gateway"
	"downlink/internal/governor"
	"downlink/internal/limits"
)

// caps are all names of something that can hold somebody back, by the page that
// explains it. How they are spelled is how an operator meets them: in a refusal, a
// log line, a metric's label, GET /v1/limits, or the log of another program.
func caps(t *testing.T) map[string][]string {
	t.Helper()
	const limitsPage, governorPage = "docs/operate/limits.md", "docs/reference/governor.md"
	all := map[string][]string{}
	for _, s := range limits.New(config.Limits()).States() {
		all[s.Name] = append(all[s.Name], limitsPage)
	}
	signals := gateway.Signals()
	for _, s := range signals {
		all[s.Probe.Name()] = append(all[s.Probe.Name()], governorPage)
	}
	for _, d := range governor.Describe(signals) {
		all[d.Name] = append(all[d.Name], governorPage)
	}
	for _, name := range []string{
		"maxmemory", "maxclients", "client-output-buffer-limit", // Redis
		"RLIMIT_NOFILE", "GOMEMLIMIT", "memory.max", // the process
		"net.core.somaxconn", "net.ipv4.ip_local_port_range", "net.netfilter.nf_conntrack_max", // the kernel
		"maxconn", "worker_connections", "idle_timeout", "Connections per host", // what is in front
	} {
		all[name] = append(all[name], limitsPage)
	}
	if len(all) < 150 {
		t.Fatalf("found %d names", len(all))
	}
	return all
}

// titles is what an operator's search finds, grep -rE '^#+ NAME$': what stands under
// each heading, by its text and its page.
func titles(pages map[string]string) map[string]map[string]string {
	found := map[string]map[string]string{}
	title := regexp.MustCompile(`(?m)^#+ (.+)$`)
	for page, text := range pages {
		all := title.FindAllStringSubmatchIndex(text, -1)
		for i, at := range all {
			end := len(text)
			if i+1 < len(all) {
				end = all[i+1][0]
			}
			name := text[at[2]:at[3]]
			if found[name] == nil {
				found[name] = map[string]string{}
			}
			found[name][page] = strings.TrimSpace(text[at[1]:end])
		}
	}
	return found
}

// TestEveryLimitIsFoundBySearching: the name of each limit, fixed ones and other
// people's included, of each signal and of each setting of the governor is a heading
// in the docs, and what stands under it says what it is, where it stands by default,
// and how it is changed or that it can't be.
func TestEveryLimitIsFoundBySearching(t *testing.T) {
	pages, anchors := map[string]string{}, map[string][]string{}
	for _, name := range tree(t) {
		if path.Ext(name) == ".md" && strings.HasPrefix(name, "docs/") {
			pages[name] = read(t, name)
			anchors[name] = anchorsOf(pages[name])
		}
	}
	found := titles(pages)
	for name, where := range caps(t) {
		for _, page := range where {
			section, is := found[name][page]
			switch {
			case !is:
				t.Errorf("whoever searches the docs for %q doesn't find it in %s", name, page)
			case len(strings.Fields(section)) < 12 || !strings.Contains(section, "\n- "):
				t.Errorf("%s says too little of %s: %q", page, name, section)
			case !slices.Contains(anchors[page], slugOf(name)):
				t.Errorf("%s has no place #%s to lead to", page, slugOf(name))
			}
		}
	}
}

// TestEverySpellingIsFound: a setting that is a limit is found as a flag and as a
// variable too, because that is how it stands in somebody's unit or Deployment.
func TestEverySpellingIsFound(t *testing.T) {
	page := read(t, "docs/reference/configuration.md")
	caps := map[string]bool{}
	for _, d := range config.Limits() {
		caps[d.Name] = true
	}
	for _, k := range config.Keys() {
		if !caps[k.Name] {
			continue
		}
		flag := "--" + strings.ReplaceAll(k.Name, "_", "-")
		if line := "spellings: `" + flag + "`, `" + k.Env + "`, `" + k.Name + ":`"; !strings.Contains(page, line) {
			t.Errorf("docs/reference/configuration.md lacks: %s", line)
		}
	}
}

// TestASearchCanFail: what isn't a heading isn't found.
func TestASearchCanFail(t *testing.T) {
	found := titles(map[string]string{"a": "# A\n\n### max_connections_2\n\nno\n\nmax_connections\n### x\nfew words\n"})
	if len(found) != 3 || found["x"]["a"] != "few words" || found["max_connections"] != nil {
		t.Errorf("found %q", found)
	}
}
