package fleet

import (
	"math/rand/v2"
	"time"
)

// restless is how long it is until a device's next move. Each draws its own,
// exponentially distributed: so the moves of many have the same rate at every
// moment, however many of them began together (a Poisson process), as those of
// clients have that know nothing of each other. With the same patience for all
// they would come back in waves, and what is measured would be the waves.
func restless(patience time.Duration) time.Duration {
	return time.Duration(rand.ExpFloat64() * float64(patience))
}
