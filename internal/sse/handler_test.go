package sse

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"downlink/internal/conn"
	"downlink/internal/door"
	"downlink/internal/session"
)

func TestStreamHasTheHeadersOfTheContract(t *testing.T) {
	r := newRig(t, nil)
	_, resp, body := r.get("/events?device=a")
	for name, want := range map[string]string{
		"Content-Type": "text/event-stream", "Cache-Control": "no-cache, no-transform",
		"X-Accel-Buffering": "no", "Connection": "keep-alive", "Content-Encoding": "",
	} {
		if got := resp.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if resp.StatusCode != 200 || resp.Header.Get(door.GroupsHeader) == "" {
		t.Errorf("%s, groups %q", resp.Status, resp.Header.Get(door.GroupsHeader))
	}
	first := until(t, body, ": downlink")
	if !regexp.MustCompile(`^retry: (1[5-9]|2[0-9]|3[0-9]|4[0-5])\d\d\n\n: downlink\n$`).MatchString(first) {
		t.Errorf("first bytes: %q", first)
	}
	got := until(t, body, `data: {"reason":"no-cursor","after_ms":0}`)
	if !strings.Contains(got, "id: 1000-0\nevent: resync\n") {
		t.Errorf("%q", got)
	}
	id := r.publish("a", "x")
	if got := until(t, body, "data: x"); !strings.Contains(got, "id: "+id.String()+"\n") {
		t.Errorf("%q", got)
	}
}

func TestFirstBytesComeWithoutALog(t *testing.T) {
	r := newRig(t, nil)
	_, _, body := r.get("/events?device=a", "Last-Event-ID: 1-1") // nobody can judge it
	until(t, body, ": downlink")
}

func TestCursor(t *testing.T) {
	r := newRig(t, nil)
	one, two := r.publish("a", "one").String(), r.publish("a", "two").String()
	invalid := resync(two, "invalid-cursor")
	for name, c := range map[string]struct{ target, header, want string }{
		"header":           {"", one, "id: " + two + "\nevent: t\ndata: two\n\n"},
		"query":            {"&lastEventId=" + one, "", "id: " + two + "\nevent: t\ndata: two\n\n"},
		"header wins":      {"&lastEventId=1-1", one, "id: " + two + "\nevent: t\ndata: two\n\n"},
		"empty is none":    {"&lastEventId=", "", resync(two, "no-cursor")},
		"dollar":           {"", "$", invalid},
		"plus":             {"&lastEventId=%2B", "", invalid},
		"greater":          {"", ">", invalid},
		"alias":            {"", "00010-0", invalid},
		"only ms":          {"", "1000", invalid},
		"NUL":              {"&lastEventId=1-1%00", "", invalid},
		"groups differ":    {"&group=g", one + "\r\nDownlink-Groups: " + door.GroupsValue(nil), resync(two, "groups-changed")},
		"groups are alike": {"&group=g&group=h", one + "\r\nDownlink-Groups: " + door.GroupsValue([]string{"h", "g", "g"}), "id: " + two + "\nevent: t\ndata: two\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			header := []string{}
			if c.header != "" {
				header = append(header, "Last-Event-ID: "+c.header)
			}
			con, resp, body := r.get("/events?device=a"+c.target, header...)
			defer con.Close()
			until(t, body, ": downlink")
			if _, err := body.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len(c.want))
			if _, err := io.ReadFull(body, got); err != nil || string(got) != c.want {
				t.Errorf("%s: %q, want %q (%v)", resp.Status, got, c.want, err)
			}
			con.Close()
			eventually(t, "the session ends", func() bool { return r.roster.Len() == 0 })
		})
	}
}

