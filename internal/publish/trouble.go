package publish

import (
	"log/slog"
	"sync"
	"time"

	"downlink/internal/problem"
)

// troubleEvery is how often one kind of trouble is logged at most: publishers
// repeat what failed, many times a second.
const troubleEvery = time.Minute

// troubles logs why the log didn't store events, each kind once in a while. The
// publisher is told the kind; the cause may tell of our inside and is for
// whoever runs the gateway. Its zero value is ready; safe for concurrent use.
type troubles struct {
	mu    sync.Mutex
	kinds map[problem.Code]trouble
}

type trouble struct {
	logged time.Time
	hidden int // since then
}

func (t *troubles) log(logger *slog.Logger, code problem.Code, cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.kinds == nil {
		t.kinds = make(map[problem.Code]trouble)
	}
	k := t.kinds[code]
	if !k.logged.IsZero() && time.Since(k.logged) < troubleEvery {
		k.hidden++
		t.kinds[code] = k
		return
	}
	t.kinds[code] = trouble{logged: time.Now()}
	logger.Warn("events were not stored", "kind", code, "error", cause, "hidden", k.hidden)
}
