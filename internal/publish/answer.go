package publish

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/problem"
)

// A stored entry, as the answer names it.
type stored struct {
	ID     event.ID `json:"id"`
	Shard  int      `json:"shard"`
	Device string   `json:"device"`
}

// A failure of one entry, as the answer names it.
type failure struct {
	Shard  int    `json:"shard"`
	Device string `json:"device"`
	Detail string `json:"detail"`
}

// partial is a problem of a message that touches several entries: what stands,
// and what doesn't.
type partial struct {
	*problem.Document
	IDs    []stored  `json:"ids,omitempty"`
	Errors []failure `json:"errors,omitempty"`
}

// An outcome is what became of one message.
type outcome struct {
	stored   []stored
	failures []failure
	replayed bool // all of it was stored by an earlier request
	fault    *problem.Document
	cause    error // behind a fault that no publisher can mend
}

// outcomeOf reads a message's results; it keeps what was stored in room.
func outcomeOf(room []stored, slots []slot, results []eventlog.Result) outcome {
	o := outcome{stored: room[:0], replayed: true}
	for _, s := range slots {
		r := results[s.append]
		if s.event < len(r.IDs) && !r.IDs[s.event].IsZero() {
			o.stored = append(o.stored, stored{ID: r.IDs[s.event], Shard: s.shard, Device: s.target})
			o.replayed = o.replayed && r.Repeated
			continue
		}
		o.replayed = false
		d := logFault(r.Err)
		if d.Status >= http.StatusInternalServerError {
			o.cause = r.Err
		}
		o.failures = append(o.failures, failure{Shard: s.shard, Device: s.target, Detail: d.Detail})
		// A conflict is the publisher's to mend, so it goes first.
		if o.fault == nil || (d.Code() == problem.Conflict && o.fault.Code() != problem.Conflict) {
			o.fault = d
		}
	}
	return o
}

// logFault is the one place that turns a log's errors into problems. The text
// of an unknown error stays out of the answer; it may tell of our inside.
func logFault(err error) *problem.Document {
	switch {
	case errors.Is(err, eventlog.ErrConflict):
		return problem.New(problem.Conflict, eventlog.ErrConflict.Error())
	case errors.Is(err, eventlog.ErrFull):
		return problem.New(problem.LogFull, "the log has no room for the event")
	case errors.Is(err, eventlog.ErrNotReplicated):
		return problem.New(problem.NotReplicated, "the primary has the event, but too few replicas confirmed it in time; nothing is claimed")
	case errors.Is(err, eventlog.ErrUnavailable):
		return problem.New(problem.LogUnavailable, "it did not confirm the event in time; nothing is claimed")
	case errors.Is(err, eventlog.ErrExhausted):
		return problem.New(problem.LogExhausted, eventlog.ErrExhausted.Error())
	case errors.Is(err, eventlog.ErrClosed):
		return problem.New(problem.ShuttingDown, eventlog.ErrClosed.Error())
	case isMismatch(err):
		return problem.New(problem.LogUnavailable, "the log was made anew with other settings than this gateway's, which goes out of service")
	default:
		return problem.New(problem.Internal, "the log refused the event")
	}
}

func isMismatch(err error) bool {
	_, ok := errors.AsType[*eventlog.MismatchError](err)
	return ok
}

// problem is the document for a message that wasn't stored whole.
func (o outcome) problem(m *message) partial {
	p := partial{Document: o.fault}
	if len(o.stored)+len(o.failures) == 1 {
		return p
	}
	p.IDs, p.Errors = o.stored, o.failures
	d := *o.fault
	d.Detail = fmt.Sprintf("%d of %d entries were not stored: %s", len(o.failures), len(o.stored)+len(o.failures), d.Detail)
	if m.idem == "" && len(o.stored) > 0 {
		d.Advise("Repeat it for the devices or shards in `errors` only: what `ids` lists stands. With an Idempotency-Key the whole request could be repeated safely.")
	}
	p.Document = &d
	return p
}

// appendOutcome adds the JSON answer for a message that was stored whole. line
// says that it is a line of a batch, which tells in its body what a single
// request tells in a header.
func appendOutcome(dst []byte, m *message, o outcome, line bool) []byte {
	if !m.list && len(o.stored) == 1 && !event.ToAll(m.targets[0]) {
		dst = append(dst, '{')
		dst = appendEntry(dst, o.stored[0])
	} else {
		dst = append(dst, `{"ids":[`...)
		for i, s := range o.stored {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, '{')
			dst = appendEntry(dst, s)
			dst = append(dst, `,"device":`...)
			dst = append(appendQuoted(dst, s.Device), '}')
		}
		dst = append(dst, ']')
	}
	if line && o.replayed {
		dst = append(dst, `,"replayed":true`...)
	}
	return append(dst, "}\n"...)
}

// appendQuoted adds a target as a JSON string. It is valid UTF-8 without
// control characters, so only two bytes need an escape.
func appendQuoted(dst []byte, target string) []byte {
	dst = append(dst, '"')
	for i := range len(target) {
		if c := target[i]; c == '"' || c == '\\' {
			dst = append(dst, '\\')
		}
		dst = append(dst, target[i])
	}
	return append(dst, '"')
}

func appendEntry(dst []byte, s stored) []byte {
	dst = append(dst, `"id":"`...)
	dst = s.ID.Append(dst)
	dst = append(dst, `","shard":`...)
	return strconv.AppendInt(dst, int64(s.Shard), 10)
}

// appendProblem adds a batch's line for a message that wasn't stored whole.
func appendProblem(dst []byte, d any) []byte {
	body, err := json.Marshal(struct {
		Error any `json:"error"`
	}{d})
	if err != nil { // only a fault of the program; the line must be there all the same
		body = []byte(`{"error":{"status":500,"title":"The gateway failed"}}`)
	}
	return append(append(dst, body...), '\n')
}
