package producer

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"strings"
)

// A backend publishes to a gateway's POST /v1/events.
type backend struct {
	*caller
	lines  bool // NDJSON, one answer for each
	header []byte
	body   []byte
}

// NewBackend publishes to a gateway's back end; with batches as NDJSON. Fields
// are further lines of the request's header.
func NewBackend(base string, batches bool, fields ...string) (Sender, error) {
	u, err := parseHTTP(base)
	if err != nil {
		return nil, err
	}
	b := &backend{caller: newCaller(u), lines: batches}
	media := "application/json"
	if batches {
		media = "application/x-ndjson"
	}
	b.header = b.begin(nil, strings.TrimRight(u.EscapedPath(), "/")+"/v1/events", media, append(authorization(u), fields...))
	return b, nil
}

func parseHTTP(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("it isn't an address; write it as http://127.0.0.1:9090")
	}
	return u, nil
}

// Publish implements Sender.
func (b *backend) Publish(ctx context.Context, events []Event, outcomes []Outcome) error {
	b.body = b.body[:0]
	for _, e := range events {
		b.body = append(b.body, `{"device":`...)
		b.body = appendString(b.body, e.Device)
		b.body = append(b.body, `,"type":"load","payload":`...)
		b.body = append(append(b.body, e.Payload...), "}\n"...)
	}
	status, answer, sent, err := b.post(ctx, b.header, b.body)
	switch {
	case err != nil && sent:
		setAll(outcomes, Unknown)
		return err
	case err != nil:
		setAll(outcomes, Refused)
		return err
	case status >= 500:
		// 503 claims nothing, and denies nothing either: the log may have taken it.
		setAll(outcomes, Unknown)
		return refusal(status, answer)
	case status < 200 || status > 299:
		setAll(outcomes, Refused)
		return refusal(status, answer)
	case b.lines:
		return readLines(answer, outcomes)
	}
	setAll(outcomes, Accepted)
	return nil
}

// readLines takes one answer a line.
func readLines(answer []byte, outcomes []Outcome) error {
	setAll(outcomes, Unknown)
	var first error
	n := 0
	for line := range bytes.Lines(answer) {
		if n == len(outcomes) {
			break
		}
		outcomes[n] = Accepted
		if bytes.HasPrefix(line, []byte(`{"error"`)) {
			outcomes[n] = Refused
			if bytes.Contains(line, []byte(`"status":5`)) {
				outcomes[n] = Unknown
			}
			if first == nil {
				first = refusal(200, line)
			}
		}
		n++
	}
	if n < len(outcomes) && first == nil {
		first = fmt.Errorf("%d of %d lines were answered", n, len(outcomes))
	}
	return first
}

// refusal shows the beginning of an answer; there is no secret of ours in it.
func refusal(status int, answer []byte) error {
	return fmt.Errorf("publishing was answered with %d: %s", status, bytes.TrimSpace(answer[:min(len(answer), 300)]))
}