func TestWhatIsNotAStream(t *testing.T) {
	r := newRig(t, nil)
	for _, c := range []struct {
		name, method, target string
		header               []string
		status               int
		says                 string
	}{
		{"POST", "POST", "/events?device=a", []string{"Content-Length: 0"}, 405, "GET"},
		{"OPTIONS", "OPTIONS", "/events?device=a", nil, 204, ""},
		{"HEAD", "HEAD", "/events?device=a", nil, 200, ""},
		{"HEAD without device", "HEAD", "/events", nil, 400, ""},
		{"no device", "GET", "/events", nil, 400, "?device="},
		{"two devices", "GET", "/events?device=a&device=b", nil, 400, "once"},
		{"broadcast as device", "GET", "/events?device=*", nil, 400, "device"},
		{"group as device", "GET", "/events?device=@g", nil, 400, "device"},
		{"a broken escape", "GET", "/events?device=a&ticket=%zz", nil, 400, "%25"},
		{"a semicolon", "GET", "/events?device=a&access_token=b;c", nil, 400, "%3B"},
		{"control character", "GET", "/events?device=a%0Ab", nil, 400, "U+000A"},
		{"too long", "GET", "/events?device=" + strings.Repeat("x", 129), nil, 400, "128"},
		{"empty group", "GET", "/events?device=a&group=", nil, 400, "group"},
		{"group with @", "GET", "/events?device=a&group=@north", nil, 400, "without"},
		{"too many groups", "GET", "/events?device=a" + strings.Repeat("&group=g", 65), nil, 400, "64"},
		{"from nowhere", "GET", "/events?device=a&from=latest", nil, 400, "earliest"},
		{"Accept JSON", "GET", "/events?device=a", []string{"Accept: application/json"}, 406, "text/event-stream"},
		{"Accept with weight 0", "GET", "/events?device=a", []string{"Accept: */*, text/event-stream;q=0.0"}, 406, ""},
		{"large body", "GET", "/events?device=a", []string{"Content-Length: 9000", "", strings.Repeat("x", 9000)}, 413, "body"},
	} {
		t.Run(c.name, func(t *testing.T) {
			con, br := r.request(append([]string{c.method + " " + c.target + " HTTP/1.1", "Host: x"}, c.header...)...)
			defer con.Close()
			resp, err := http.ReadResponse(br, &http.Request{Method: c.method})
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != c.status || !strings.Contains(string(body), c.says) {
				t.Errorf("%s %q (%v), want %d saying %q", resp.Status, body, err, c.status, c.says)
			}
			if (c.status == 405 || c.method == "OPTIONS") && resp.Header.Get("Allow") != "GET, HEAD, OPTIONS" {
				t.Errorf("Allow: %q", resp.Header.Get("Allow"))
			}
			if n := r.roster.Len(); n != 0 {
				t.Errorf("%d sessions are held", n)
			}
		})
	}
}

func TestWhatIsAStreamAllTheSame(t *testing.T) {
	r := newRig(t, nil)
	for name, header := range map[string][]string{
		"no Accept":      nil,
		"empty Accept":   {"Accept: "},
		"everything":     {"Accept: */*"},
		"text":           {"Accept: application/json, text/*;q=0.1"},
		"several":        {"Accept: application/json", "Accept: TEXT/event-stream"},
		"small body":     {"Content-Length: 2", "", "hi"},
		"expectation":    {"Expect: 100-continue"},
		"HTTP/2 upgrade": {"Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"},
	} {
		t.Run(name, func(t *testing.T) {
			con, resp, body := r.get("/events?device=a", header...)
			defer con.Close()
			if resp.StatusCode != 200 {
				t.Fatal(resp.Status)
			}
			until(t, body, ": downlink")
			con.Close()
			eventually(t, "the hang-up is noticed", func() bool { return r.roster.Len() == 0 })
		})
	}
}

// A client that wants its connection closed is told that it will be (RFC 9112
// §9.6), by every driver.
func TestConnectionClose(t *testing.T) {
	r := newRig(t, nil)
	_, br := r.request("GET /events?device=a HTTP/1.1", "Host: x", "Connection: close")
	if head := until(t, br, "\r"); !strings.Contains(head, "\nConnection: close\r\n") { // up to the empty line
		t.Errorf("%q", head)
	}
}

func TestHTTP10(t *testing.T) {
	r := newRig(t, nil)
	con, br := r.request("GET /events?device=a HTTP/1.0")
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.TransferEncoding) != 0 || resp.Header.Get("Connection") == "keep-alive" {
		t.Errorf("%v %v", resp.TransferEncoding, resp.Header)
	}
	body := bufio.NewReader(resp.Body)
	until(t, body, ": downlink")
	r.publish("a", "x")
	until(t, body, "data: x")
	con.Close()
	eventually(t, "the hang-up is noticed", r.ended(session.ClientGone))
}

func TestH2C(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.Driver = conn.Ordinary{KeepAlive: 2500 * time.Millisecond, WriteTimeout: time.Second}
	})
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get(r.server.URL + "/events?device=a")
	if err != nil {
		t.Fatal(err)
	}
	if resp.ProtoMajor != 2 || resp.Header.Get("Connection") != "" {
		t.Errorf("%s %v", resp.Proto, resp.Header)
	}
	body := bufio.NewReader(resp.Body)
	until(t, body, ": ping") // the write time limit has passed while the stream was idle
	r.publish("a", "x")
	until(t, body, "data: x")
	resp.Body.Close()
	eventually(t, "the hang-up is noticed", r.ended(session.ClientGone))
}

