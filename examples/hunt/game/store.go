package game

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

//go:embed lua/join.lua
var joinScript string

//go:embed lua/solve.lua
var solveScript string

// What can come of asking Redis.
var (
	errAway   = errors.New("Redis can't be reached")
	errFull   = errors.New("Redis has no memory left")
	errNobody = errors.New("no such player")
)

// callLimit bounds each call to Redis, so that a player has an answer even when
// Redis is frozen.
const callLimit = 3 * time.Second

// A store keeps the hunt in Redis: the process can end at any time. Its keys have
// one hash tag, so that a script may touch several in a Cluster.
type store struct {
	redis       rueidis.Client
	prefix      string
	limit       time.Duration // of a call
	join, solve *rueidis.Lua
}

func newStore(client rueidis.Client, hunt string) *store {
	return &store{
		redis:  client,
		prefix: "{hunt:" + hunt + "}:",
		limit:  callLimit,
		join:   rueidis.NewLuaScript(joinScript),
		solve:  rueidis.NewLuaScript(solveScript),
	}
}

func (s *store) key(name string) string { return s.prefix + name }

func (s *store) playerKey(id string) string { return s.prefix + "player:" + id }

// trouble gives Redis's errors their names.
func trouble(err error) error {
	reply, answered := rueidis.IsRedisErr(err)
	switch {
	case err == nil:
		return nil
	case answered && strings.HasPrefix(reply.Error(), "OOM"):
		return fmt.Errorf("%w: %w", errFull, err)
	case answered && !transient(reply):
		return fmt.Errorf("asking Redis: %w", err)
	}
	return fmt.Errorf("%w: %w", errAway, err)
}

// transient errors are those of a server that starts, or that is a replica now.
func transient(e *rueidis.RedisError) bool {
	for _, kind := range []string{"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MISCONF"} {
		if strings.HasPrefix(e.Error(), kind) {
			return true
		}
	}
	return false
}

func millis(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }

// add adds a player.
func (s *store) add(ctx context.Context, id, name string, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	keys := []string{s.playerKey(id), s.key("seen"), s.key("players")}
	return trouble(s.join.Exec(ctx, s.redis, keys, []string{id, name, millis(now)}).Error())
}

// A verdict is what became of a right answer.
type verdict struct {
	Word  string // right, repeated, other, busy or unknown
	Next  int    // the player's challenge now
	Total int64  // the player's points now; of right and repeated
}

// count counts a right answer; reward is the event up to its total.
func (s *store) count(ctx context.Context, id string, d Drop, now time.Time, outboxMax int, reward, next string) (verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	keys := []string{s.playerKey(id), s.key("board"), s.key("seen"), s.key("outbox"), s.key("solves")}
	args := []string{id, strconv.Itoa(d.Challenge), strconv.Itoa(d.Points), millis(now), strconv.Itoa(outboxMax), reward, next}
	reply, err := s.solve.Exec(ctx, s.redis, keys, args).ToArray()
	if err != nil {
		return verdict{}, trouble(err)
	}
	if len(reply) != 3 {
		return verdict{}, fmt.Errorf("the script that counts answered %d values, not 3", len(reply))
	}
	word, err := reply[0].ToString()
	number, err2 := reply[1].AsInt64()
	total, err3 := reply[2].AsInt64()
	return verdict{word, int(number), total}, errors.Join(err, err2, err3)
}

// A state is all that is known of a player.
type state struct {
	Name   string
	Solved int
	Total  int64
	Rank   int64 // from 1; 0: without points
}

// state reads a player, and notes that it is there; errNobody: there is none.
func (s *store) state(ctx context.Context, id string, now time.Time) (state, error) {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	b := s.redis.B()
	replies := s.redis.DoMulti(ctx,
		b.Hmget().Key(s.playerKey(id)).Field("name", "solved").Build(),
		b.Zscore().Key(s.key("board")).Member(id).Build(),
		b.Zrevrank().Key(s.key("board")).Member(id).Build(),
		// With Redis full this is refused, which harms nobody: the player is
		// counted when it can be again.
		b.Zadd().Key(s.key("seen")).Xx().ScoreMember().ScoreMember(float64(now.UnixMilli()), id).Build(),
	)
	fields, err := replies[0].ToArray()
	if err != nil {
		return state{}, trouble(err)
	}
	if len(fields) != 2 || fields[0].IsNil() {
		return state{}, errNobody
	}
	var st state
	st.Name, _ = fields[0].ToString()
	solved, _ := fields[1].AsInt64()
	st.Solved = int(solved)
	points, err := replies[1].AsFloat64()
	if rueidis.IsRedisNil(err) {
		return st, nil
	}
	rank, err2 := replies[2].AsInt64()
	if err = errors.Join(err, err2); err != nil {
		return state{}, trouble(err)
	}
	st.Total, st.Rank = int64(points), rank+1
	return st, nil
}

// A Row is one line of the board.
type Row struct {
	Player string `json:"player"`
	Name   string `json:"name"`
	Points int64  `json:"points"`
}

// top reads the best players, and how many solves have counted in all.
func (s *store) top(ctx context.Context, rows int) (best []Row, solves int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	b := s.redis.B()
	// First how many: a board may then be newer than it says, never older.
	replies := s.redis.DoMulti(ctx,
		b.Get().Key(s.key("solves")).Build(),
		b.Zrevrange().Key(s.key("board")).Start(0).Stop(int64(rows-1)).Withscores().Build())
	solves, err = replies[0].AsInt64()
	if err != nil && !rueidis.IsRedisNil(err) {
		return nil, 0, trouble(err)
	}
	scores, err := replies[1].AsZScores()
	if err != nil {
		return nil, 0, trouble(err)
	}
	names := make(rueidis.Commands, len(scores))
	for i, z := range scores {
		names[i] = b.Hget().Key(s.playerKey(z.Member)).Field("name").Build()
	}
	best = make([]Row, len(scores))
	for i, reply := range s.redis.DoMulti(ctx, names...) {
		name, err := reply.ToString()
		if err != nil && !rueidis.IsRedisNil(err) {
			return nil, 0, trouble(err)
		}
		best[i] = Row{Player: scores[i].Member, Name: name, Points: int64(scores[i].Score)}
	}
	return best, solves, nil
}

// census counts who was there since a time, forgets the others, and counts all
// who ever joined.
func (s *store) census(ctx context.Context, since time.Time) (playing, joined int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	b := s.redis.B()
	replies := s.redis.DoMulti(ctx,
		b.Zremrangebyscore().Key(s.key("seen")).Min("-inf").Max("("+millis(since)).Build(),
		b.Zcard().Key(s.key("seen")).Build(),
		b.Get().Key(s.key("players")).Build())
	if playing, err = replies[1].AsInt64(); err != nil {
		return 0, 0, trouble(err)
	}
	if joined, err = replies[2].AsInt64(); err != nil && !rueidis.IsRedisNil(err) {
		return 0, 0, trouble(err)
	}
	return playing, joined, nil
}
