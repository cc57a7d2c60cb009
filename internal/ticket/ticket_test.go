package ticket

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"downlink/internal/openapi/openapitest"
	"downlink/internal/problem"
)

const (
	secretA = "secret-a-0123456789abcdef0123456789abcdef"
	secretB = "secret-b-0123456789abcdef0123456789abcdef"
)

// A fleet is what all offices share: who came first.
type fleet struct {
	mu      sync.Mutex
	claimed map[string]time.Duration
	away    bool
	asked   int
}

func (f *fleet) claim(_ context.Context, device, name string, ttl time.Duration) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	if f.away {
		return false, errors.New("away")
	}
	if _, ok := f.claimed[device+name]; ok {
		return false, nil
	}
	if f.claimed == nil {
		f.claimed = make(map[string]time.Duration)
	}
	f.claimed[device+name] = ttl
	return true, nil
}

func secretFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secrets")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func office(t *testing.T, fleet *fleet, change ...func(*Options)) *Office {
	t.Helper()
	o := Options{
		SecretFile: secretFile(t, secretA+"\n"), Claim: fleet.claim, TTL: 30 * time.Second, Session: time.Hour,
		Secure: func(r *http.Request) bool { return r.TLS != nil }, Abroad: func(r *http.Request) bool { return r.Header.Get("Origin") != "" },
		Metrics: NewMetrics(nil),
	}
	for _, c := range change {
		c(&o)
	}
	f, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func anyone(*http.Request) (func(string, []string) error, error) {
	return func(string, []string) error { return nil }, nil
}

// ask is the answer to an order.
func ask(t *testing.T, f *Office, permit Permit, body string) (int, map[string]any) {
	t.Helper()
	r := httptest.NewRequest("POST", Path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	a := httptest.NewRecorder()
	Issue(f, permit).ServeHTTP(a, r)
	var answer map[string]any
	if err := json.Unmarshal(a.Body.Bytes(), &answer); err != nil {
		t.Fatal(err)
	}
	return a.Code, answer
}

// get is a ticket.
func get(t *testing.T, f *Office, body string) string {
	t.Helper()
	status, answer := ask(t, f, anyone, body)
	text, _ := answer["ticket"].(string)
	if status != 200 || text == "" {
		t.Fatalf("%d %v", status, answer)
	}
	return text
}

// browser keeps cookies, as a browser does.
type browser struct{ cookies map[string]string }

// open asks an office for a stream; the error is what the page's EventSource
// would take as final, or ErrUnavailable.
func (b *browser) open(f *Office, url string) (Holder, error) {
	r := httptest.NewRequest("GET", url, nil)
	for name, value := range b.cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	e, err := f.Identify(r)
	if err != nil || e.Redeem == nil {
		return e.Holder, err
	}
	h, cookie, err := e.Redeem(context.Background())
	if cookie != "" {
		c, err := http.ParseSetCookie(cookie)
		if err != nil {
			return h, err
		}
		if b.cookies == nil {
			b.cookies = make(map[string]string)
		}
		b.cookies[c.Name] = c.Value
	}
	return h, err
}

func failure(err error) Failure {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Failure
	}
	return ""
}

func TestATicketLetsOneBrowserInOnce(t *testing.T) {
	var log fleet
	one, two := office(t, &log), office(t, &log)
	url := "/events?ticket=" + get(t, one, `{"device":"kiosk-1","groups":["lobby"]}`)
	var mine, other browser
	h, err := mine.open(two, url)
	if err != nil || h.Device != "kiosk-1" || !cmp.Equal(h.Groups, []string{"lobby"}) || time.Until(h.Expires) > time.Hour || time.Until(h.Expires) < 59*time.Minute {
		t.Fatalf("%+v %v", h, err)
	}
	for _, f := range []*Office{one, two} {
		if _, err := other.open(f, url); failure(err) != Used {
			t.Errorf("another browser: %v", err)
		}
		log.mu.Lock()
		log.away = true
		log.mu.Unlock()
		before := log.asked
		if again, err := mine.open(f, url); err != nil || again.Device != "kiosk-1" || !cmp.Equal(again.Groups, []string{"lobby"}) || !again.Expires.Equal(h.Expires) && again.Expires.Sub(h.Expires).Abs() > time.Second {
			t.Errorf("the same browser: %+v %v", again, err)
		}
		if log.asked != before {
			t.Error("the log was asked about a ticket that this browser has used")
		}
		log.away = false
	}
	if n := testutil.ToFloat64(two.opts.Metrics.requests[redeemed]); n != 1 {
		t.Errorf("%v are counted as redeemed", n)
	}
	for _, ttl := range log.claimed {
		if ttl < claimMargin || ttl > claimMargin+31*time.Second {
			t.Errorf("claimed for %s", ttl)
		}
	}
}

