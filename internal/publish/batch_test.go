package publish_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/problem"
)

// A reply is one line of a batch's answer.
type reply struct {
	ID       event.ID
	Shard    int
	IDs      []struct{ Device string }
	Replayed bool
	Error    *struct {
		Type, Detail, Hint, Field string
		Status                    int
		IDs, Errors               []struct{ Shard int }
	}
}

func (r reply) is(code problem.Code) bool {
	return r.Error != nil && r.Error.Type == problem.New(code, "").Type
}

func replies(t *testing.T, body io.Reader) []reply {
	t.Helper()
	var out []reply
	s := bufio.NewScanner(body)
	for s.Scan() {
		var r reply
		if err := json.Unmarshal(s.Bytes(), &r); err != nil {
			t.Fatalf("%v in %q", err, s.Text())
		}
		out = append(out, r)
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

func (r *rig) batch(body string, header ...string) []reply {
	r.t.Helper()
	a := r.post(body, append(header, "Content-Type", "application/x-ndjson")...)
	if a.Code != 200 || a.Header().Get("Content-Type") != "application/x-ndjson" {
		r.t.Fatalf("%d %v %s", a.Code, a.Header(), a.Body)
	}
	return replies(r.t, a.Body)
}

func TestBatchAnswersALineForALineInOrder(t *testing.T) {
	r := newRig(t)
	got := r.batch(`{"device":"demo","type":"t","text":"1"}
nonsense
{"device":"demo","type":"t","text":"2"}` + "\r\n\n \t\r\n" + `{"devices":["demo","A83F21"],"type":"t","text":"3"}
{"device":"demo","type":"resync","text":""}
{"device":"*","type":"t","text":"4"}
{"device":"demo","type":"t","text":"` + strings.Repeat("x", 1001) + `"}
{"device":"demo","type":"t","text":"5"}` + "\n")
	if len(got) != 8 {
		t.Fatalf("%d answers: %+v", len(got), got)
	}
	for i, bad := range map[int]problem.Code{1: problem.InvalidJSON, 4: problem.InvalidEvent, 6: problem.EventTooLarge} {
		if !got[i].is(bad) {
			t.Errorf("line %d: %+v, want %s", i, got[i].Error, bad)
		}
	}
	for _, i := range []int{0, 2, 7} {
		if got[i].ID.IsZero() || got[i].Error != nil || got[i].Shard != event.Shard("demo", shards) {
			t.Errorf("line %d: %+v", i, got[i])
		}
	}
	if len(got[3].IDs) != 2 || got[3].IDs[1].Device != "A83F21" || len(got[5].IDs) != shards {
		t.Errorf("several: %+v %+v", got[3], got[5])
	}
	var texts string
	for _, e := range r.log.stored() {
		if e.Target == "demo" {
			texts += e.Payload
		}
	}
	if texts != "1235" || r.log.calls != 1 {
		t.Errorf("stored %q for demo, in %d calls", texts, r.log.calls)
	}
	if got[0].ID.Compare(got[2].ID) >= 0 || got[2].ID.Compare(got[7].ID) >= 0 {
		t.Errorf("IDs don't rise: %v %v %v", got[0].ID, got[2].ID, got[7].ID)
	}
	r.wantCount("stored", 5)
	r.wantCount("invalid", 2)
	r.wantCount("too_large", 1)
}

func TestOrderIsKeptWhenSomeLinesHaveAKey(t *testing.T) {
	r := newRig(t)
	var body strings.Builder
	for i := range 300 {
		idem := ""
		if i%3 == 1 {
			idem = fmt.Sprintf(`,"idem":"k%d"`, i)
		}
		fmt.Fprintf(&body, `{"device":"d%d","type":"t","text":"%d"%s}`+"\n", i%7, i, idem)
	}
	got := r.batch(body.String())
	last := map[string]event.ID{}
	for i, a := range got {
		device := fmt.Sprintf("d%d", i%7)
		if a.Error != nil || !last[device].Less(a.ID) {
			t.Fatalf("line %d: %+v after %v", i, a, last[device])
		}
		last[device] = a.ID
	}
	if len(got) != 300 {
		t.Errorf("%d answers", len(got))
	}
}

func TestBatchIsRepeatedWithItsKey(t *testing.T) {
	r := newRig(t)
	body := `{"device":"demo","type":"t","text":"1"}` + "\n" + `{"device":"demo","type":"t","text":"2","idem":"own"}` + "\n" + `bad` + "\n" + `{"device":"*","type":"t","text":"3"}` + "\n"
	first := r.batch(body, "Idempotency-Key", "b")
	second := r.batch(body, "Idempotency-Key", "b")
	for i := range first {
		if first[i].Replayed || second[i].Replayed != (i != 2) || first[i].ID != second[i].ID {
			t.Errorf("line %d: %+v, %+v", i, first[i], second[i])
		}
	}
	idems := ""
	for _, e := range r.log.stored() {
		idems += e.Idem + " "
	}
	if idems != "b#1 own b#4 b#4 b#4 b#4 " {
		t.Errorf("stored under %q", idems)
	}
	if got := r.batch(body, "Idempotency-Key", strings.Repeat("k", 255)); !got[0].is(problem.InvalidIdempotency) || got[1].Error != nil {
		t.Errorf("a key that gets too long: %+v", got)
	}
	wantProblem(t, "empty key", r.post(body, "Content-Type", "application/x-ndjson", "Idempotency-Key", ""), problem.InvalidIdempotency, "", "")
}

func TestALineOverTheLimitIsSkipped(t *testing.T) {
	r := newRig(t)
	big := `{"device":"demo","type":"t","text":"` + strings.Repeat("x", 1<<20+7000) + `"}`
	good := `{"device":"demo","type":"t","text":"1"}`
	for _, body := range []string{good + "\n" + big + "\n" + good + "\n", good + "\n" + big + "\n" + good} {
		got := r.batch(body)
		if len(got) != 3 || got[0].Error != nil || !got[1].is(problem.BodyTooLarge) || got[2].Error != nil {
			t.Errorf("%+v", got)
		}
	}
	if got := r.batch(big); len(got) != 1 || !got[0].is(problem.BodyTooLarge) {
		t.Errorf("alone: %+v", got)
	}
	if got := r.batch(""); len(got) != 0 {
		t.Errorf("an empty batch: %+v", got)
	}
}

// After the log has failed nothing more is stored: else a retry would put the
// failed events behind later ones of the same device.
func TestNothingIsStoredAfterTheLogHasFailed(t *testing.T) {
	r := newRig(t)
	bad := event.Shard("demo", shards)
	r.log.fail = map[int]error{bad: eventlog.ErrUnavailable}
	var body strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&body, `{"device":"demo","type":"t","text":"%d"}`+"\n", i)
	}
	body.WriteString(`{"device":"A83F21","type":"t","text":""}` + "\n" + `{` + "\n")
	got := r.batch(body.String())
	if len(got) != 2002 || r.log.calls != 1 || len(r.log.stored()) != 0 {
		t.Fatalf("%d answers, %d calls, %d stored", len(got), r.log.calls, len(r.log.stored()))
	}
	for i, a := range got[:2001] {
		if !a.is(problem.LogUnavailable) {
			t.Fatalf("line %d: %+v", i, a)
		}
	}
	if !got[2001].is(problem.InvalidJSON) || !strings.Contains(got[2000].Error.Detail, "earlier line") {
		t.Errorf("%+v %+v", got[2000].Error, got[2001].Error)
	}
	r.wantCount("unavailable", 2001)
}

func TestPartialFailureOfALine(t *testing.T) {
	r := newRig(t)
	r.log.fail = map[int]error{1: eventlog.ErrFull}
	got := r.batch(`{"device":"*","type":"t","text":""}`)
	if len(got) != 1 || !got[0].is(problem.LogFull) || len(got[0].Error.IDs) != 3 || len(got[0].Error.Errors) != 1 || got[0].Error.Errors[0].Shard != 1 {
		t.Errorf("%+v", got[0].Error)
	}
}
