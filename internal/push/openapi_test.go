package push

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"downlink/internal/openapi/openapitest"
	"downlink/internal/problem"
)

// TestEveryDocumentedAnswerIsReal: what is answered stands in the description,
// and what stands there is answered.
func TestEveryDocumentedAnswerIsReal(t *testing.T) {
	doc := openapitest.Read(t)
	hold := make(chan struct{})
	defer close(hold)
	full := false
	r := newRig(t, func(o *Options) {
		o.Wait = 50 * time.Millisecond
		o.InFlight = func() int {
			if full {
				return 1
			}
			return 100
		}
		o.Sender = func(r *http.Request) (Sender, error) {
			switch r.Header.Get("X-Test") {
			case "nobody":
				return nil, problem.New(problem.Unauthorized, "x")
			case "fault":
				return nil, io.ErrUnexpectedEOF
			case "scoped":
				return scoped{}, nil
			}
			return anybody{}, nil
		}
	})
	r.does["slow"] = hangs(hold)
	see := func(what, media, body string, header ...string) {
		t.Helper()
		resp, text := r.send(t, media, body, header...)
		doc.Answer(t, what, Path, "post", resp.StatusCode, resp.Header, []byte(text))
	}
	to := func(device string) string { return `{"device":"` + device + `","type":"t","text":"x"}` }
	const one, lines = "application/json", "application/x-ndjson"
	for _, device := range []string{"ok", "no", "away", "broken", "other", "@g"} {
		see(device, one, to(device))
	}
	see("list", one, `{"devices":["ok"],"type":"t","text":"x"}`)
	see("partly", one, `{"devices":["ok","no","away"],"type":"t","text":"x"}`)
	see("batch", lines, to("ok")+"\n"+to("no")+"\nrubbish\n"+`{"devices":["ok","away"],"type":"t","text":"x"}`)
	see("nobody", one, to("ok"), "X-Test", "nobody")
	see("scoped", one, to("no"), "X-Test", "scoped")
	see("fault", one, to("ok"), "X-Test", "fault")
	see("large", one, `{"device":"ok","type":"t","text":"`+strings.Repeat("x", 1001)+`"}`)
	see("media", "text/plain", to("ok"))
	resp, err := http.Get(r.url)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	doc.Answer(t, "method", Path, "post", resp.StatusCode, resp.Header, text)

	hasty := newRig(t, func(o *Options) { o.BodyTimeout = 50 * time.Millisecond })
	stalled, w := io.Pipe()
	resp, err = http.Post(hasty.url, one, stalled)
	if err != nil {
		t.Fatal(err)
	}
	text, _ = io.ReadAll(resp.Body)
	resp.Body.Close()
	_ = w.Close()
	doc.Answer(t, "stalled", Path, "post", resp.StatusCode, resp.Header, text)

	var waits = make(chan struct{})
	go func() {
		defer close(waits)
		if resp, err := http.Post(r.url, one, strings.NewReader(to("slow"))); err == nil {
			resp.Body.Close()
		}
	}()
	waitFor(t, func() bool { return r.h.InFlight() == 1 })
	see("busy", one, to("slow"))
	full = true
	see("full", one, to("ok"))
	hold <- struct{}{}
	<-waits
	doc.WantAllSeen(t, Path)

	operation := doc.Dig("paths", Path, "post")
	examples, _ := openapitest.Dig(operation, "requestBody", "content", one, "examples").(openapitest.Object)
	for name, example := range examples {
		body, err := json.Marshal(openapitest.Dig(example, "value"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parse(body, 1000); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(examples) < 2 {
		t.Errorf("%d examples", len(examples))
	}
}
