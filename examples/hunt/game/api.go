package game

import (
	"encoding/json"
	"errors"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// routes is the whole of the API.
func (g *Game) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /join", g.join)
	mux.HandleFunc("POST /solve", g.solve)
	mux.HandleFunc("GET /me", g.me)
	mux.HandleFunc("GET /leaderboard", g.leaderboard)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.Handle("GET /", g.page())
	return mux
}

// A refusal is what a player is told when the answer is no.
type refusal struct {
	Status     int    `json:"-"`
	Word       string `json:"error"`
	Why        string `json:"why"`
	RetryAfter int    `json:"retry_after,omitempty"` // seconds
	Challenge  int    `json:"challenge,omitempty"`
}

func (no refusal) answer(w http.ResponseWriter) {
	if no.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(no.RetryAfter))
	}
	answer(w, no.Status, no)
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // who has gone away needs no answer
}

// soon is after how many seconds to repeat what was refused for a moment.
func soon() int { return 1 + rand.IntN(3) } //nolint:gosec // no secret

// later is after how many seconds to come back to the waiting room, spread so that
// a crowd doesn't come as one.
func (g *Game) later() int {
	n := int(g.opts.Patience.Seconds())
	return n - n/2 + rand.IntN(n/2*2+1) //nolint:gosec // no secret
}

// unavailable is what comes of an error of Redis.
func (g *Game) unavailable(w http.ResponseWriter, err error) {
	no := refusal{Status: http.StatusServiceUnavailable, Word: "unavailable", Why: "the game's memory can't be reached; nothing was counted", RetryAfter: soon()}
	switch {
	case errors.Is(err, errFull):
		no.Why, no.RetryAfter = "the game's memory is full; nothing was counted", g.later()
	case !errors.Is(err, errAway):
		g.opts.Logger.Error("a request failed", "error", err)
	}
	no.answer(w)
}

// maxBody is more than any request needs.
const maxBody = 4 << 10

// read reads a request's JSON. Another media type is refused, because a page of
// another site could send it with the player's cookie and no questions asked.
func read(w http.ResponseWriter, r *http.Request, into any) bool {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if kind != "application/json" {
		refusal{Status: http.StatusUnsupportedMediaType, Word: "bad-request", Why: "send Content-Type: application/json"}.answer(w)
		return false
	}
	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	body.DisallowUnknownFields()
	if err := body.Decode(into); err != nil {
		refusal{Status: http.StatusBadRequest, Word: "bad-request", Why: "the body isn't the JSON that is wanted: " + err.Error()}.answer(w)
		return false
	}
	return true
}

// A Ticket is what a player gets who joins.
type Ticket struct {
	Player    string    `json:"player"`
	Token     string    `json:"token"`  // Authorization: Bearer, here and at Events
	Events    string    `json:"events"` // the player's stream
	Total     int64     `json:"total"`
	Challenge Challenge `json:"challenge"`
}

func (g *Game) join(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Name string `json:"name"`
	}
	if !read(w, r, &asked) {
		return
	}
	name := strings.TrimSpace(asked.Name)
	if n := utf8.RuneCountInString(name); n < 1 || n > 32 || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		refusal{Status: http.StatusBadRequest, Word: "bad-request", Why: "a name has 1 to 32 characters"}.answer(w)
		return
	}
	if id, err := g.player(r); err == nil && g.rejoin(w, r, id) {
		return
	}
	if signal, ok := g.room.admit(); !ok {
		g.metrics.joins.WithLabelValues("waiting").Inc()
		refusal{Status: http.StatusServiceUnavailable, Word: "waiting-room", Why: "all places are taken at the moment (" + signal + ")", RetryAfter: g.later()}.answer(w)
		return
	}
	id := newPlayer()
	if err := g.store.add(r.Context(), id, name, time.Now()); err != nil {
		g.metrics.joins.WithLabelValues("unavailable").Inc()
		g.unavailable(w, err)
		return
	}
	g.room.entered()
	g.metrics.joins.WithLabelValues("admitted").Inc()
	g.welcome(w, id, state{})
}

// rejoin lets somebody in who plays already; false: the token's player is unknown.
func (g *Game) rejoin(w http.ResponseWriter, r *http.Request, id string) bool {
	st, err := g.store.state(r.Context(), id, time.Now())
	switch {
	case errors.Is(err, errNobody):
		return false
	case err != nil:
		g.metrics.joins.WithLabelValues("unavailable").Inc()
		g.unavailable(w, err)
	default:
		g.metrics.joins.WithLabelValues("again").Inc()
		g.welcome(w, id, st)
	}
	return true
}

func (g *Game) welcome(w http.ResponseWriter, id string, st state) {
	token, err := g.token(id, time.Now())
	if err != nil {
		g.unavailable(w, err)
		return
	}
	g.setCookie(w, token)
	answer(w, http.StatusOK, Ticket{
		Player: id, Token: token, Events: g.events(id), Total: st.Total,
		Challenge: g.rules.challenge(id, st.Solved+1),
	})
}

// events is the address of a player's stream. Any gateway serves any player; this
// spreads them where no load balancer does.
func (g *Game) events(player string) string {
	of := g.opts.Events
	return strings.TrimRight(of[crc32.ChecksumIEEE([]byte(player))%uint32(len(of))], "/") + "/events"
}

