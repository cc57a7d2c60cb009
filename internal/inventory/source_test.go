package inventory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestFormats: the same list in each of them is the same.
func TestFormats(t *testing.T) {
	want := []Entry{
		{Device: Device{ID: "pos-1", URL: "https://h/1", Groups: []string{"north", "vip"}, Credential: "stores"}},
		{Device: Device{ID: "매장-12", URL: "https://h/2"}},
	}
	texts := map[string]string{
		"a.json": `[{"id":"pos-1","url":"https://h/1","groups":["north","vip"],"credential":"stores"},{"id":"매장-12","url":"https://h/2"}]`,
		"a.yaml": "- id: pos-1\n  url: https://h/1\n  groups: [north, vip]\n  credential: stores\n- {id: 매장-12, url: 'https://h/2'}\n",
		"a.csv":  "\ufeffURL, id,groups,credential\r\nhttps://h/1,pos-1,north; vip ,stores\r\nhttps://h/2,매장-12,,\r\n",
	}
	for name, text := range texts {
		f, err := NewFile(filepath.Join(t.TempDir(), name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f.path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		list, err := f.Fetch(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for i := range list.Entries {
			list.Entries[i].Line = 0
			list.Entries[i].Device.Groups = append([]string(nil), list.Entries[i].Device.Groups...)
		}
		if d := cmp.Diff(want, list.Entries); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		// What was refused is read again; what is used isn't.
		if again, err := f.Fetch(t.Context()); again == nil || err != nil {
			t.Errorf("%s: it isn't used, and %v %v", name, again, err)
		}
		list.Used()
		if again, err := f.Fetch(t.Context()); again != nil || err != nil {
			t.Errorf("%s: it is used, and %v %v", name, again, err)
		}
	}
	if _, err := NewFile("a.txt"); err == nil {
		t.Error("any name will do")
	}
}

// TestBrokenTexts: a text that may be half of one is none, and what is wrong is
// said without what stands there.
func TestBrokenTexts(t *testing.T) {
	for text, want := range map[string]string{
		"json ":                                "it is empty",
		"json [{":                              "isn't JSON",
		`json {"id":"SECRET"}`:                 "isn't an array",
		"csv \n \n":                            "it is empty",
		"csv id,name\nSECRET,x":                "column 2 isn't one of",
		"csv id,url,id\n":                      "stands there twice",
		"csv url\n":                            "at least the columns id and url",
		"csv id,url\n\"SECRET\"x\",y\n":        "line 2 isn't CSV",
		"csv id,url\na,\"SECRET":               "isn't CSV",
		"yaml - id: SECRET\n  place: x":        "line 2 isn't understood",
		"yaml id: SECRET":                      "isn't understood",
		"yaml - id: [SECRET":                   "isn't understood",
		"yaml - id: a\n  url: \xff":            "isn't UTF-8",
		"yaml - id: a\n  groups: {SECRET: 12}": "isn't understood",
	} {
		form, body, _ := strings.Cut(text, " ")
		_, err := parse(format(strings.ToUpper(form)), []byte(body))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	// A wrong line is that line's fault alone.
	for text, want := range map[string]string{
		"csv id,url\na,http://h/,x\nb,http://h/\n": "names 2 columns",
		`json [{"id":"a","place":"x"},{"id":"b"}]`: "and nothing else",
		`json [{"id":["SECRET"]},{"id":"b"}]`:      "and nothing else",
	} {
		form, body, _ := strings.Cut(text, " ")
		entries, err := parse(format(strings.ToUpper(form)), []byte(body))
		if err != nil || len(entries) != 2 || entries[0].Err == nil || !strings.Contains(entries[0].Err.Error(), want) || entries[1].Err != nil {
			t.Errorf("%q: %+v %v", text, entries, err)
		}
	}
}

// TestTooManyEntries: rubbish of a few bytes each is refused before it has
// taken gigabytes.
func TestTooManyEntries(t *testing.T) {
	text := "id,url\n" + strings.Repeat("a\n", maxEntries+1)
	if entries, err := parse(formatCSV, []byte(text)); !errors.Is(err, errEntries) || entries != nil {
		t.Errorf("%d entries, %v", len(entries), err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("JSON", []byte(`[{"id":"a","url":"http://h/"}]`))
	f.Add("CSV", []byte("id,url,groups\na,http://h/,x;y\n"))
	f.Add("YAML", []byte("- {id: a, url: 'http://h/', groups: [x]}\n"))
	f.Fuzz(func(t *testing.T, form string, text []byte) {
		entries, err := parse(format(form), text)
		if err != nil && entries != nil {
			t.Error("a broken text has entries")
		}
		for i := range entries {
			if e := &entries[i]; e.Err == nil && e.Device.check() == nil && (e.Device.ID == "" || e.Device.URL == "") {
				t.Errorf("%+v is accepted", e.Device)
			}
		}
	})
}

// A server answers with a list, by its ETag, to who knows the token.
type server struct {
	etag, body, media string
	status            int
	conditional       int
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Header.Get("Authorization") != "Bearer t0ken":
		w.WriteHeader(http.StatusUnauthorized)
	case s.status != 0:
		w.WriteHeader(s.status)
	case s.etag != "" && r.Header.Get("If-None-Match") == s.etag:
		s.conditional++
		w.WriteHeader(http.StatusNotModified)
	default:
		w.Header().Set("Content-Type", s.media)
		if s.etag != "" {
			w.Header().Set("ETag", s.etag)
		}
		fmt.Fprint(w, s.body)
	}
}

// TestHTTP: it shows its token, asks by the ETag of what counts, and says what is
// wrong without the address' query and the token.
func TestHTTP(t *testing.T) {
	s := &server{etag: `"1"`, body: `[{"id":"a","url":"http://h/"}]`, media: "application/json; charset=utf-8"}
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	token := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		if err := os.WriteFile(token, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("t0ken\n")
	h, err := NewHTTP(HTTPOptions{URL: web.URL + "/list?key=SECRET", TokenFile: token})
	if err != nil {
		t.Fatal(err)
	}
	fetch := func(want string) *List {
		t.Helper()
		list, err := h.Fetch(t.Context())
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) || err != nil && strings.Contains(err.Error(), "SECRET") {
			t.Fatalf("%v, want %q", err, want)
		}
		return list
	}
	if list := fetch(""); list == nil || len(list.Entries) != 1 {
		t.Fatalf("%+v", list)
	}
	list := fetch("") // it wasn't used, so the whole answer comes again
	if s.conditional != 0 || list == nil {
		t.Fatalf("%d %+v", s.conditional, list)
	}
	list.Used()
	if list := fetch(""); list != nil || s.conditional != 1 {
		t.Fatalf("%d %+v", s.conditional, list)
	}
	s.etag = `"2"` // another name for the same text
	if list := fetch(""); list != nil {
		t.Fatalf("%+v", list)
	}
	s.body, s.media = "id,url\na,http://h/", "text/csv"
	if list := fetch(""); list == nil || len(list.Entries) != 1 {
		t.Fatalf("%+v", list)
	}
	s.media = "text/html"
	fetch("its Content-Type is neither")
	s.media = "application/yaml"
	fetch("its Content-Type is neither")
	s.status = http.StatusInternalServerError
	fetch("500 Internal Server Error")
	write("two words")
	fetch("doesn't hold one token")
	write("other")
	fetch("401 Unauthorized")
	write("t0ken")
	if h, err = NewHTTP(HTTPOptions{URL: "http://127.0.0.1:1/list?key=SECRET", TokenFile: token}); err != nil {
		t.Fatal(err)
	}
	fetch("connection refused")
}

// TestHTTPBounds: neither a server that says nothing nor a bad address holds it up.
func TestHTTPBounds(t *testing.T) {
	stop := make(chan struct{})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/loop" {
			http.Redirect(w, r, "/loop", http.StatusFound)
			return
		}
		<-stop
	}))
	t.Cleanup(func() { close(stop); web.Close() })
	for _, c := range []struct {
		path, want string
		timeout    time.Duration
	}{{"/silent", "Client.Timeout", 100 * time.Millisecond}, {"/loop", "redirects in a loop", time.Minute}} {
		h, err := NewHTTP(HTTPOptions{URL: web.URL + c.path, Timeout: c.timeout})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Fetch(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.path, err)
		}
	}
	for _, bad := range []string{"ftp://h/SECRET", "http://u:SECRET@h/", "SECRET", "http://%zzSECRET"} {
		if _, err := NewHTTP(HTTPOptions{URL: bad}); err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if _, err := NewHTTP(HTTPOptions{URL: "https://h/", CAFile: ca}); err == nil {
		t.Error("a file that isn't there")
	}
	if err := os.WriteFile(ca, []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := NewHTTP(HTTPOptions{URL: "https://h/", CAFile: ca}); err == nil {
		t.Error("a file without certificates")
	}
}

func TestTable(t *testing.T) {
	rows := map[string]string{"a": `{"url":"http://h/a","groups":["x"]}`, "b": `{"url":"http://h/b","id":"c"}`, "c": "rubbish"}
	var away error
	table := NewTable("pos-ev:devices", func(context.Context) (map[string]string, error) { return rows, away })
	list, err := table.Fetch(t.Context())
	if err != nil || len(list.Entries) != 3 {
		t.Fatal(list, err)
	}
	for _, e := range list.Entries {
		if (e.Err == nil) != (e.Device.ID == "a") {
			t.Errorf("%+v", e)
		}
	}
	list.Used()
	if list, err := table.Fetch(t.Context()); list != nil || err != nil {
		t.Error(list, err)
	}
	rows["a"] = `{"url":"http://h/A"}`
	if list, err := table.Fetch(t.Context()); list == nil || err != nil {
		t.Error(list, err)
	}
	away = errors.New("away")
	if _, err := table.Fetch(t.Context()); !errors.Is(err, away) {
		t.Error(err)
	}
}

// TestFiftyThousand: what the documentation says of the cost (run with -v).
func TestFiftyThousand(t *testing.T) {
	const n = 50_000
	var csv, js, yml bytes.Buffer
	csv.WriteString("id,url,groups,credential\n")
	js.WriteByte('[')
	for i := range n {
		id, url := fmt.Sprintf("store-%04d/pos-%d", i/12, i%12), fmt.Sprintf("https://pos-%d.store-%04d.example.com:8443/downlink", i%12, i/12)
		fmt.Fprintf(&csv, "%s,%s,region-%d;pos,stores\n", id, url, i%7)
		if i > 0 {
			js.WriteByte(',')
		}
		fmt.Fprintf(&js, `{"id":%q,"url":%q,"groups":["region-%d","pos"],"credential":"stores"}`, id, url, i%7)
		fmt.Fprintf(&yml, "- id: %s\n  url: %s\n  groups: [region-%d, pos]\n  credential: stores\n", id, url, i%7)
	}
	js.WriteByte(']')
	texts := map[string][]byte{"csv": csv.Bytes(), "json": js.Bytes()}
	if !testing.Short() && os.Getenv("DOWNLINK_YAML") != "" {
		texts["yaml"] = yml.Bytes()
	}
	for form, text := range texts {
		f, err := NewFile(filepath.Join(t.TempDir(), "a."+form))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f.path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		r := newRig(func(o *Options) { o.Source, o.Shards, o.Changed = f, 64, nil })
		before, allocated := heap()
		began := time.Now()
		r.load(t, true, "")
		first := time.Since(began)
		_, passing := heap()
		now, _ := heap()
		kept := now - before
		began = time.Now()
		r.load(t, false, "")
		same := time.Since(began)
		if err := os.WriteFile(f.path, bytes.Replace(text, []byte("pos-3.store-0007."), []byte("pos-x.store-0007."), 1), 0o600); err != nil {
			t.Fatal(err)
		}
		began = time.Now()
		r.load(t, true, "")
		t.Logf("%s: %d KiB; first reading %v (%d MiB allocated), %d B a device; unchanged %v; one changed %v", form, len(text)>>10, first, (passing-allocated)>>20, kept/n, same, time.Since(began))
		if kept/n > 400 {
			t.Errorf("%s: a device costs %d bytes", form, kept/n)
		}
	}
}

// heap is what is in use, and what was ever allocated.
func heap() (inUse, allocated int) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc), int(m.TotalAlloc)
}
