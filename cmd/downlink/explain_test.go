package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"downlink/internal/config"
	"downlink/internal/explain"
)

func TestDistinctAddresses(t *testing.T) {
	for given, want := range map[string][]string{
		"192.0.2.1 192.0.2.2":               {"192.0.2.1", "192.0.2.2"},
		"192.0.2.1 2001:db8::1 192.0.2.2":   {"192.0.2.1", "192.0.2.2"},
		"2001:db8::1 2001:db8::2":           {"2001:db8::1", "2001:db8::2"},
		"::ffff:192.0.2.1 ::ffff:192.0.2.2": {"192.0.2.1", "192.0.2.2"},
		"127.0.0.1 ::1":                     nil,
		"":                                  nil,
	} {
		var all []netip.Addr
		for a := range strings.FieldsSeq(given) {
			all = append(all, netip.MustParseAddr(a))
		}
		if got := distinct(all); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", given, got, want)
		}
	}
}

// TestEachAddressIsAsked by the name that the certificate is for.
func TestEachAddressIsAsked(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "gateways.test:9090" || r.URL.EscapedPath() != "/v1/devices/a%2Fb" {
			t.Errorf("it is asked for %s %s", r.Host, r.URL.EscapedPath())
		}
		fmt.Fprint(w, `{"device":"a/b","gateway":{"name":"g"}}`)
	}))
	defer server.Close()
	client, err := new(callerFlags).client(config.NewLoader(nil), 10*time.Second, server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	r, err := askable{url: "http://gateways.test:9090"}.ask(t.Context(), client, "a/b")
	if err != nil || r.Gateway.Name != "g" {
		t.Errorf("%+v %v", r, err)
	}
}

func TestDotsAreNoSteps(t *testing.T) {
	for device, want := range map[string]string{".": "%2E", "..": "%2E%2E", "a.b": "a.b", "a/../b": "a%2F..%2Fb", "매장": "%EB%A7%A4%EC%9E%A5"} {
		if got := segment(device); got != want {
			t.Errorf("%q: %q", device, got)
		}
	}
}

