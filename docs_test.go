package downlink_test

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

var (
	// A fence may be indented, in a list.
	codeFence  = regexp.MustCompile("(?ms)^[ \t]*```.*?^[ \t]*```[ \t]*$")
	codeSpan   = regexp.MustCompile("`[^`\n]*`")
	link       = regexp.MustCompile(`\]\(<?([^()\s>]+)>?\)`)
	heading    = regexp.MustCompile(`(?m)^#{1,6}[ \t]+(.+?)[ \t#]*$`)
	namedPlace = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
	linkText   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// TestLinksResolve: every relative link of every page leads to a file that is
// there, and to a heading that it has.
func TestLinksResolve(t *testing.T) {
	places := anchors{}
	for _, page := range tree(t) {
		if path.Ext(page) != ".md" {
			continue
		}
		text := codeSpan.ReplaceAllString(codeFence.ReplaceAllString(read(t, page), ""), "")
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if err := places.resolve(t, page, m[1]); err != nil {
				t.Errorf("%s: link %q: %v", page, m[1], err)
			}
		}
	}
}

// anchors are the places of each page that a link has named so far.
type anchors map[string][]string

func (a anchors) resolve(t *testing.T, page, target string) error {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil || u.Scheme != "" || u.Host != "" {
		return err
	}
	file := page
	if u.Path != "" {
		file = path.Join(path.Dir(page), u.Path)
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if u.Fragment == "" || info.IsDir() || path.Ext(file) != ".md" {
		return nil
	}
	if a[file] == nil {
		a[file] = anchorsOf(read(t, file))
	}
	if !slices.Contains(a[file], u.Fragment) {
		return fmt.Errorf("%s has no such heading; it has %v", file, a[file])
	}
	return nil
}

// anchorsOf lists the places of a page that a link can name: its headings, as
// the usual renderers turn them into fragments, and explicit ones.
func anchorsOf(text string) []string {
	var anchors []string
	seen := map[string]int{}
	for _, m := range heading.FindAllStringSubmatch(codeFence.ReplaceAllString(text, ""), -1) {
		slug := slugOf(m[1])
		if n := seen[slug]; n > 0 {
			anchors = append(anchors, fmt.Sprintf("%s-%d", slug, n))
		} else {
			anchors = append(anchors, slug)
		}
		seen[slug]++
	}
	for _, m := range namedPlace.FindAllStringSubmatch(text, -1) {
		anchors = append(anchors, m[1])
	}
	return anchors
}

func slugOf(title string) string {
	title = linkText.ReplaceAllString(title, "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(title))
}

// readingPath is what a newcomer reads, in this order, to understand the product.
var readingPath = []string{
	"internal/event/id.go",
	"internal/eventlog/eventlog.go",
	"internal/tail/tail.go",
	"internal/shard/shard.go",
	"internal/session/session.go",
	"internal/sse/handler.go",
	"internal/gateway/gateway.go",
}

// TestReadingPath: docs/architecture.md names the seven files in order, and
// every path of the repository that it names is there.
func TestReadingPath(t *testing.T) {
	const page = "docs/architecture.md"
	text := read(t, page)
	at := 0
	for _, name := range readingPath {
		i := strings.Index(text[at:], strings.TrimPrefix(name, "internal/"))
		if i < 0 {
			t.Errorf("%s doesn't name %s after the files that come before it on the reading path", page, name)
			continue
		}
		at += i
	}
	for _, name := range regexp.MustCompile(`\b(?:internal|cmd|client|tools|docs|test|conformance)/[a-z0-9_/.-]*[a-z0-9]`).FindAllString(text, -1) {
		if _, err := os.Stat(name); err != nil {
			t.Errorf("%s names %s: %v", page, name, err)
		}
	}
	for _, name := range readingPath {
		if _, err := os.Stat(name); err != nil {
			t.Errorf("the reading path leads to a file that isn't there: %v", err)
		}
	}
}

// A trace is what belongs to one machine or one way of working and not to the
// project. Each place that the pattern finds holds one of the stems, and those
// are looked for first: it takes a hundredth of the time.
type trace struct {
	stems   []string
	pattern *regexp.Regexp
}

// traceOf has its stems in the place of %s.
func traceOf(pattern string, stems ...string) trace {
	quoted := make([]string, len(stems))
	for i, stem := range stems {
		quoted[i], stems[i] = regexp.QuoteMeta(stem), strings.ToLower(stem)
	}
	return trace{stems, regexp.MustCompile(fmt.Sprintf(pattern, "(?:"+strings.Join(quoted, "|")+")"))}
}

// in is the first place of a line, if there is one.
func (tr trace) in(content string) (found string, line int) {
	lower := strings.ToLower(content)
	if !slices.ContainsFunc(tr.stems, func(stem string) bool { return strings.Contains(lower, stem) }) {
		return "", 0
	}
	for n, text := range strings.Split(content, "\n") {
		if found = tr.pattern.FindString(text); found != "" {
			return found, n + 1
		}
	}
	return "", 0
}

// foreign is written so that this file doesn't hold the words.
var foreign = []trace{
	traceOf(`(^|[^\w./-])%s`, "/wo"+"rk/", "/tm"+"p/", "/ro"+"ot/", "/ho"+"me/", "/Us"+"ers/"), // a path of one machine
	traceOf(`(?i)\b%ss?\b`, "work"+"place", "sub-ag"+"ent", "subag"+"ent", "ll"+"m", "clau"+"de", "anth"+"ropic", "chat"+"gpt", "co"+"pilot", "open"+"ai"),
	traceOf(`(?i)\b%s(ag`+`ent|assist`+`ant|gener`+`ated|session)`, "ai ", "ai-"),
	traceOf(`(?i)\b%s\b`, "proxy.gol"+"ang.org", "sum.gol"+"ang.org", "registry.npm"+"js.org", "deb.deb"+"ian.org"),
}

// TestSpeaksOfItselfAlone holds every text file to that. Checksums of modules
// name whatever their authors named.
func TestSpeaksOfItselfAlone(t *testing.T) {
	for _, name := range tree(t) {
		if base := path.Base(name); base == "go.sum" || base == "go.mod" {
			continue
		}
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.IndexByte(content[:min(len(content), 8<<10)], 0) >= 0 {
			continue // not text
		}
		for _, one := range foreign {
			if found, line := one.in(string(content)); found != "" {
				t.Errorf("%s:%d holds %q", name, line, found)
			}
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