// identify answers who can't be identified.
func (g *Game) identify(w http.ResponseWriter, r *http.Request) (id string, ok bool) {
	id, err := g.player(r)
	if err != nil {
		refusal{Status: http.StatusUnauthorized, Word: "unknown-player", Why: err.Error()}.answer(w)
	}
	return id, err == nil
}

func (g *Game) solve(w http.ResponseWriter, r *http.Request) {
	id, ok := g.identify(w, r)
	if !ok {
		return
	}
	var asked struct {
		Challenge int    `json:"challenge"`
		Answer    string `json:"answer"`
	}
	if !read(w, r, &asked) {
		return
	}
	if asked.Challenge < 1 {
		refusal{Status: http.StatusBadRequest, Word: "bad-request", Why: "challenge is a number from 1"}.answer(w)
		return
	}
	c := g.rules.challenge(id, asked.Challenge)
	if !strings.EqualFold(strings.TrimSpace(asked.Answer), Answer(c.Map, c.Side)) {
		g.metrics.solves.WithLabelValues("wrong").Inc()
		answer(w, http.StatusOK, Solved{Challenge: asked.Challenge})
		return
	}
	now := time.Now()
	d := g.rules.drop(id, asked.Challenge)
	reward, next, err := g.news(id, d, now)
	if err != nil {
		g.unavailable(w, err)
		return
	}
	v, err := g.store.count(r.Context(), id, d, now, g.opts.OutboxMax, reward, next)
	if err != nil {
		g.metrics.solves.WithLabelValues("unavailable").Inc()
		g.unavailable(w, err)
		return
	}
	g.judge(w, d, v, now)
}

// Solved is what became of an answer.
type Solved struct {
	Right     bool  `json:"right"`
	Repeated  bool  `json:"repeated,omitempty"` // it has counted before
	Challenge int   `json:"challenge"`
	Points    int   `json:"points"`
	Total     int64 `json:"total,omitempty"`
}

func (g *Game) judge(w http.ResponseWriter, d Drop, v verdict, now time.Time) {
	if v.Word == "unknown" {
		refusal{Status: http.StatusUnauthorized, Word: "unknown-player", Why: "this hunt doesn't know you: join again"}.answer(w)
		return
	}
	g.metrics.solves.WithLabelValues(v.Word).Inc()
	switch v.Word {
	case "other":
		refusal{Status: http.StatusConflict, Word: "other-challenge", Why: "that isn't your challenge at the moment", Challenge: v.Next}.answer(w)
	case "busy":
		refusal{Status: http.StatusServiceUnavailable, Word: "busy", Why: "too much is going on; nothing was counted, so send it again", RetryAfter: int(g.turns.next(now).Seconds())}.answer(w)
	default:
		if v.Word == "right" {
			g.board.touch(now)
			g.publisher.wake()
		}
		answer(w, http.StatusOK, Solved{Right: true, Repeated: v.Word == "repeated", Challenge: d.Challenge, Points: d.Points, Total: v.Total})
	}
}

// news are the two events of a solve. The reward's ends with its total, which only
// the script that counts knows: it adds the number and a brace.
func (g *Game) news(player string, d Drop, now time.Time) (reward, next string, err error) {
	at := now.UnixMilli()
	first, err := json.Marshal(struct {
		Drop
		At int64 `json:"at"`
	}{d, at})
	second, err2 := json.Marshal(struct {
		Challenge
		At int64 `json:"at"`
	}{g.rules.challenge(player, d.Challenge+1), at})
	return strings.TrimSuffix(string(first), "}") + `,"total":`, string(second), errors.Join(err, err2)
}

// Me is all that a player's program needs to go on: what it fetches on a resync.
type Me struct {
	Player    string    `json:"player"`
	Name      string    `json:"name"`
	Events    string    `json:"events"`
	Total     int64     `json:"total"`
	Rank      int64     `json:"rank"` // 0: no points yet
	Solved    int       `json:"solved"`
	Challenge Challenge `json:"challenge"`
	Drops     []Drop    `json:"drops"` // the newest first
}

// shownDrops is how many rewards Me lists.
const shownDrops = 10

func (g *Game) me(w http.ResponseWriter, r *http.Request) {
	id, ok := g.identify(w, r)
	if !ok {
		return
	}
	st, err := g.store.state(r.Context(), id, time.Now())
	if errors.Is(err, errNobody) {
		refusal{Status: http.StatusUnauthorized, Word: "unknown-player", Why: "this hunt doesn't know you: join again"}.answer(w)
		return
	}
	if err != nil {
		g.unavailable(w, err)
		return
	}
	drops := []Drop{}
	for n := st.Solved; n > max(st.Solved-shownDrops, 0); n-- {
		drops = append(drops, g.rules.drop(id, n))
	}
	answer(w, http.StatusOK, Me{
		Player: id, Name: st.Name, Events: g.events(id), Total: st.Total, Rank: st.Rank, Solved: st.Solved,
		Challenge: g.rules.challenge(id, st.Solved+1), Drops: drops,
	})
}

func (g *Game) leaderboard(w http.ResponseWriter, r *http.Request) {
	b, err := g.board.latest(r.Context())
	if err != nil {
		g.unavailable(w, err)
		return
	}
	answer(w, http.StatusOK, b)
}
