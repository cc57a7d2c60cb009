package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"downlink/client"
	"downlink/internal/testkit"
)

// arrives is what docs/protocol.md says that a device reads: each line end
// becomes LF, and everything else arrives byte for byte.
func arrives(payload string) string {
	return strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(payload)
}

// payloads are texts that a stream's format, JSON or a careless program could spoil.
func payloads() map[string]string {
	return map[string]string{
		"plain":                 "plain",
		"empty":                 "",
		"LF":                    "a\nb",
		"CR LF":                 "a\r\nb",
		"CR":                    "a\rb",
		"LF CR is two":          "a\n\rb",
		"CR CR LF is two":       "a\r\r\nb",
		"blank lines":           "a\n\n\nb\r\n\r\nc",
		"line end at the end":   "a\n",
		"CR LF at the end":      "a\r\n",
		"CR at the end":         "a\r",
		"line end at the start": "\na",
		"line end only":         "\n",
		"line ends only":        "\n\n",
		"leading blanks":        "  two",
		"a leading blank":       " one",
		"trailing blanks":       "two  ",
		"blank only":            " ",
		"blanks on each line":   " a \n b \n",
		"tabs":                  "\ta\t",
		"leading colon":         ": ping",
		"fields":                "id: 1-1\nevent: resync\ndata: forged\nretry: 1\n\nid\n",
		"NUL":                   "a\x00b",
		"control characters":    "\x01\x1b[31m\x7f",
		"U+0085":                "a\u0085b",
		"U+2028 and U+2029":     "a\u2028b\u2029c",
		"byte order mark":       "\ufeffa",
		"emoji":                 "👩‍👩‍👧‍👦 🇰🇷",
		"four bytes":            "\U0010ffff",
		"no normalisation":      "e\u0301 é",
		"not in JSON":           `<>&"\/` + "\u2028",
		"1 MiB":                 strings.Repeat("0123456789abcdef", 1<<16),
		"1 MiB of line ends":    strings.Repeat("\r\n", 1<<19),
		"1 MiB of emoji":        strings.Repeat("😀", 1<<18),
	}
}

// types are event types at the edges of their rule.
func types() map[string]string {
	return map[string]string{
		"leading blank":  " t",
		"blanks":         "  ",
		"trailing blank": "t ",
		"Unicode":        "주문.생성 😀",
		"128 bytes":      strings.Repeat("x", 128),
		"128 of Unicode": strings.Repeat("é", 64),
		"colons":         ":a: b",
		"not resync":     "Resync",
		"like a field":   "data",
		"the default":    "message",
	}
}

// A way is how an event gets into the log.
type way struct {
	send func(t *testing.T, typ, payload string)
	want func(payload string) string
}

// posted publishes on the back end's port.
func posted(backend string, body func(typ, payload string) string) func(*testing.T, string, string) {
	return func(t *testing.T, typ, payload string) {
		t.Helper()
		if status, answer := testkit.Post(t, backend+"/v1/events", "application/json", body(typ, payload)); status != 200 {
			t.Errorf("%.40q %.40q: %d %s", typ, payload, status, answer)
		}
	}
}

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// spaced is a JSON value with line ends of every kind between its tokens.
func spaced(payload string) string {
	return "\r\n[\r \n" + quoted(payload) + " ,\t1\r\n]"
}

func ways(g *testkit.Gateway, device string) map[string]way {
	return map[string]way{
		"text": {
			posted(g.Backend, func(typ, payload string) string {
				return fmt.Sprintf(`{"device":%q,"type":%s,"text":%s}`, device, quoted(typ), quoted(payload))
			}),
			arrives,
		},
		"JSON": {
			posted(g.Backend, func(typ, payload string) string {
				return fmt.Sprintf(`{"device":%q,"type":%s,"payload": %s }`, device, quoted(typ), spaced(payload))
			}),
			// Blanks around a JSON value aren't part of it; those inside are.
			func(payload string) string { return arrives(strings.TrimLeft(spaced(payload), "\r\n")) },
		},
	}
}

// TestPayloads: what a device reads is what docs/protocol.md says, whatever is
// sent, on every way into either log.
func TestPayloads(t *testing.T) {
	t.Parallel()
	const room = "3MiB" // a JSON payload is longer than the text in it
	t.Run("Redis", func(t *testing.T) {
		onlyOnce(t)
		t.Parallel()
		redis := testkit.StartRedis(t)
		g := program.StartGateway(t, args("--log", redis.URL(), "--max-event-bytes", room)...)
		w := ways(g, "demo")
		w["XADD"] = way{
			func(_ *testing.T, typ, payload string) {
				redis.Do("XADD", demoShard, "*", "dev", "demo", "type", typ, "payload", payload)
			},
			arrives,
		}
		checkPayloads(t, g, w)
	})
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		g := program.StartGateway(t, args("--log", "file:"+t.TempDir(), "--max-event-bytes", room)...)
		checkPayloads(t, g, ways(g, "demo"))
	})
}

// checkPayloads sends everything on every way and holds it against what a
// client's handler gets.
func checkPayloads(t *testing.T, g *testkit.Gateway, w map[string]way) {
	t.Helper()
	received := make(chan client.Event, 1)
	begun := make(chan string, 1)
	run(t, &client.Client{URL: g.Device, Device: "demo"}, client.Handler{
		Event:  func(_ context.Context, e client.Event) error { received <- e; return nil },
		Resync: func(_ context.Context, r client.Resync) error { begun <- r.Reason; return nil },
	})
	if reason := <-begun; reason != "no-cursor" {
		t.Fatalf("resync %q", reason)
	}
	check := func(name string, by way, typ, payload string) {
		t.Helper()
		by.send(t, typ, payload)
		select {
		case e := <-received:
			if e.Type != typ || e.Data != by.want(payload) {
				t.Errorf("%s: %.60q %.60q (%d bytes) came as %.60q %.60q (%d bytes)",
					name, typ, payload, len(payload), e.Type, e.Data, len(e.Data))
			}
		case reason := <-begun:
			t.Fatalf("%s: %.60q %.60q: resync %q", name, typ, payload, reason)
		case <-time.After(time.Minute):
			t.Fatalf("%s: %.60q %.60q never came", name, typ, payload)
		}
	}
	for by, w := range w {
		for name, payload := range payloads() {
			check(by+": "+name, w, "t", payload)
		}
		for name, typ := range types() {
			check(by+": type: "+name, w, typ, "payload")
		}
	}
}

// run keeps a client connected until the test ends.
func run(t *testing.T, c *client.Client, h client.Handler) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := c.Run(ctx, h); !errors.Is(err, context.Canceled) {
			t.Errorf("the client gave up: %v", err)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}
