package access

import (
	"sync"
	"time"
)

const (
	// verdictFor is how long the check of a JWT is believed: a producer shows the
	// same one with each event, and a signature costs as much as everything else.
	// A key that is withdrawn counts so much longer.
	verdictFor = 10 * time.Second
	// maxVerdicts are kept, beyond which all are forgotten.
	maxVerdicts = 1024
)

// A verdict is a token that was accepted.
type verdict struct {
	caller *Caller
	until  time.Time
}

// verdicts are those of the last seconds. The zero value is ready.
type verdicts struct {
	mu   sync.Mutex
	good map[digest]verdict
}

// find is who calls with a token, nil if it has to be checked.
func (v *verdicts) find(sum digest, now time.Time) *Caller {
	v.mu.Lock()
	defer v.mu.Unlock()
	if g, ok := v.good[sum]; ok && now.Before(g.until) {
		return g.caller
	}
	return nil
}

func (v *verdicts) keep(sum digest, g verdict, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.good) >= maxVerdicts {
		for s, old := range v.good {
			if !now.Before(old.until) {
				delete(v.good, s)
			}
		}
	}
	if v.good == nil || len(v.good) >= maxVerdicts {
		v.good = make(map[digest]verdict)
	}
	v.good[sum] = g
}