func TestHalfClosedClientCountsAsGone(t *testing.T) {
	r := newRig(t, nil)
	con, _, body := r.get("/events?device=a")
	until(t, body, ": downlink")
	if err := con.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the hang-up is noticed", r.ended(session.ClientGone))
}

func TestClientThatStopsReadingIsClosedAndDelaysNobody(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.Driver = conn.Ordinary{KeepAlive: time.Minute, WriteTimeout: time.Second}
	})
	con, _, body := r.get("/events?device=a")
	if err := con.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	until(t, body, ": downlink")
	_, _, other := r.get("/events?device=b")
	until(t, other, ": downlink")
	payload := strings.Repeat("x", 1<<20)
	for range 16 { // more than the kernel takes
		r.publish("a", payload)
	}
	r.publish("b", "mine")
	until(t, other, "data: mine")
	eventually(t, "it is closed", r.ended(session.WriteTimeout))
}

func TestKeepAlive(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.Driver = conn.Ordinary{KeepAlive: 20 * time.Millisecond, WriteTimeout: time.Minute}
	})
	_, _, body := r.get("/events?device=a")
	until(t, body, ": ping")
	passed := r.publish("somebody else", "x")
	until(t, body, "id: "+passed.String())
	until(t, body, ": ping")
}

func TestMaximumAge(t *testing.T) {
	r := newRig(t, func(o *Options) { o.MaxAge = 50 * time.Millisecond })
	_, _, body := r.get("/events?device=a")
	rest, err := io.ReadAll(body)
	if err != nil || strings.Count(string(rest), "retry: ") != 2 {
		t.Errorf("%q, %v", rest, err)
	}
	eventually(t, "the end has its name", r.ended(session.Lifetime))
}

func TestAnEndSaysWhenToComeBack(t *testing.T) {
	r := newRig(t, nil)
	var bodies []*bufio.Reader
	for range 2 {
		_, _, body := r.get("/events?device=a")
		until(t, body, ": downlink")
		bodies = append(bodies, body)
	}
	r.endAll(session.Draining)
	for _, body := range bodies {
		rest, err := io.ReadAll(body)
		if err != nil || !regexp.MustCompile(`retry: \d+\n\n$`).Match(rest) {
			t.Errorf("%q, %v", rest, err)
		}
	}
	_, resp, body := r.get("/events?device=a")
	rest, err := io.ReadAll(body)
	if err != nil || resp.Header.Get("Downlink-Refused") != "draining" || !strings.Contains(string(rest), ": refused: draining\n") {
		t.Errorf("%v %q, %v", resp.Header, rest, err)
	}
}

func TestRefusalInTheClientsLanguage(t *testing.T) {
	r := newRig(t, nil)
	var first []*bufio.Reader
	for range 2 {
		_, _, body := r.get("/events?device=a")
		until(t, body, ": downlink")
		first = append(first, body)
	}
	_, resp, body := r.get("/events?device=a")
	rest, err := io.ReadAll(body)
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" || !resp.Close ||
		resp.Header.Get("Downlink-Refused") != "streams_per_device" || resp.Header.Get(door.GroupsHeader) != "" || err != nil ||
		!regexp.MustCompile(`^retry: \d+\n\n: refused: streams_per_device\n`).Match(rest) {
		t.Errorf("a native client: %s %v %q", resp.Status, resp.Header, rest)
	}
	_, resp, _ = r.get("/events?device=a", "Downlink-Client: test/1")
	if resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" || resp.Header.Get("Downlink-Refused") != "streams_per_device" {
		t.Errorf("a client that can: %s %v", resp.Status, resp.Header)
	}
	_, _, other := r.get("/events?device=b")
	until(t, other, ": downlink")
	r.publish("a", "still here") // nobody was ended for another's sake
	for _, body := range first {
		until(t, body, "data: still here")
	}
}

func TestStarting(t *testing.T) {
	r := newRig(t, nil)
	r.server.Config.Handler = Starting(door.New(door.Options{Retry: time.Second, Metrics: r.refused}))
	_, resp, body := r.get("/events?device=a")
	rest, err := io.ReadAll(body)
	if err != nil || resp.Header.Get("Downlink-Refused") != "starting" || !strings.HasPrefix(string(rest), "retry: ") {
		t.Errorf("%v %q %v", resp.Header, rest, err)
	}
}
