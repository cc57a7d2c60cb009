// Package game owns a treasure hunt: who plays, which challenge is whose, what a
// right answer earns, and what is told to whom. Streams aren't its business: it
// publishes to Downlink, which has them. Its invariant: a solve counts once and as
// a whole (points, reward, next challenge, and the events that tell of them), or
// it is refused and can be repeated.
package game

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"
)

// Options configure New. All are required unless they say otherwise.
type Options struct {
	Redis        string           // redis:// or rediss://
	Name         string           // of the hunt; its keys in Redis begin with {hunt:NAME}
	Seed         uint64           // which challenges and rewards there are
	Side         int              // of a map, in cells, 4 to 64: a challenge is Side×Side bytes
	Top          int              // rows of the board, 1 to 100
	BoardEvery   time.Duration    // least time between two boards
	OutboxMax    int              // events that may wait for Downlink before solves are refused
	ActiveFor    time.Duration    // how long after its last request a player counts as playing
	Patience     time.Duration    // after about so long somebody in the waiting room tries again, 1s or more
	Players      int              // what the governor's ratio is of, where it names no maximum; 0: unknown
	Backends     []string         // base URLs of Downlink's back-end ports, used in turns
	BackendToken string           // of a publisher with scope "*" and broadcast; empty: none is sent
	Events       []string         // base URLs of Downlink's devices' ports; a player is told one
	Secret       []byte           // signs players' tokens (HS256), and is the gateways' jwt_hmac_secret_file
	TokenLife    time.Duration    // how long a token counts
	SecureCookie bool             // the page is served over https
	Governor     func() Allowance // asked when somebody joins; must not block. nil: everybody is let in
	Registerer   prometheus.Registerer
	Logger       *slog.Logger
}

func (o Options) check() error {
	switch {
	case o.Name == "":
		return errors.New("the hunt has no name")
	case o.Side < 4 || o.Side > 64:
		return fmt.Errorf("a map's side is %d: choose 4 to 64 cells", o.Side)
	case o.Top < 1 || o.Top > 100:
		return fmt.Errorf("the board has %d rows: choose 1 to 100", o.Top)
	case o.BoardEvery < 10*time.Millisecond:
		return fmt.Errorf("a board every %v would be a flood: choose 10 ms or more", o.BoardEvery)
	case o.OutboxMax < 2:
		return fmt.Errorf("the outbox holds %d events: each solve needs room for 2", o.OutboxMax)
	case o.ActiveFor <= 0 || o.TokenLife <= 0:
		return errors.New("a player's time must be more than 0")
	case o.Patience < time.Second:
		return fmt.Errorf("whoever waits tries again after %v: choose 1s or more", o.Patience)
	case len(o.Backends) == 0 || len(o.Events) == 0:
		return errors.New("the addresses of Downlink's back end and of its devices' port are needed")
	case slices.ContainsFunc(slices.Concat(o.Backends, o.Events), noAddress):
		return errors.New("an address of Downlink isn't one: write http://host:port") // it isn't repeated: it may hold a password
	case len(o.Secret) < 32:
		return fmt.Errorf("the secret has %d bytes: 32 or more are needed", len(o.Secret))
	}
	return nil
}

// noAddress reports whether a text is no base URL, or no part of the page's policy.
func noAddress(text string) bool {
	u, err := url.Parse(text)
	return err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || strings.ContainsAny(text, " ;,")
}

// A Game is one hunt, served by one process. Safe for concurrent use.
type Game struct {
	opts      Options
	rules     rules
	store     *store
	board     *board
	room      *room
	publisher *publisher
	turns     *turns
	metrics   *metrics
}

// New connects to Redis. Close ends the connection, after Run has ended.
func New(opts Options) (*Game, error) {
	if err := opts.check(); err != nil {
		return nil, err
	}
	option, err := rueidis.ParseURL(opts.Redis)
	if err != nil {
		return nil, errors.New("the URL of Redis can't be read: it is redis://host:port or rediss://host:port") // the error may hold its password
	}
	option.DisableCache = true
	option.ForceSingleClient = true
	client, err := rueidis.NewClient(option)
	if err != nil {
		return nil, fmt.Errorf("connecting to Redis: %w", err)
	}
	m := newMetrics(opts.Registerer)
	s := newStore(client, opts.Name)
	g := &Game{opts: opts, rules: rules{opts.Seed, opts.Side}, store: s, turns: &turns{}, metrics: m}
	g.room = &room{ask: opts.Governor, players: opts.Players, activeFor: opts.ActiveFor, store: s, metrics: m, logger: opts.Logger}
	g.board = &board{store: s, top: opts.Top, every: opts.BoardEvery, playing: g.room.playing, changed: time.Now()} // after a restart somebody may have missed the last one
	g.publisher = &publisher{
		store: s, board: g.board, turns: g.turns, metrics: m, logger: opts.Logger, woken: make(chan struct{}, 1),
		downlink: newDownlink(opts.Backends, opts.BackendToken),
	}
	return g, nil
}

// Run publishes what there is to tell, and counts who plays, until ctx ends. What
// wasn't published then waits in Redis.
func (g *Game) Run(ctx context.Context) {
	var parts sync.WaitGroup
	parts.Go(func() { g.room.run(ctx) })
	parts.Go(func() { g.publisher.run(ctx) })
	parts.Wait()
}

// Close ends the connection to Redis.
func (g *Game) Close() {
	g.publisher.downlink.close()
	g.store.redis.Close()
}

// Playing is how many play, about.
func (g *Game) Playing() int64 { return g.room.playing() }

// Handler is the game's HTTP API and its page.
func (g *Game) Handler() http.Handler { return g.routes() }