// TestOfManyAtOnceOneIsLetIn: whoever sees the URL may try at the same time.
func TestOfManyAtOnceOneIsLetIn(t *testing.T) {
	var log fleet
	f := office(t, &log)
	url := "/events?ticket=" + get(t, f, `{"device":"kiosk-1"}`)
	in := make(chan error, 20)
	for range cap(in) {
		go func() { _, err := new(browser).open(f, url); in <- err }()
	}
	passed := 0
	for range cap(in) {
		if err := <-in; err == nil {
			passed++
		} else if failure(err) != Used {
			t.Error(err)
		}
	}
	if passed != 1 {
		t.Errorf("%d were let in", passed)
	}
}

func TestTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := office(t, &fleet{})
		fresh := "/events?ticket=" + get(t, f, `{"device":"kiosk-1","session_s":100}`)
		late := "/events?ticket=" + get(t, f, `{"device":"kiosk-1","ttl_s":2}`)
		var mine, other browser
		time.Sleep(3 * time.Second) //nolint:forbidigo // in a bubble
		if _, err := other.open(f, late); failure(err) != Expired {
			t.Errorf("after ttl_s: %v", err)
		}
		if _, err := mine.open(f, fresh); err != nil {
			t.Fatal(err)
		}
		// The ticket has expired; the cookie counts for 100 s.
		time.Sleep(90 * time.Second) //nolint:forbidigo // in a bubble
		h, err := mine.open(f, fresh)
		if left := time.Until(h.Expires); err != nil || left <= 0 || left > 10*time.Second {
			t.Errorf("%s are left: %v", left, err)
		}
		if _, err := mine.open(f, late); err != nil {
			t.Errorf("a cookie for the same device: %v", err)
		}
		time.Sleep(11 * time.Second) //nolint:forbidigo // in a bubble
		if _, err := mine.open(f, fresh); failure(err) != Expired {
			t.Errorf("after session_s: %v", err)
		}
	})
}

func TestAFreshTicketWinsOverACookie(t *testing.T) {
	f := office(t, &fleet{})
	var b browser
	for _, group := range []string{"a", "b"} {
		url := "/events?ticket=" + get(t, f, `{"device":"kiosk-1","groups":["`+group+`"]}`)
		if h, err := b.open(f, url); err != nil || !cmp.Equal(h.Groups, []string{group}) {
			t.Errorf("%s: %+v %v", group, h, err)
		}
	}
	if len(b.cookies) != 1 {
		t.Errorf("%d cookies for a device", len(b.cookies))
	}
}

// TestTwoDevicesInOneBrowser, and a cookie vouches for its own device only.
func TestTwoDevicesInOneBrowser(t *testing.T) {
	f := office(t, &fleet{})
	one := "/events?ticket=" + get(t, f, `{"device":"kiosk-1"}`)
	two := "/events?ticket=" + get(t, f, `{"device":"kiosk-2"}`)
	var b browser
	for range 2 {
		for url, want := range map[string]string{one: "kiosk-1", two: "kiosk-2"} {
			if h, err := b.open(f, url); err != nil || h.Device != want {
				t.Errorf("%+v %v", h, err)
			}
		}
	}
	thief := browser{map[string]string{cookieName("kiosk-2"): b.cookies[cookieName("kiosk-1")]}}
	if _, err := thief.open(f, two); failure(err) != Used {
		t.Errorf("another device's cookie: %v", err)
	}
}

