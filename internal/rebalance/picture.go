package rebalance

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A word is what a gateway says of itself.
type word struct {
	streams int
	room    int // for further ones
	away    int // streams that were let go, and whose devices aren't back yet
}

func (w word) String() string { return fmt.Sprintf("%d %d %d", w.streams, w.room, w.away) }

// silence is the word of a gateway that isn't to be counted.
const silence = ""

// mostSaid bounds each number: what is beyond isn't a gateway's.
const mostSaid = 1_000_000_000

// readWord is strict, but for further numbers, which a later version may add.
func readWord(text string) (w word, ok bool) {
	parts := strings.Split(text, " ")
	if len(parts) < 3 {
		return word{}, false
	}
	var numbers [3]int
	for i := range numbers {
		n, err := strconv.ParseUint(parts[i], 10, 31)
		if err != nil || n > mostSaid {
			return word{}, false
		}
		numbers[i] = int(n)
	}
	return word{numbers[0], numbers[1], numbers[2]}, true
}

// readAll reads what is on the board. What isn't a gateway's word is passed over.
func readAll(all map[string]string) map[string]word {
	words := make(map[string]word, len(all))
	for name, text := range all {
		if w, ok := readWord(text); ok {
			words[name] = w
		}
	}
	return words
}

// names are who is there, in order.
func names(words map[string]word) []string { return slices.Sorted(maps.Keys(words)) }

// A picture is a gateway's place among the others.
type picture struct {
	gateways  int
	mean      float64
	mine      int
	room      int     // at the other gateways that are below the mean
	elsewhere int     // room at all other gateways
	above     float64 // all gateways' streams above the mean
}

func draw(words map[string]word, name string) picture {
	p := picture{gateways: len(words), mine: words[name].streams}
	for _, w := range words {
		p.mean += float64(w.streams+w.away) / float64(len(words))
	}
	for other, w := range words {
		over := float64(w.streams) - p.mean
		p.above += max(over, 0)
		if other == name {
			continue
		}
		if p.elsewhere += w.room; over < 0 {
			p.room += w.room
		}
	}
	return p
}

// chance is how many standard deviations of a random choice (the square root of
// the mean) a gateway may be above the mean in any case: one in 30,000 is. Or
// small fleets would move devices about for ever.
const chance = 4

// allowed is how many streams a gateway may hold.
func (p picture) allowed(threshold int) int {
	return int(p.mean + max(p.mean*float64(threshold)/100, chance*math.Sqrt(p.mean)))
}

// floor is what a gateway keeps.
func (p picture) floor() int { return int(math.Ceil(p.mean)) }

// surplus is what this gateway has above the mean.
func (p picture) surplus() int { return max(p.mine-p.floor(), 0) }

// part is this gateway's part of all that is above the mean. So however many
// gateways let go, those that get it see no more than the rate.
func (p picture) part() float64 {
	if p.above <= 0 {
		return 0
	}
	return max(float64(p.mine)-p.mean, 0) / p.above
}
