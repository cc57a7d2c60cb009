package game

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

// A letter is an event for one player that Downlink hasn't got yet, as far as the
// game knows. It stands in a stream of Redis, where the solve that it tells of
// put it in one step with everything else; so it can't be lost between the two.
type letter struct {
	id      string // in the stream
	player  string
	kind    string // the event's type
	payload string
	at      time.Time // when the solve was accepted
}

// letters reads the oldest, and says how many there are.
func (s *store) letters(ctx context.Context, most int64) (found []letter, all int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	b := s.redis.B()
	replies := s.redis.DoMulti(ctx,
		b.Xrange().Key(s.key("outbox")).Start("-").End("+").Count(most).Build(),
		b.Xlen().Key(s.key("outbox")).Build())
	entries, err := replies[0].AsXRange()
	if err != nil {
		return nil, 0, trouble(err)
	}
	if all, err = replies[1].AsInt64(); err != nil {
		return nil, 0, trouble(err)
	}
	found = make([]letter, len(entries))
	for i, e := range entries {
		found[i] = readLetter(e)
	}
	return found, all, nil
}

func readLetter(e rueidis.XRangeEntry) letter {
	f := e.FieldValues
	return letter{id: e.ID, player: f["player"], kind: f["type"], payload: f["payload"], at: fromMillis(f["at"])}
}

// strike takes out what Downlink has. Should another process have sent the same,
// the idempotency keys see to it that it was stored once.
func (s *store) strike(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	return trouble(s.redis.Do(ctx, s.redis.B().Xdel().Key(s.key("outbox")).Id(ids...).Build()).Error())
}

// fromMillis is a time that millis wrote; what can't be read is now.
func fromMillis(text string) time.Time {
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Now()
	}
	return time.UnixMilli(ms)
}
