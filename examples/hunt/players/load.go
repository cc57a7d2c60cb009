package players

import (
	"fmt"
	"time"
)

// A Load is what players do. Everything in it that is left to chance is drawn
// from Seed and the number of the player, so two runs with one Load ask the same
// of a hunt, whatever the hunt answers.
type Load struct {
	Seed    uint64        `yaml:"seed"`
	Players int           `yaml:"players"`
	Arrive  time.Duration `yaml:"arrive"` // all come within it, evenly
	Last    time.Duration `yaml:"last"`   // from the first arrival to the end
	Think   time.Duration `yaml:"think"`  // how long a player looks for the cross, on average
	Look    time.Duration `yaml:"look"`   // how often a player without live updates asks how things are
}

// Check says what is wrong with a load; nil if nothing is.
func (l Load) Check() error {
	switch {
	case l.Players < 1:
		return fmt.Errorf("players can't be %d: name how many play", l.Players)
	case l.Arrive < 0 || l.Last <= l.Arrive:
		return fmt.Errorf("arrive (%v) must be shorter than last (%v): everybody comes before the end", l.Arrive, l.Last)
	case l.Think < time.Second:
		return fmt.Errorf("think can't be %v: nobody finds the cross within less than a second", l.Think)
	case l.Look < time.Second:
		return fmt.Errorf("look can't be %v: a page that asks more often than once a second is no page", l.Look)
	}
	return nil
}
