package publish_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/limits"
	"downlink/internal/problem"
	"downlink/internal/publish"
)

func TestAnswersHaveTheExactShape(t *testing.T) {
	for _, c := range []struct{ name, body, want string }{
		{"one", `{"device":"demo","type":"t","payload":{"a":1}}`, `{"id":"1700000000000-1","shard":0}`},
		{"several", `{"devices":["demo","A83F21"],"type":"t","text":"x"}`,
			`{"ids":[{"id":"1700000000000-1","shard":0,"device":"demo"},{"id":"1700000000000-2","shard":3,"device":"A83F21"}]}`},
		{"a list of one", `{"devices":["demo"],"type":"t","text":"x"}`, `{"ids":[{"id":"1700000000000-1","shard":0,"device":"demo"}]}`},
		{"broadcast", `{"device":"*","type":"t","text":""}`,
			`{"ids":[{"id":"1700000000000-1","shard":0,"device":"*"},{"id":"1700000000000-2","shard":1,"device":"*"},{"id":"1700000000000-3","shard":2,"device":"*"},{"id":"1700000000000-4","shard":3,"device":"*"}]}`},
		{"group", `{"device":"@south","type":"t","text":""}`,
			`{"ids":[{"id":"1700000000000-1","shard":0,"device":"@south"},{"id":"1700000000000-2","shard":1,"device":"@south"},{"id":"1700000000000-3","shard":2,"device":"@south"},{"id":"1700000000000-4","shard":3,"device":"@south"}]}`},
		{"a name that needs quoting", `{"devices":["a\"b\\"],"type":"t","text":""}`, `{"ids":[{"id":"1700000000000-1","shard":2,"device":"a\"b\\"}]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			a := r.post(c.body)
			if a.Code != 200 || strings.TrimSpace(a.Body.String()) != c.want || a.Header().Get("Content-Type") != "application/json" {
				t.Errorf("%d %s %s\nwant %s", a.Code, a.Header().Get("Content-Type"), a.Body, c.want)
			}
			if r.log.calls != 1 {
				t.Errorf("%d calls of the log", r.log.calls)
			}
			r.wantCount("stored", 1)
		})
	}
}

func TestOneShardOfABroadcastStillAnswersWithAList(t *testing.T) {
	r := newRig(t, func(o *publish.Options) { o.Shards = 1 })
	if got := r.post(`{"device":"*","type":"t","text":""}`).Body.String(); !strings.HasPrefix(got, `{"ids":[`) {
		t.Error(got)
	}
}

func TestContentIsStoredAsSent(t *testing.T) {
	for body, want := range map[string]event.Event{
		`{"device":"d","type":"t","payload": {"b" : 1.0e5,  "a":"\u00e9\n\ud800"} }`: {Payload: `{"b" : 1.0e5,  "a":"\u00e9\n\ud800"}`},
		`{"device":"d","type":"t","payload":null}`:                                   {Payload: `null`},
		`{"device":"d","type":"t","payload":"x"}`:                                    {Payload: `"x"`},
		`{"device":"d","type":"t","payload":-0}`:                                     {Payload: `-0`},
		"{\"device\":\"d\",\"type\":\"t\",\"payload\":[ 1 ,\r\n[] , {\"]\":\"}\"}]}": {Payload: "[ 1 ,\r\n[] , {\"]\":\"}\"}]"},
		`{"device":"d","type":"t","text":"a\r\nb\u0000\ud83d\ude00 \u2028"}`:         {Payload: "a\r\nb\x00😀 \u2028"},
		`{"device":"d","type":"t","text":""}`:                                        {},
		`{"device":"d","type":"t","text":"x","key":"k","idem":"i","trace":"w"}`:      {Payload: "x", Key: "k", Idem: "i", Trace: "w"},
		"\n {\t\"text\" : \"x\" ,\"type\":\"t\", \"\\u0064evice\":\"d\"}\r\n ":       {Payload: "x"},
	} {
		r := newRig(t)
		want.Target, want.Type = "d", "t"
		if a := r.post(body); a.Code != 200 {
			t.Errorf("%s: %d %s", body, a.Code, a.Body)
		} else if diff := cmp.Diff([]event.Event{want}, r.log.stored()); diff != "" {
			t.Errorf("%s: %s", body, diff)
		}
	}
}

func TestBadBodiesAreRefusedWithTheirReason(t *testing.T) {
	list := `"d0"`
	for i := range publish.MaxDevices {
		list += fmt.Sprintf(`,"d%d"`, i+1)
	}
	for _, c := range []struct {
		body, field, detail string
		code                problem.Code
	}{
		{``, "", "empty", problem.InvalidJSON},
		{`{`, "", "unexpected end", problem.InvalidJSON},
		{`[]`, "", "not an object", problem.InvalidJSON},
		{`"device"`, "", "not an object", problem.InvalidJSON},
		{`null`, "", "not an object", problem.InvalidJSON},
		{`{"device":"d","type":"t","text":""} {}`, "", "at byte 37", problem.InvalidJSON},
		{`{"device":"d","type":"t","text":""}x`, "", "after top-level value", problem.InvalidJSON},
		{`{"device":"d","type":"t","text":"",}`, "", "", problem.InvalidJSON},
		{"{\"device\":\"d\",\"type\":\"t\",\"text\":\"\xff\"}", "", "UTF-8", problem.InvalidJSON},
		{"\xef\xbb\xbf{}", "", "", problem.InvalidJSON},
		{`{"device":"d","type":"t","payload":` + strings.Repeat("[", 10001) + strings.Repeat("]", 10001) + `}`, "", "max depth", problem.InvalidJSON},
		{`{"device":"d","type":"t","text":"\ud800"}`, "", "surrogate", problem.InvalidJSON},
		{`{"device":"d","type":"t","text":"\udc00\ud800"}`, "", "surrogate", problem.InvalidJSON},
		{`{"device":"d","type":"t","text":"\ud800x\udc00"}`, "", "surrogate", problem.InvalidJSON},
		{`{"device":"d\uD800","type":"t","text":""}`, "", "surrogate", problem.InvalidJSON},
		{`{"device":"d","type":"t","text":"","Idem":"x"}`, "Idem", `"Idem"`, problem.UnknownMember},
		{`{"device":"d","type":"t","text":"","` + strings.Repeat("é", 40) + `":1}`, "", "…", problem.UnknownMember},
		{`{"device":"d","type":"t","text":"","type":"u"}`, "type", `"type" stands twice`, problem.DuplicateMember},
		{`{"device":"d","device":"d","type":"t","text":""}`, "device", "twice", problem.DuplicateMember},
		{`{"device":"d","type":"t","text":"","t\u0079pe":"t"}`, "type", "twice", problem.DuplicateMember},
		{`{}`, "device", "missing", problem.InvalidEvent},
		{`{"type":"t","text":""}`, "device", "missing", problem.InvalidEvent},
		{`{"device":"d","text":""}`, "type", "missing", problem.InvalidEvent},
		{`{"device":"d","type":"t"}`, "payload", `"text":""`, problem.InvalidEvent},
		{`{"device":"d","type":"t","text":"","payload":1}`, "text", "exclude", problem.InvalidEvent},
		{`{"device":"d","devices":["e"],"type":"t","text":""}`, "devices", "exclude", problem.InvalidEvent},
		{`{"device":1,"type":"t","text":""}`, "device", "isn't a string", problem.InvalidEvent},
		{`{"device":null,"type":"t","text":""}`, "device", "isn't a string", problem.InvalidEvent},
		{`{"device":"d","type":"t","text":{}}`, "text", "isn't a string", problem.InvalidEvent},
		{`{"device":"d","type":"t","text":"","key":null}`, "key", "isn't a string", problem.InvalidEvent},
		{`{"device":"","type":"t","text":""}`, "device", "missing", problem.InvalidEvent},
		{`{"device":"**","type":"t","text":""}`, "device", "start", problem.InvalidEvent},
		{`{"device":"@","type":"t","text":""}`, "device", "missing", problem.InvalidEvent},
		{`{"device":"a\nb","type":"t","text":""}`, "device", "U+000A", problem.InvalidEvent},
		{`{"device":"d","type":"a\r\ndata: x","text":""}`, "type", "U+000D", problem.InvalidEvent},
		{`{"device":"d","type":"resync","text":""}`, "type", "reserved", problem.InvalidEvent},
		{`{"device":"d","type":"","text":""}`, "type", "missing", problem.InvalidEvent},
		{`{"device":"d","type":"t","text":"","key":"` + strings.Repeat("k", 129) + `"}`, "key", "129 bytes", problem.InvalidEvent},
		{`{"devices":[],"type":"t","text":""}`, "devices", "empty", problem.InvalidEvent},
		{`{"devices":"d","type":"t","text":""}`, "devices", "array", problem.InvalidEvent},
		{`{"devices":["d",2],"type":"t","text":""}`, "devices[1]", "isn't a string", problem.InvalidEvent},
		{`{"devices":["d",["e"]],"type":"t","text":""}`, "devices[1]", "isn't a string", problem.InvalidEvent},
		{`{"devices":["d","*"],"type":"t","text":""}`, "devices[1]", "start", problem.InvalidEvent},
		{`{"device":"@@g","type":"t","text":""}`, "device", "without", problem.InvalidEvent},
		{`{"devices":["@g"],"type":"t","text":""}`, "devices[0]", "start", problem.InvalidEvent},
		{`{"devices":["d","e","d"],"type":"t","text":""}`, "devices[2]", `"d" stands twice`, problem.DuplicateMember},
		{`{"devices":[` + list + `],"type":"t","text":""}`, "devices", "1000", problem.TooManyDevices},
		{`{"device":"d","type":"t","text":"","idem":""}`, "idem", "empty", problem.InvalidIdempotency},
		{`{"device":"d","type":"t","text":"","idem":"` + strings.Repeat("k", 257) + `"}`, "idem", "257 bytes", problem.InvalidIdempotency},
		{`{"device":"d","type":"t","text":"` + strings.Repeat("x", 1001) + `"}`, "payload", "1001 bytes, allowed are 1000", problem.EventTooLarge},
	} {
		r := newRig(t)
		a := r.post(c.body)
		wantProblem(t, c.body, a, c.code, c.field, c.detail)
		if n := len(r.log.stored()); n != 0 {
			t.Errorf("%.80s: %d events stored", c.body, n)
		}
	}
}

func wantProblem(t *testing.T, what string, a *httptest.ResponseRecorder, code problem.Code, field, detail string) {
	t.Helper()
	var d problem.Document
	if err := json.Unmarshal(a.Body.Bytes(), &d); err != nil {
		t.Fatalf("%.80s: %v in %s", what, err, a.Body)
	}
	want := problem.New(code, "")
	if d.Type != want.Type || d.Status != want.Status || a.Code != want.Status || d.Title != want.Title || d.Hint == "" {
		t.Errorf("%.80s: got %d %+v, want %s", what, a.Code, d, code)
	}
	if (field != "" && d.Field != field) || !strings.Contains(d.Detail, detail) {
		t.Errorf("%.80s: field %q, detail %q; want %q, %q", what, d.Field, d.Detail, field, detail)
	}
	if ct := a.Header().Get("Content-Type"); ct != problem.ContentType {
		t.Errorf("%.80s: Content-Type %s", what, ct)
	}
	if retry := a.Header().Get("Retry-After"); (retry != "") != (want.Status == 503 || want.Status == 429) {
		t.Errorf("%.80s: Retry-After %q with %d", what, retry, want.Status)
	}
}

func TestWrongRequests(t *testing.T) {
	good := `{"device":"d","type":"t","text":""}`
	for _, c := range []struct {
		code   problem.Code
		header []string
	}{
		{problem.UnsupportedMedia, []string{"Content-Type", ""}},
		{problem.UnsupportedMedia, []string{"Content-Type", "text/plain"}},
		{problem.UnsupportedMedia, []string{"Content-Type", "application/x-www-form-urlencoded"}},
		{problem.UnsupportedMedia, []string{"Content-Type", "application/json; charset=latin1"}},
		{problem.UnsupportedMedia, []string{"Content-Type", "application/json;;"}},
		{problem.UnsupportedMedia, []string{"Content-Encoding", "gzip"}},
		{problem.InvalidIdempotency, []string{"Idempotency-Key", ""}},
		{problem.InvalidIdempotency, []string{"Idempotency-Key", strings.Repeat("k", 257)}},
		{problem.InvalidIdempotency, []string{"Idempotency-Key", "a\xff"}},
	} {
		r := newRig(t)
		wantProblem(t, fmt.Sprint(c.header), r.post(good, c.header...), c.code, "", "")
		if len(r.log.stored()) != 0 {
			t.Errorf("%v: stored", c.header)
		}
	}
	for _, ok := range []string{"application/json", "Application/JSON; charset=UTF-8", `application/json; charset="utf-8"`} {
		if a := newRig(t).post(good, "Content-Type", ok); a.Code != 200 {
			t.Errorf("%s: %d %s", ok, a.Code, a.Body)
		}
	}
	for _, method := range []string{"GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"} {
		a := httptest.NewRecorder()
		newRig(t).handler.ServeHTTP(a, httptest.NewRequest(method, publish.Path, nil))
		if a.Header().Get("Allow") != "POST" {
			t.Errorf("%s: Allow %q", method, a.Header().Get("Allow"))
		}
		wantProblem(t, method, a, problem.MethodNotAllowed, "", method)
	}
}

func TestBodyOverTheLimit(t *testing.T) {
	big := `{"device":"d","type":"t","text":"` + strings.Repeat("x", 1<<20+7000) + `"}`
	r := newRig(t)
	wantProblem(t, "declared", r.post(big), problem.BodyTooLarge, "", "1000")
	unread := httptest.NewRequest(http.MethodPost, publish.Path, iotest.ErrReader(errors.New("it was read")))
	unread.ContentLength = 100 << 20
	unread.Header.Set("Content-Type", "application/json")
	early := httptest.NewRecorder()
	r.handler.ServeHTTP(early, unread)
	wantProblem(t, "far over the limit", early, problem.BodyTooLarge, "", "1000")

	req := httptest.NewRequest(http.MethodPost, publish.Path, struct{ *strings.Reader }{strings.NewReader(big)})
	req.ContentLength = -1
	req.Header.Set("Content-Type", "application/json")
	a := httptest.NewRecorder()
	r.handler.ServeHTTP(a, req)
	wantProblem(t, "chunked", a, problem.BodyTooLarge, "", "1000")
	r.wantCount("too_large", 3)
}

func TestAListThatWouldFillTheLogIsRefused(t *testing.T) {
	r := newRig(t, func(o *publish.Options) { o.MaxEventBytes = limits.Always(1 << 20) })
	var list []string
	for i := range 65 {
		list = append(list, fmt.Sprintf(`"d%d"`, i))
	}
	text := strings.Repeat("x", 1<<20)
	wantProblem(t, "65 MiB", r.post(`{"devices":[`+strings.Join(list, ",")+`],"type":"t","text":"`+text+`"}`), problem.EventTooLarge, "devices", "65 devices")
	if a := r.post(`{"devices":[` + strings.Join(list[:64], ",") + `],"type":"t","text":"` + text + `"}`); a.Code != 200 {
		t.Errorf("64 MiB: %d %s", a.Code, a.Body)
	}
}

func TestOneCallStoresAnEventForSeveralDevicesInOrder(t *testing.T) {
	r := newRig(t)
	var list []string
	for i := range 100 {
		list = append(list, fmt.Sprintf(`"d%d"`, i))
	}
	a := r.post(`{"devices":[` + strings.Join(list, ",") + `],"type":"t","text":"x"}`)
	var answer struct {
		IDs []struct {
			ID     event.ID
			Shard  int
			Device string
		}
	}
	if err := json.Unmarshal(a.Body.Bytes(), &answer); err != nil || len(answer.IDs) != 100 || r.log.calls != 1 {
		t.Fatalf("%v, %d calls, %s", err, r.log.calls, a.Body)
	}
	byID := map[event.ID]event.Event{}
	for _, e := range r.log.entries {
		byID[e.ID] = e.Event
	}
	for i, s := range answer.IDs {
		device := fmt.Sprintf("d%d", i)
		if s.Device != device || byID[s.ID].Target != device || s.Shard != event.Shard(device, shards) {
			t.Errorf("%d: %+v is %+v", i, s, byID[s.ID])
		}
	}
}

func TestIdempotency(t *testing.T) {
	r := newRig(t)
	one := `{"device":"demo","type":"t","payload":{"a":1}}`
	first := r.post(one, "Idempotency-Key", "k1")
	again := r.post(one, "Idempotency-Key", "k1")
	if first.Code != 200 || again.Code != 200 || first.Body.String() != again.Body.String() || len(r.log.stored()) != 1 {
		t.Errorf("%s %s: %d stored", first.Body, again.Body, len(r.log.stored()))
	}
	if first.Header().Get("Idempotent-Replayed") != "" || again.Header().Get("Idempotent-Replayed") != "true" {
		t.Errorf("headers %v %v", first.Header(), again.Header())
	}
	if r.log.stored()[0].Idem != "k1" {
		t.Errorf("the entry's idem is %q", r.log.stored()[0].Idem)
	}
	member := r.post(`{"device":"demo","type":"t","payload":{"a":1},"idem":"k1","trace":"another"}`)
	if member.Body.String() != first.Body.String() {
		t.Errorf("header and member are different keys: %s", member.Body)
	}
	if both := r.post(`{"device":"demo","type":"t","payload":{"a":1},"idem":"k1"}`, "Idempotency-Key", "k1"); both.Code != 200 {
		t.Errorf("the same key twice: %s", both.Body)
	}
	wantProblem(t, "differ", r.post(`{"device":"demo","type":"t","payload":{"a":1},"idem":"k2"}`, "Idempotency-Key", "k1"), problem.InvalidIdempotency, "idem", "differ")

	for _, other := range []string{
		`{"device":"demo","type":"t","payload":{"a":2}}`, `{"device":"demo","type":"u","payload":{"a":1}}`,
		`{"device":"demo","type":"t","payload":{"a":1},"key":"x"}`, `{"devices":["demo","demo4"],"type":"t","payload":{"a":1}}`,
	} {
		if a := r.post(other, "Idempotency-Key", "k1"); a.Code != 409 {
			t.Errorf("%s under the same key: %d %s", other, a.Code, a.Body)
		}
	}
	if a := r.post(`{"device":"demo","type":"t","payload":{"a":2}}`, "Idempotency-Key", "k1", "X-Test-Publisher", "other"); a.Code != 200 || a.Header().Get("Idempotent-Replayed") != "" {
		t.Errorf("another publisher: %d %s", a.Code, a.Body)
	}
	r.wantCount("stored", 2)
	r.wantCount("replayed", 3)
	r.wantCount("conflict", 4)
	r.wantCount("invalid", 1)
}

func TestPartialFailureAnswersWhatStandsAndARetryCompletesIt(t *testing.T) {
	r := newRig(t)
	r.log.fail = map[int]error{2: fmt.Errorf("shard 2: %w", eventlog.ErrUnavailable)}
	body := `{"device":"*","type":"t","text":"x"}`
	a := r.post(body, "Idempotency-Key", "k")
	wantProblem(t, "partial", a, problem.LogUnavailable, "", "1 of 4 entries were not stored")
	var partial struct {
		IDs    []struct{ Shard int }
		Errors []struct {
			Shard          int
			Device, Detail string
		}
	}
	if err := json.Unmarshal(a.Body.Bytes(), &partial); err != nil || len(partial.IDs) != 3 || len(partial.Errors) != 1 || partial.Errors[0].Shard != 2 || partial.Errors[0].Device != "*" || partial.Errors[0].Detail == "" {
		t.Errorf("%v %s", err, a.Body)
	}
	r.log.fail = nil
	if a := r.post(body, "Idempotency-Key", "k"); a.Code != 200 || a.Header().Get("Idempotent-Replayed") != "" || len(r.log.stored()) != 4 {
		t.Errorf("retry: %d %s, %d stored", a.Code, a.Body, len(r.log.stored()))
	}
	if a := r.post(body, "Idempotency-Key", "k"); a.Header().Get("Idempotent-Replayed") != "true" || len(r.log.stored()) != 4 {
		t.Errorf("third: %v, %d stored", a.Header(), len(r.log.stored()))
	}
	r.wantCount("unavailable", 1)
	r.wantCount("stored", 1)
	r.wantCount("replayed", 1)
}

func TestAConflictGoesBeforeOtherFailures(t *testing.T) {
	r := newRig(t)
	r.log.fail = map[int]error{0: eventlog.ErrUnavailable, 1: eventlog.ErrConflict, 2: eventlog.ErrFull}
	wantProblem(t, "three errors", r.post(`{"device":"*","type":"t","text":"x"}`), problem.Conflict, "", "3 of 4")
}

// A producer that hangs up at once has sent its event all the same.
func TestAClientThatIsGoneDoesNotUndoItsRequest(t *testing.T) {
	r := newRig(t, func(o *publish.Options) { o.AppendTimeout = time.Minute })
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r.log.block = make(chan struct{})
	time.AfterFunc(10*time.Millisecond, func() { close(r.log.block) })
	req := httptest.NewRequestWithContext(ctx, http.MethodPost, publish.Path, strings.NewReader(`{"device":"demo","type":"t","text":"x"}`))
	req.Header.Set("Content-Type", "application/json")
	r.handler.ServeHTTP(httptest.NewRecorder(), req)
	if n := len(r.log.stored()); n != 1 {
		t.Errorf("%d events stored", n)
	}
}

func TestErrorsOfTheLog(t *testing.T) {
	for err, code := range map[error]problem.Code{
		eventlog.ErrUnavailable: problem.LogUnavailable, eventlog.ErrFull: problem.LogFull, eventlog.ErrExhausted: problem.LogExhausted,
		eventlog.ErrClosed: problem.ShuttingDown, eventlog.ErrConflict: problem.Conflict, errors.New("dial redis://u:hunter2@h"): problem.Internal,
	} {
		r := newRig(t)
		r.log.fail = map[int]error{0: fmt.Errorf("appending: %w", err)}
		a := r.post(`{"device":"demo","type":"t","text":"x"}`)
		wantProblem(t, err.Error(), a, code, "", "")
		if strings.Contains(a.Body.String(), "hunter2") || strings.Contains(a.Body.String(), `"ids"`) {
			t.Errorf("the answer tells too much: %s", a.Body)
		}
	}
}

func TestALogThatHangsIsAnsweredInTime(t *testing.T) {
	r := newRig(t)
	r.log.block = make(chan struct{})
	wantProblem(t, "hang", r.post(`{"device":"demo","type":"t","text":"x"}`), problem.LogUnavailable, "", "")
}

// TestWhoMayNot: neither who isn't known nor what isn't permitted gets anything
// stored; of a batch the other lines count.
func TestWhoMayNot(t *testing.T) {
	for _, c := range []struct {
		what, body, media, publisher string
		status                       int
		want                         string
	}{
		{"unknown", `{"device":"demo","type":"t","text":""}`, "application/json", "unknown", 401, "urn:downlink:problem:unauthorized"},
		{"unknown, before the form", `x`, "text/plain", "unknown", 401, "urn:downlink:problem:unauthorized"},
		{"unknown batch", `{"device":"demo","type":"t","text":""}`, "application/x-ndjson", "unknown", 401, "urn:downlink:problem:unauthorized"},
		{"device", `{"device":"forbidden","type":"t","text":""}`, "application/json", "erp", 403, "not for erp"},
		{"group", `{"device":"@forbidden","type":"t","text":""}`, "application/json", "erp", 403, "not for erp"},
		{"one of several", `{"devices":["demo","forbidden"],"type":"t","text":""}`, "application/json", "erp", 403, "not for erp"},
	} {
		r := newRig(t)
		a := r.post(c.body, "Content-Type", c.media, "X-Test-Publisher", c.publisher)
		if a.Code != c.status || !strings.Contains(a.Body.String(), c.want) || (c.status == 401) != (a.Header().Get("WWW-Authenticate") != "") {
			t.Errorf("%s: %d %s %v", c.what, a.Code, a.Body, a.Header())
		}
		if n := len(r.log.stored()); n != 0 {
			t.Errorf("%s: %d events are stored", c.what, n)
		}
		r.wantCount("denied", 1)
	}
	r := newRig(t)
	line := func(device string) string { return `{"device":"` + device + `","type":"t","text":""}` + "\n" }
	a := r.post(line("a")+line("forbidden")+line("b"), "Content-Type", "application/x-ndjson", "X-Test-Publisher", "erp")
	lines := strings.Split(strings.TrimSpace(a.Body.String()), "\n")
	if a.Code != 200 || len(lines) != 3 || !strings.Contains(lines[0], `"id"`) || !strings.Contains(lines[1], "forbidden") || !strings.Contains(lines[2], `"id"`) {
		t.Errorf("%d %s", a.Code, a.Body)
	}
	if n := len(r.log.stored()); n != 2 {
		t.Errorf("%d events are stored", n)
	}
}
