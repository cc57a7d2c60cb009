package game

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// A message is one line of a batch.
type message struct {
	Device  string          `json:"device"`
	Type    string          `json:"type"`
	Payload json.RawMessage `json:"payload"`
	Key     string          `json:"key,omitempty"`
	Idem    string          `json:"idem,omitempty"`
}

// A reply is what Downlink says of one line.
type reply struct {
	Error *struct {
		Detail     string `json:"detail"`
		Status     int    `json:"status"`
		RetryAfter int    `json:"retry_after"` // seconds
	} `json:"error"`
}

// stored reports whether the event is in the log.
func (r reply) stored() bool { return r.Error == nil }

// A held is why nothing more should be sent for a while.
type held struct {
	why    string // heldByRate or heldAway
	wait   time.Duration
	detail string
}

// Values of the metrics' labels.
const (
	heldByRate = "rate"
	heldAway   = "away"
	whatBoard  = "board"
	whatPlayer = "player"
)

// again says when to send what wasn't stored; ok is false if that is of no use.
func (r reply) again() (h held, ok bool) {
	switch {
	case r.Error.Status == http.StatusTooManyRequests:
		return held{heldByRate, seconds(r.Error.RetryAfter), r.Error.Detail}, true
	case r.Error.Status >= 500, r.Error.Status == http.StatusRequestTimeout,
		r.Error.Status == http.StatusUnauthorized, r.Error.Status == http.StatusForbidden: // somebody will mend the token
		return held{heldAway, seconds(r.Error.RetryAfter), r.Error.Detail}, true
	}
	return held{}, false
}

func seconds(n int) time.Duration { return time.Duration(max(n, 1)) * time.Second }

// A downlink publishes through one gateway after the other. Not safe for
// concurrent use: one batch at a time keeps a player's events in order.
type downlink struct {
	urls   []string
	token  string
	next   int
	client *http.Client
}

// sendLimit bounds a batch. Downlink itself replies within publish_timeout (5 s).
const sendLimit = 15 * time.Second

func newDownlink(backends []string, token string) *downlink {
	d := &downlink{token: token, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2}, Timeout: sendLimit}}
	for _, b := range backends {
		d.urls = append(d.urls, strings.TrimRight(b, "/")+"/v1/events")
	}
	return d
}

func (d *downlink) close() { d.client.CloseIdleConnections() }

// send publishes a batch. There may be fewer replies than messages: then the
// connection broke, and err says why.
func (d *downlink) send(ctx context.Context, batch []message) (replies []reply, err error) {
	var body bytes.Buffer
	lines := json.NewEncoder(&body)
	lines.SetEscapeHTML(false)
	for _, m := range batch {
		if err := lines.Encode(m); err != nil {
			return nil, err
		}
	}
	if len(batch) == 0 {
		return nil, nil
	}
	for range d.urls {
		url := d.urls[d.next]
		d.next = (d.next + 1) % len(d.urls)
		if replies, err = d.post(ctx, url, body.Bytes()); err == nil || len(replies) > 0 || ctx.Err() != nil {
			return replies, err
		}
	}
	return nil, err
}

func (d *downlink) post(ctx context.Context, url string, body []byte) ([]reply, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	if d.token != "" {
		req.Header.Set("Authorization", "Bearer "+d.token)
	}
	resp, err := d.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return nil, fmt.Errorf("the back end's port answered %s: %s", resp.Status, said)
	}
	var replies []reply
	for lines := json.NewDecoder(resp.Body); ; {
		var a reply
		switch err := lines.Decode(&a); {
		case errors.Is(err, io.EOF):
			return replies, nil
		case err != nil:
			return replies, err
		}
		replies = append(replies, a)
	}
}