func TestWithTheLogAway(t *testing.T) {
	log := fleet{}
	f := office(t, &log)
	url := "/events?ticket=" + get(t, f, `{"device":"kiosk-1"}`)
	var b browser
	log.away = true
	if _, err := b.open(f, url); !errors.Is(err, ErrUnavailable) || len(b.cookies) != 0 {
		t.Errorf("%v, %d cookies", err, len(b.cookies))
	}
	log.away = false
	if _, err := b.open(f, url); err != nil {
		t.Errorf("the ticket was used up: %v", err)
	}
	log.away = true
	if _, err := b.open(f, "/events?ticket="+get(t, f, `{"device":"kiosk-1"}`)); err != nil {
		t.Errorf("a cookie of the device doesn't help: %v", err)
	}
}

func TestWhatIsNoTicket(t *testing.T) {
	f, foreign := office(t, &fleet{}), office(t, &fleet{}, func(o *Options) { o.SecretFile = secretFile(t, secretB) })
	good := get(t, f, `{"device":"kiosk-1"}`)
	body, signature, _ := strings.Cut(good, ".")
	var b browser
	if _, err := b.open(f, "/events?ticket="+good); err != nil {
		t.Fatal(err)
	}
	cookie := b.cookies[cookieName("kiosk-1")]
	for name, c := range map[string]struct {
		query string
		want  Failure
	}{
		"empty":           {"ticket=", Invalid},
		"rubbish":         {"ticket=x", Invalid},
		"no signature":    {"ticket=" + body, Invalid},
		"empty signature": {"ticket=" + body + ".", Invalid},
		"padded":          {"ticket=" + good + "=", Invalid},
		"line end":        {"ticket=" + good + "%0A", Invalid},
		"other body":      {"ticket=" + body[:len(body)-2] + "fQ." + signature, Invalid},
		"foreign":         {"ticket=" + get(t, foreign, `{"device":"kiosk-1"}`), Invalid},
		"a cookie":        {"ticket=" + cookie, Invalid},
		"twice":           {"ticket=" + good + "&ticket=" + good, Ambiguous},
		"long":            {"ticket=" + strings.Repeat("x", maxText+1), Invalid},
	} {
		_, err := new(browser).open(f, "/events?"+c.query)
		if failure(err) != c.want || strings.Contains(err.Error(), body) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, cookies := range map[string]string{"a ticket": good, "rubbish": "x", "foreign": get(t, foreign, `{"device":"kiosk-1"}`)} {
		if _, err := (&browser{map[string]string{cookieName("kiosk-1"): cookies}}).open(f, "/events?ticket="+good); failure(err) != Used {
			t.Errorf("%s as cookie: %v", name, err)
		}
	}
	for url, want := range map[string]bool{"/events?ticket=" + good: true, "/events?ticket": true, "/events?tick%65t=x": true, "/events?a=ticket": false, "/events?a=%65": false, "/events": false, "/ticket": false} {
		if got := Offered(httptest.NewRequest("GET", url, nil)); got != want {
			t.Errorf("%s offers a ticket: %v", url, got)
		}
	}
}

// TestSecrets: the first signs, all are accepted, and a broken file changes
// nothing.
func TestSecrets(t *testing.T) {
	f := office(t, &fleet{})
	byA := get(t, f, `{"device":"kiosk-1"}`)
	for _, c := range []struct {
		content      string
		changed, bad bool
		a            Failure
	}{
		{secretA + "\n", false, false, ""},
		{secretB + "\r\n\n" + secretA, true, false, ""},
		{"short", false, true, ""},
		{"", false, true, ""},
		{strings.Repeat(secretA+"\n", 17), false, true, ""},
		{secretB, true, false, Invalid},
	} {
		if err := os.WriteFile(f.opts.SecretFile, []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		changed, err := f.Load()
		if changed != c.changed || (err != nil) != c.bad || err != nil && strings.Contains(err.Error(), secretA) {
			t.Errorf("%q: changed is %v, %v", c.content, changed, err)
		}
		f.opts.Claim = new(fleet).claim
		if _, err := new(browser).open(f, "/events?ticket="+byA); failure(err) != c.a {
			t.Errorf("%q: %v", c.content, err)
		}
	}
	byB := get(t, f, `{"device":"kiosk-1"}`)
	g := office(t, &fleet{}, func(o *Options) { o.SecretFile = secretFile(t, secretB) })
	if _, err := new(browser).open(g, "/events?ticket="+byB); err != nil {
		t.Error(err)
	}
	for _, path := range []string{filepath.Join(t.TempDir(), "none"), secretFile(t, strings.Repeat("x", maxFileBytes+1))} {
		if _, err := New(Options{SecretFile: path, Metrics: NewMetrics(nil)}); err == nil {
			t.Errorf("%s is taken", path)
		}
	}
}

func TestTheCookie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := office(t, &fleet{})
		for _, c := range []struct {
			url, origin string
			want        string
		}{
			{"http://x/events", "", "Path=/; Max-Age=60; HttpOnly; SameSite=Lax"},
			{"https://x/events", "", "Path=/; Max-Age=60; HttpOnly; Secure; SameSite=Lax"},
			{"http://x/events", "http://shop.example", "Path=/; Max-Age=60; HttpOnly; SameSite=Lax"},
			{"https://x/events", "https://shop.example", "Path=/; Max-Age=60; HttpOnly; Secure; SameSite=None; Partitioned"},
		} {
			r := httptest.NewRequest("GET", c.url+"?ticket="+get(t, f, `{"device":"kiosk-1","session_s":60}`), nil)
			if c.origin != "" {
				r.Header.Set("Origin", c.origin)
			}
			r.Header.Set("Cookie", "a=b")
			e, err := f.Identify(r)
			if err != nil {
				t.Fatal(err)
			}
			if r.Header.Get("Cookie") != "" {
				t.Error("the request keeps its cookies")
			}
			_, cookie, err := e.Redeem(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			value, attributes, _ := strings.Cut(cookie, "; ")
			if attributes != c.want || strings.Contains(value, "kiosk") {
				t.Errorf("%s from %q: %s", c.url, c.origin, cookie)
			}
		}
	})
}

