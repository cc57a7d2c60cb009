package access

import (
	"log/slog"
	"sync"
	"time"

	"downlink/internal/problem"
)

const (
	// sayEvery is how often the log says the same at most: who is refused repeats
	// it, many times a second.
	sayEvery = time.Minute
	// mostTold are told apart in the log; beyond them publishers share a line.
	mostTold = 256
)

// denials counts who is not let through, and tells whoever runs the gateway:
// each publisher and reason once in a while, because the answer is seen by the
// producer alone. Safe for concurrent use.
type denials struct {
	metrics *Metrics
	log     *slog.Logger

	mu   sync.Mutex
	told map[told]line
}

// told is what a line is about.
type told struct {
	why       denial
	publisher string // empty: nobody knows
	what      string // the scope that is missing, or the failure of a JWT
}

// A line is when it was last said, and what was kept back since.
type line struct {
	said   time.Time
	hidden int
}

// deny notes a denial; its detail is what the caller is told.
func (d *denials) deny(of told, from string, doc *problem.Document) *problem.Document {
	d.metrics.denied(of.why)
	hidden, say := d.due(of, time.Now())
	if !say {
		return doc
	}
	about := []any{"reason", of.why, "detail", doc.Detail, "hidden", hidden}
	if of.publisher != "" {
		about = append(about, "publisher", of.publisher)
	}
	if from != "" {
		about = append(about, "from", from)
	}
	d.log.Warn("a call of the back end's port was not let through", about...)
	return doc
}

// due reports whether to say it now, and how often it was kept back.
func (d *denials) due(of told, now time.Time) (hidden int, say bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.told[of]; !known && len(d.told) >= mostTold {
		for t, l := range d.told {
			if now.Sub(l.said) >= sayEvery {
				delete(d.told, t)
			}
		}
		if len(d.told) >= mostTold {
			of = told{why: of.why}
		}
	}
	if d.told == nil {
		d.told = make(map[told]line)
	}
	l, known := d.told[of]
	if known && now.Sub(l.said) < sayEvery {
		l.hidden++
		d.told[of] = l
		return 0, false
	}
	d.told[of] = line{said: now}
	return l.hidden, true
}
