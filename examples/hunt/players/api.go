package players

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// An api is the hunt's HTTP API, as a page calls it.
type api struct {
	url    string
	client *http.Client
}

// together is how many requests to the game are under way at once, of all
// players of this process; the others wait for their turn, as in a browser.
const together = 512

func newAPI(url string, by dial) *api {
	return &api{url: strings.TrimSuffix(url, "/"), client: &http.Client{
		Timeout:   20 * time.Second,
		Transport: &http.Transport{DialContext: by, MaxConnsPerHost: together, MaxIdleConnsPerHost: together, IdleConnTimeout: time.Minute},
	}}
}

// A challenge is what a player is to solve.
type challenge struct {
	Number int    `json:"challenge"`
	Side   int    `json:"side"`
	Map    string `json:"map"`
}

// joined is the answer to who may play.
type joined struct {
	Player    string    `json:"player"`
	Token     string    `json:"token"`
	Events    string    `json:"events"`
	Challenge challenge `json:"challenge"`
}

// me is how things are for a player.
type me struct {
	Total     int       `json:"total"`
	Solved    int       `json:"solved"`
	Challenge challenge `json:"challenge"`
}

// board is what a leaderboard says of itself.
type board struct {
	Version int64 `json:"version"` // how many answers have counted
}

// A refusal is an answer that isn't what was asked for.
type refusal struct {
	status int
	word   string
	after  time.Duration // when to come back; 0: it says nothing of that
	number int           // of the challenge that it is now, if the word is other-challenge
}

func (r *refusal) Error() string { return fmt.Sprintf("the game answered %d %s", r.status, r.word) }

func (g *api) join(ctx context.Context, name string) (j joined, err error) {
	return j, g.call(ctx, http.MethodPost, "/join", "", map[string]any{"name": name}, &j)
}

func (g *api) solve(ctx context.Context, token string, number int, answer string) error {
	var right struct{}
	return g.call(ctx, http.MethodPost, "/solve", token, map[string]any{"challenge": number, "answer": answer}, &right)
}

func (g *api) me(ctx context.Context, token string) (m me, err error) {
	return m, g.call(ctx, http.MethodGet, "/me", token, nil, &m)
}

func (g *api) leaderboard(ctx context.Context) (b board, err error) {
	return b, g.call(ctx, http.MethodGet, "/leaderboard", "", nil, &b)
}

// most is how much of an answer is read, in bytes.
const most = 1 << 20

func (g *api) call(ctx context.Context, method, path, token string, body, into any) error {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, g.url+path, content)
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := g.client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, most))
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return refused(answer, text)
	}
	return json.Unmarshal(text, into)
}

func refused(answer *http.Response, text []byte) *refusal {
	var says struct {
		Error     string `json:"error"`
		Challenge int    `json:"challenge"`
	}
	_ = json.Unmarshal(text, &says) // whatever it says, it isn't what was asked for
	r := &refusal{status: answer.StatusCode, word: says.Error, number: says.Challenge}
	if seconds, err := strconv.Atoi(answer.Header.Get("Retry-After")); err == nil && seconds >= 0 {
		r.after = time.Duration(seconds) * time.Second
	}
	return r
}