func TestOrders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a ticket of a second lasts
		f := office(t, &fleet{})
		deny := func(code problem.Code) Permit {
			return func(*http.Request) (func(string, []string) error, error) {
				return func(string, []string) error { return problem.New(code, "no") }, nil
			}
		}
		stranger := func(*http.Request) (func(string, []string) error, error) {
			return nil, problem.New(problem.Unauthorized, "who?")
		}
		many := `"` + strings.Repeat(`g","`, 64) + `g"`
		long := `"` + strings.Repeat(strings.Repeat("g", 120)+`","`, 30) + `g"`
		for name, c := range map[string]struct {
			f      *Office
			permit Permit
			body   string
			status int
			want   string
		}{
			"all":           {f, anyone, `{"device":"a b/ü","groups":["x"],"ttl_s":1,"session_s":1}`, 200, ""},
			"nothing":       {f, anyone, ``, 400, "invalid-json"},
			"two":           {f, anyone, `{"device":"a"}{"device":"b"}`, 400, "invalid-json"},
			"unknown":       {f, anyone, `{"device":"a","ttl":1}`, 400, "unknown-member"},
			"half a pair":   {f, anyone, `{"device":"\ud83d"}`, 400, "invalid-ticket"},
			"other case":    {f, anyone, `{"Device":"a"}`, 400, "unknown-member"},
			"twice":         {f, anyone, `{"device":"b","device":"a"}`, 400, "duplicate-member"},
			"no UTF-8":      {f, anyone, "{\"device\":\"a\xff\"}", 400, "invalid-json"},
			"wrong type":    {f, anyone, `{"device":1}`, 400, "wrong type"},
			"large":         {f, anyone, `{"device":"` + strings.Repeat("x", maxOrder) + `"}`, 400, "invalid-json"},
			"no device":     {f, anyone, `{}`, 400, "device"},
			"broadcast":     {f, anyone, `{"device":"*"}`, 400, "device"},
			"group as such": {f, anyone, `{"device":"@g"}`, 400, "device"},
			"bad group":     {f, anyone, `{"device":"a","groups":[""]}`, 400, "groups"},
			"group with @":  {f, anyone, `{"device":"a","groups":["@north"]}`, 400, "without"},
			"many groups":   {f, anyone, `{"device":"a","groups":[` + many + `]}`, 400, "at most 64"},
			"long groups":   {f, anyone, `{"device":"a","groups":[` + long + `]}`, 400, "fewer groups"},
			"no time":       {f, anyone, `{"device":"a","ttl_s":0}`, 400, "ttl_s"},
			"long time":     {f, anyone, `{"device":"a","ttl_s":31}`, 400, "ticket_ttl"},
			"long session":  {f, anyone, `{"device":"a","session_s":3601}`, 400, "ticket_session"},
			"fraction":      {f, anyone, `{"device":"a","ttl_s":1.5}`, 400, "ttl_s"},
			"stranger":      {f, stranger, `{"device":"a"}`, 401, "who?"},
			"not for it":    {f, deny(problem.Forbidden), `{"device":"a"}`, 403, "no"},
			"off":           {nil, anyone, `{"device":"a"}`, 404, "ticket_secret_file"},
			"off, stranger": {nil, stranger, `{"device":"a"}`, 401, "who?"},
		} {
			status, answer := ask(t, c.f, c.permit, c.body)
			text, _ := json.Marshal(answer)
			if status != c.status || !strings.Contains(string(text), c.want) {
				t.Errorf("%s: %d %s", name, status, text)
			}
			if hint, _ := answer["url_hint"].(string); status == 200 {
				if h, err := new(browser).open(f, hint); err != nil || h.Device != "a b/ü" {
					t.Errorf("%s: its hint leads to %+v %v", name, h, err)
				}
			}
		}
		r := httptest.NewRequest("POST", Path, strings.NewReader(`{"device":"a"}`))
		r.Header.Set("Content-Type", "text/plain") // what a page elsewhere can send
		a := httptest.NewRecorder()
		Issue(f, anyone).ServeHTTP(a, r)
		if a.Code != http.StatusUnsupportedMediaType {
			t.Error(a.Code)
		}
	})
}