// TestAFleetFitsOnOneScreen, and says what matters first.
func TestAFleetFitsOnOneScreen(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.Local)
	f := findings{Device: "pos-1"}
	for i := range 40 {
		f.Gateways = append(f.Gateways, heard{Backend: fmt.Sprint("192.0.2.", i, ":9090"), Report: &explain.Report{
			Device: "pos-1", Time: now, Gateway: explain.Gateway{Name: fmt.Sprint("gateway-", i), Instance: fmt.Sprint(i), Ready: i != 7, Why: "going out of service"},
			Trail: []explain.Happening{{What: "refused", Word: "streams_per_device", First: now.Add(-time.Hour), Last: now.Add(-time.Duration(i) * time.Minute), Times: 3}},
		}})
	}
	f.Gateways[3] = heard{Backend: "192.0.2.3:9090", err: errors.New("no answer: connection refused\nIs it running?")}
	f.Gateways[5].Report.Sessions = []explain.Session{{
		Kind: "stream", Since: now.Add(-25 * time.Hour), Address: "10.0.0.9:5", Protocol: "HTTP/1.1", Credential: "jwt", State: "stalled",
		Cursor: "1-1", Behind: explain.Behind{Events: 300, More: true, MS: 65_000}, Conflated: 12, Groups: []string{"north\x1b[31m"},
	}, {Kind: "poll", Since: now, State: "live"}}
	f.Gateways = append(f.Gateways, f.Gateways[5]) // the same one by another address
	var out strings.Builder
	c := &explainCmd{Device: "pos-1"}
	f.Gateways = once(f.Gateways)
	if err := c.tell(&out, f); err != nil {
		t.Error(err)
	}
	text := out.String()
	for _, want := range []string{
		"pos-1 is connected: 1 stream and 1 poll at gateway-5.\n",
		"192.0.2.3:9090: no answer: connection refused\n",
		"gateway-7 (192.0.2.7:9090, devices at ): NOT ready: going out of service\n",
		"stream for 25 h 0 min, since 2026-11-29 11:00:00, from 10.0.0.9:5, HTTP/1.1\n",
		"1-1: 300 events behind, or more (the oldest by 1 min): it takes them more slowly than they come\n",
		`groups      north\x1b[31m`,
		"conflated   12 events weren't sent",
		"gateway-39: serving.\n",
		"  12:00:00  gateway-0  refused streams_per_device, 3 times since 11:00:00\n",
		"… and 31 older; --json shows all\n",
		"\nstreams_per_device\n  The device already holds",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q", want)
		}
	}
	if lines := strings.Count(text, "\n"); lines > 45 || strings.Contains(text, "\x1b") {
		t.Errorf("%d lines", lines)
	}
	for line := range strings.Lines(text) {
		if len([]rune(line)) > 120 {
			t.Errorf("a line of %d characters: %q", len([]rune(line)), line)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

// TestWhereNothingIsKnown it is said where to look.
func TestWhereNothingIsKnown(t *testing.T) {
	now := time.Now()
	ready := explain.Gateway{Name: "g", Ready: true}
	expired := explain.Gateway{Name: "g", Ready: true, Troubles: []string{"the certificate expired"}}
	stream := []explain.Session{{Kind: "stream", Since: now, State: "live"}}
	refused := []explain.Happening{{What: "refused", Word: "accept_rate", First: now, Last: now, Times: 1}}
	const running = "Is a gateway running there"
	for name, c := range map[string]struct {
		heard     heard
		want, not string
	}{
		"connected": {heard{Report: &explain.Report{Time: now, Gateway: ready, Sessions: stream}}, nothingComes + "\n  Then it isn't", nothingIsKnown},
		"refused":   {heard{Report: &explain.Report{Time: now, Gateway: ready, Trail: refused}}, "accept_rate\n", nothingIsKnown},
		"revoked": {heard{Report: &explain.Report{Time: now, Gateway: ready, Revoked: true, Revocation: &explain.Revocation{
			Since: &now, Reason: "stolen\x1b[31m",
		}}}, "a is REVOKED since " + clock(now, now) + ` (stolen\x1b[31m): it is let in nowhere`, nothingIsKnown},
		"by hand":   {heard{Report: &explain.Report{Time: now, Gateway: ready, Revoked: true, Revocation: new(explain.Revocation)}}, "a is REVOKED: it", nothingIsKnown},
		"of before": {heard{Report: &explain.Report{Time: now, Gateway: ready, Revoked: true}}, "a is REVOKED: it", nothingIsKnown},
		"elsewhere": {heard{Report: &explain.Report{Time: now, Gateway: ready, Dials: "its shard is 3: member b dials it"}}, "its shard is 3: member b dials it.", nothingIsKnown},
		"dialled":   {heard{Report: &explain.Report{Time: now, Gateway: ready, Dials: "this member dials it"}}, notDialled + "\n  Ask the member", nothingIsKnown},
		"absent":    {heard{Report: &explain.Report{Time: now, Gateway: ready}}, nothingIsKnown + "\n  No request", "TROUBLE"},
		"trouble":   {heard{Report: &explain.Report{Time: now, Gateway: expired}}, "TROUBLE: the certificate expired\n", running},
		"silent":    {heard{err: errors.New("no answer: connection refused")}, running, nothingIsKnown},
		"starting":  {heard{err: refusalOf(503, []byte(`{"title":"The log can't be reached"}`))}, "The log can't be reached", running},
	} {
		var out strings.Builder
		_ = (&explainCmd{Device: "a"}).tell(&out, findings{Device: "a", Gateways: once([]heard{c.heard})})
		if text := out.String(); !strings.Contains(text, c.want) || strings.Contains(text, c.not) {
			t.Errorf("%s: want %q, not %q:\n%s", name, c.want, c.not, text)
		}
	}
}

// TestWhatExplainEndsWith: a script can tell "not connected" from "nobody knows".
func TestWhatExplainEndsWith(t *testing.T) {
	there := heard{Report: &explain.Report{Sessions: []explain.Session{{}}}}
	absent, silent := heard{Report: &explain.Report{}}, heard{err: errors.New("no answer")}
	denied := heard{err: refused(errors.New("the token isn't known"))}
	for name, c := range map[string]struct {
		heard []heard
		code  int
	}{
		"connected": {[]heard{absent, there, silent}, exitDone}, "not": {[]heard{absent, absent}, exitMissed},
		"unknown": {[]heard{absent, silent}, exitFailed}, "all silent": {[]heard{silent}, exitFailed},
		"denied": {[]heard{denied, denied}, exitRefused}, "some denied": {[]heard{denied, absent}, exitFailed},
	} {
		err := (&explainCmd{Device: "a"}).tell(io.Discard, findings{Device: "a", Gateways: c.heard})
		if code := report(io.Discard, err); code != c.code {
			t.Errorf("%s: %d, want %d (%v)", name, code, c.code, err)
		}
	}
}

func TestAges(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "no time", 0: "0s", 1500 * time.Microsecond: "2ms", 59400 * time.Millisecond: "59s", 61 * time.Second: "1 min",
		47 * time.Hour: "47 h 0 min", 49 * time.Hour: "2 days",
	} {
		if got := age(d); got != want {
			t.Errorf("%v: %q", d, got)
		}
	}
}
