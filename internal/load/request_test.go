package load

import (
	"bufio"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
)

func requestsOf(t *testing.T, o *Options) *requests {
	t.Helper()
	u, err := targetURL(o.URL)
	if err != nil {
		t.Fatal(err)
	}
	r, err := newRequests(o, u)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// asked is the request of a device, as a server reads it.
func asked(t *testing.T, r *requests, device int, id string) *http.Request {
	t.Helper()
	raw := string(r.Append(nil, device, []byte(id)))
	req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
	if err != nil || !strings.HasSuffix(raw, "\r\n\r\n") {
		t.Fatalf("%q: %v", raw, err)
	}
	return req
}

func TestRequests(t *testing.T) {
	o := options(Storm, "http://gw:81")
	o.Prefix, o.URL = "shop 1/é&", "http://gw:81/events?device={device}&n={n}#x"
	o.Headers = []string{"X-Device: {device}"}
	capture, err := ParseCapture(`epoch="epoch":"([^"]+)"`)
	if err != nil {
		t.Fatal(err)
	}
	o.Captures = []Capture{capture}
	o.ResumeURL, o.ResumeHeader = "http://gw:81/again?e={epoch}&at={id}", "Last-Event-ID: {id}"
	r := requestsOf(t, &o)
	req := asked(t, r, 7, "5-0")
	q := req.URL.Query()
	if req.Host != "gw:81" || req.URL.Path != "/events" || q.Get("device") != "shop 1/é&7" || q.Get("n") != "7" || req.Header.Get("Last-Event-ID") != "" || req.Header.Get("X-Device") != "shop 1/é&7" {
		t.Errorf("at first: %s %s %v", req.Host, req.URL, req.Header)
	}
	r.known[7] = true
	for _, piece := range []string{strings.Repeat("x", 2*maxSeen) + `"epo`, `ch":"a`, "b\r\nc", `","epoch":"later"`} {
		if !r.wants(7) {
			t.Fatal("it was found too early")
		}
		r.look(7, []byte(piece))
	}
	if r.wants(7) {
		t.Error("what was found is looked for again")
	}
	req = asked(t, r, 7, "5-0")
	if req.URL.Path != "/again" || req.URL.Query().Get("e") != "ab\r\nc" || req.URL.Query().Get("at") != "5-0" || req.Header.Get("Last-Event-ID") != "5-0" {
		t.Errorf("again: %s %v", req.URL, req.Header)
	}
	if req = asked(t, r, 7, ""); len(req.Header["Last-Event-Id"]) > 0 {
		t.Errorf("without a position: %v", req.Header)
	}
	if req = asked(t, r, 7, "5-0\r\nX-Evil: 1"); req.Header.Get("X-Evil") != "" {
		t.Error("what a server sent became a field")
	}
}

func TestCaptures(t *testing.T) {
	for _, text := range []string{"", "a", "A=(x)", "a=(", "a=x", "=(x)"} {
		if c, err := ParseCapture(text); err == nil {
			t.Errorf("%q was taken for %v", text, c)
		}
	}
}

func TestTokens(t *testing.T) {
	secret := []byte("a secret of thirty-two bytes or so")
	o := options(Idle, "http://gw")
	o.URL, o.Prefix = "http://gw/events?access_token={token}", `d"`
	var err error
	if o.Token, err = NewToken(secret, `{"sub":"{device}","n":{n}}`, time.Hour); err != nil {
		t.Fatal(err)
	}
	token := asked(t, requestsOf(t, &o), 7, "").URL.Query().Get("access_token")
	parts := strings.Split(token, ".")
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(parts[0] + "." + parts[1]))
	if len(parts) != 3 || parts[2] != base64.RawURLEncoding.EncodeToString(mac.Sum(nil)) {
		t.Fatalf("the signature of %s is wrong", token)
	}
	decode := func(part string, into any) {
		t.Helper()
		text, err := base64.RawURLEncoding.DecodeString(part)
		if err == nil {
			err = json.Unmarshal(text, into)
		}
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	var header map[string]string
	var claims struct {
		Sub         string
		N, Iat, Exp int64
	}
	decode(parts[0], &header)
	decode(parts[1], &claims)
	if header["alg"] != "HS256" || claims.Sub != `d"7` || claims.N != 7 || claims.Exp-claims.Iat != 3600 || time.Since(time.Unix(claims.Iat, 0)) > time.Minute {
		t.Errorf("%v %+v", header, claims)
	}
	for _, c := range []struct {
		secret, claims string
		ttl            time.Duration
	}{{"", "{}", 0}, {"s", "[]", 0}, {"s", "{", 0}, {"s", `{"a":"{what}"}`, 0}, {"s", "{}", -1}} {
		if _, err := NewToken([]byte(c.secret), c.claims, c.ttl); err == nil {
			t.Errorf("%+v was allowed", c)
		}
	}
	bare, err := NewToken(secret, " { } ", 0)
	if err != nil {
		t.Fatal(err)
	}
	claims.Exp = 0
	decode(strings.Split(string(bare.Append(nil, "d", 0, time.Now())), ".")[1], &claims)
	if claims.Exp != 0 {
		t.Error("an expiry that nobody asked for")
	}
}