// TestEveryDocumentedAnswerIsReal holds them against the OpenAPI document.
func TestEveryDocumentedAnswerIsReal(t *testing.T) {
	doc := openapitest.Read(t)
	f := office(t, &fleet{})
	refusing := func(code problem.Code) Permit {
		return func(*http.Request) (func(string, []string) error, error) { return nil, problem.New(code, "") }
	}
	operation := []string{"paths", Path, "post", "requestBody", "content", "application/json"}
	example, err := json.Marshal(doc.Dig(append(operation, "examples", "page", "value")...))
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		f           *Office
		permit      Permit
		media, body string
	}{
		"good": {f, anyone, "application/json", string(example)}, "bad": {f, anyone, "application/json", "{}"},
		"media": {f, anyone, "text/plain", "{}"}, "off": {nil, anyone, "application/json", "{}"},
		"unknown": {f, refusing(problem.Unauthorized), "application/json", "{}"}, "forbidden": {f, refusing(problem.Forbidden), "application/json", "{}"},
		"later": {f, refusing(problem.KeysUnavailable), "application/json", "{}"},
	} {
		r := httptest.NewRequest("POST", Path, strings.NewReader(c.body))
		r.Header.Set("Content-Type", c.media)
		a := httptest.NewRecorder()
		Issue(c.f, c.permit).ServeHTTP(a, r)
		doc.Answer(t, what, Path, "POST", a.Code, a.Header(), a.Body.Bytes())
	}
	doc.WantAllSeen(t, Path)
}

// FuzzTicket: whatever stands in the URL, only what was sealed is opened.
func FuzzTicket(f *testing.F) {
	path := filepath.Join(f.TempDir(), "secrets")
	if err := os.WriteFile(path, []byte(secretA), 0o600); err != nil {
		f.Fatal(err)
	}
	desk, err := New(Options{SecretFile: path, Claim: new(fleet).claim, Metrics: NewMetrics(nil)})
	if err != nil {
		f.Fatal(err)
	}
	good := desk.secrets.seal(ticketKind, grant{ID: "x", Device: "d", Expires: 1 << 40, Session: 1})
	f.Add(good, "x")
	f.Add("", "")
	f.Add(strings.Replace(good, ".", "", 1), good)
	f.Fuzz(func(t *testing.T, text, cookie string) {
		r := httptest.NewRequest("GET", "/events", nil)
		r.URL.RawQuery = "ticket=" + text
		r.Header.Set("Cookie", cookieName("d")+"="+cookie)
		e, err := desk.Identify(r)
		if opened := r.URL.Query().Get("ticket") == good; (err == nil) != opened {
			t.Errorf("%q: %+v %v", text, e, err)
		}
		if err != nil && len(text) > 40 && bytes.Contains([]byte(err.Error()), []byte(text)) {
			t.Errorf("%q is repeated", text)
		}
	})
}
