package throttle

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	// path is where gateways and "downlink governor" say how things stand.
	path = "/v1/governor"
	// usePath is below it: the same, for who says what he uses.
	usePath = "/use"
	// mostAnswer bounds an answer in memory, in bytes; one has a few thousand.
	mostAnswer = 1 << 20
)

// An answer is what is needed of theirs.
type answer struct {
	Levers []lever `json:"levers"`
}

type lever struct {
	Name    string   `json:"name"`
	Ratio   *float64 `json:"ratio"`
	Maximum float64  `json:"maximum"`
	Unit    string   `json:"unit"`
	Signal  string   `json:"signal"`
	Why     string   `json:"why"`
	Verdict string   `json:"verdict"`
}

// A word is what is said of the use here.
type word struct {
	Caller string  `json:"caller"`
	Use    float64 `json:"use"`
	For    float64 `json:"for_seconds"`
}

// unknown is the verdict on a signal that the governor can't read.
const unknown = "unknown"

// ownClient keeps one connection, and follows nobody elsewhere with the token.
func ownClient() *http.Client {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, MaxIdleConns: 1}
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// fetch asks the governor. Its error completes the sentence "… doesn't answer: …",
// and holds nothing of the URL.
func (c *Client) fetch(ctx context.Context) (State, error) {
	req, err := c.question(ctx)
	if err != nil {
		return State{}, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return State{}, silence(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return State{}, fmt.Errorf("it answers %d %s; is the URL that of a governor, and the token right?", resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, mostAnswer))
	if err != nil {
		return State{}, silence(err)
	}
	return read(body, c.opts.Lever)
}

// read finds in an answer what it says of a lever.
func read(body []byte, lever string) (State, error) {
	var a answer
	if json.Unmarshal(body, &a) != nil {
		return State{}, errors.New("its answer isn't what a governor says; is the URL that of one?")
	}
	return find(a.Levers, lever)
}

// question is a GET; or a POST, where there is something to say.
func (c *Client) question(ctx context.Context) (*http.Request, error) {
	method, at, body := http.MethodGet, c.opts.URL, io.Reader(http.NoBody)
	if c.opts.Use != nil {
		// It counts until three more are missing.
		word, err := json.Marshal(word{c.name, c.opts.Use(), min(max(3*c.opts.Refresh, time.Second), time.Hour).Seconds()})
		if err != nil {
			return nil, errors.New("Options.Use says a number that JSON doesn't have")
		}
		method, at, body = http.MethodPost, at+usePath, bytes.NewReader(word)
	}
	req, err := http.NewRequestWithContext(ctx, method, at, body)
	if err != nil {
		return nil, errURL
	}
	if c.opts.Use != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.opts.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.opts.Token)
	}
	return req, nil
}

// find is the lever that is meant, if what is said of it can be.
func find(levers []lever, name string) (State, error) {
	for _, l := range levers {
		if l.Name != name {
			continue
		}
		if l.Ratio == nil || *l.Ratio <= 0 || *l.Ratio > 1 || l.Maximum < 0 {
			return State{}, fmt.Errorf("it says a ratio or a maximum of %.64q that can't be", name)
		}
		return State{
			Ratio: *l.Ratio, Maximum: l.Maximum, Unit: clip(l.Unit), Signal: clip(l.Signal), Why: clip(l.Why),
			Unsure: l.Verdict == unknown,
		}, nil
	}
	if len(levers) == 0 {
		return State{}, errors.New("it has no levers; is the URL that of a governor?")
	}
	return State{}, fmt.Errorf("it has no lever %.64q, but %s", name, names(levers))
}

// clip shortens a text to what any log bears: a governor's are far shorter.
func clip(text string) string {
	const most = 1000
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// names are those of some levers, in a form and length that any log bears.
func names(levers []lever) string {
	const most, long = 4, 32
	quoted := make([]string, 0, most+1)
	for _, l := range levers {
		if len(quoted) == most {
			quoted = append(quoted, "…")
			break
		}
		quoted = append(quoted, strconv.Quote(l.Name[:min(len(l.Name), long)]))
	}
	return strings.Join(quoted, ", ")
}

// silence says in a few words why there is no answer, without the URL, in which a
// password may stand.
func silence(err error) error {
	if errors.Is(err, context.Canceled) {
		return context.Canceled
	}
	if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() {
		return errors.New("no answer in time")
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	if sys, ok := errors.AsType[*os.SyscallError](err); ok {
		err = sys.Err
	}
	return fmt.Errorf("no answer: %w", err)
}
