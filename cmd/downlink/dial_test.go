package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"downlink/internal/testkit"
)

// TestTheHelpOfDialBeginsWithTheQuestions that lead most readers away.
func TestTheHelpOfDialBeginsWithTheQuestions(t *testing.T) {
	for _, args := range [][]string{{"dial", "--help"}, {"dial", "run", "--help"}} {
		code, out, errs := execute(t, "", nil, args...)
		questions := strings.Index(out, "Must the connection stay open?")
		if code != exitDone || errs != "" || questions < 0 || questions > 300 || strings.Contains(out, "--listen=") {
			t.Errorf("%v: %d, questions at %d, %s", args, code, questions, errs)
		}
	}
	if _, out, _ := execute(t, "", nil, "dial", "run", "--help"); !strings.Contains(out, "--owner=") || !strings.Contains(out, "--log=") {
		t.Error("settings are missing")
	}
	if _, out, _ := execute(t, "", nil, "serve", "--help"); strings.Contains(out, "--owner=") || !strings.Contains(out, "--listen=") {
		t.Error("serve shows settings of dial, or hides its own")
	}
}

func TestDialRefusesWhatCantBe(t *testing.T) {
	list := filepath.Join(t.TempDir(), "devices.csv")
	testkit.Put(t, list, []byte("id,url\na,https://a.example.com/\n"))
	bad := filepath.Join(t.TempDir(), "devices.yml")
	testkit.Put(t, bad, []byte("{"))
	for args, want := range map[string]string{
		"dial": "inventory",
		"dial --inventory " + list + " --transport websocket": "somebody has to keep each connection open",
		"dial --inventory " + list + " --owner ring":          "needs a log on Redis",
		"dial --inventory " + list + " --listen :8080":        "is a setting of downlink serve",
		"dial --inventory " + bad:                             "inventory",
		"dial --inventory gone.csv":                           "inventory",
		"serve --listen 127.0.0.1:0 --owner ring":             "is a setting of downlink dial",
		"check --for dial":                                    "inventory",
		"check --for dial --inventory gone.csv":               "Nothing was started",
		"check --for nothing":                                 "must be one of",
		"dial status --backend ftp://x":                       "isn't an address of a back end",
	} {
		code, out, errs := execute(t, "", nil, strings.Fields(args)...)
		if code != exitUsage || !strings.Contains(errs, want) || out != "" {
			t.Errorf("%q: %d %s %s", args, code, out, errs)
		}
	}
	code, out, errs := execute(t, "", nil, "check", "--for", "dial", "--inventory", list)
	words := strings.Join(strings.Fields(out), " ")
	if code != exitDone || !strings.Contains(words, "owner none default") || strings.Contains(words, "cors_origins") || strings.Contains(errs, "drain") {
		t.Errorf("%d %s %s", code, out, errs)
	}
}

// answering is a back end that answers every request with a text.
func answering(t *testing.T, status int, text string) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/dial" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestDialStatus(t *testing.T) {
	const text = `{"owner":"ring","transport":"websocket","member":"a","ready":true,"moving":1,
		"inventory":{"source":"d.csv","devices":7,"invalid":0,"error":"it is gone"},
		"devices":{"devices":5,"connected":4,"dialling":0,"unreachable":1},
		"members":[{"name":"a","shards":2},{"name":"b","shards":1,"leaving":true}],
		"shards":[
			{"shard":0,"proposed":"a","owner":"a","generation":11,"held":true,"live":true,"devices":{"devices":2,"connected":2,"dialling":0,"unreachable":0}},
			{"shard":1,"proposed":"a","owner":"a","generation":12,"held":true,"live":false,"devices":{"devices":3,"connected":2,"dialling":0,"unreachable":1}},
			{"shard":2,"proposed":"a","owner":"b","generation":13,"held":false,"live":false}]}`
	at := answering(t, http.StatusOK, text)
	code, out, errs := execute(t, "", nil, "dial", "status", "--backend", at)
	words := strings.Join(strings.Fields(out), " ")
	for _, want := range []string{
		"owner ring, transport websocket, member a: ready", "7 devices of d.csv", "it is gone",
		"5, of which 4 connected, 0 dialling, 1 unreachable", "1 of 3 shards aren't with the member",
		"member b 1 shards leaving", "shard 1 owner a proposed a generation 12 3 devices here, 2 connected held, and its lease has lapsed",
		"shard 2 owner b proposed a generation 13 on its way",
	} {
		if !strings.Contains(words, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if code != exitDone || errs != "" || strings.Contains(words, "shard 0") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	if _, out, _ := execute(t, "", nil, "dial", "status", "--backend", at, "--all"); !strings.Contains(out, "shard 0") {
		t.Errorf("--all: %s", out)
	}
	if _, out, _ := execute(t, "", nil, "dial", "status", "--backend", at, "--json"); out != text {
		t.Errorf("--json: %s", out)
	}
	if code, _, errs := execute(t, "", nil, "dial", "status", "--backend", answering(t, http.StatusNotFound, "{}")); code != exitRefused || !strings.Contains(errs, "downlink serve") {
		t.Errorf("a gateway: %d %s", code, errs)
	}
	if code, _, errs := execute(t, "", nil, "dial", "status", "--backend", answering(t, http.StatusOK, "hello")); code != exitFailed || !strings.Contains(errs, "isn't that of a dialler") {
		t.Errorf("something else: %d %s", code, errs)
	}
}

// With owner static there are no leases, generations or members to tell of; and a
// list that was never read isn't an earlier one.
func TestDialStatusOfAStaticMember(t *testing.T) {
	at := answering(t, http.StatusOK, `{"owner":"static","transport":"post","ready":true,"inventory":{"source":"d.csv","devices":0,"error":"it is gone"},
		"shards":[{"shard":3,"held":true,"live":true,"devices":{"devices":3,"connected":2,"dialling":0,"unreachable":1}}]}`)
	code, out, errs := execute(t, "", nil, "dial", "status", "--backend", at)
	words := strings.Join(strings.Fields(out), " ")
	if code != exitDone || errs != "" || !strings.Contains(words, "shard 3 3 devices here, 2 connected") ||
		strings.Contains(words, "nobody") || strings.Contains(words, "earlier") || !strings.Contains(words, "it couldn't be read yet: it is gone") {
		t.Errorf("%d %s %s", code, out, errs)
	}
}
