package governor

import (
	"testing"
	"time"
)

// A gateway that starts while Redis is at its wall lets little in from its first
// reading on. What doesn't remember may be high for a moment, and what was known
// before and then away for a while is waited for.
func TestBeginningAtTheWall(t *testing.T) {
	memory, lag := memorySignal(900), lagSignal(Publish)
	for name, c := range map[string]struct {
		signal Signal
		values []float64 // one each period; negative: it can't be read, for longer than it is fresh
		want   Verdict
	}{
		"at its wall":                   {memory, []float64{0.95}, AtWall},
		"still":                         {memory, []float64{0.95, 0.95}, AtWall},
		"over its threshold":            {memory, []float64{0.9}, Fair},
		"good":                          {memory, []float64{0.3}, Fair},
		"it forgets":                    {lag, []float64{90_000}, Fair},
		"it was away, and known before": {memory, []float64{0.3, 0.3, 0.3, 0.3, -1, 0.95}, Fair},
	} {
		t.Run(name, func(t *testing.T) {
			signals := []Signal{c.signal}
			l := newLaw(Defaults(signals), signals, []Lever{{Name: Publish, Use: func() (float64, bool) { return 0.5, true }}})
			now := time.Second
			for _, v := range c.values {
				if now += c.signal.Period; v < 0 {
					now += c.signal.Fresh
					continue
				}
				l.signals[0].note(now, Reading{Value: v}, nil)
				l.step(now)
			}
			if got := l.signals[0].verdict; got != c.want {
				t.Errorf("it is %s, want %s", got, c.want)
			}
			if fell := l.levers[0].ratio < 1; fell != (c.want == AtWall) {
				t.Errorf("the lever is at %v", l.levers[0].ratio)
			}
		})
	}
}
