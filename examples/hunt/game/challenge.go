package game

import (
	"hash/fnv"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
)

// A Challenge is a map with one cross on it; the answer names its cell.
type Challenge struct {
	Number int    `json:"challenge"` // of the player, from 1
	Side   int    `json:"side"`
	Map    string `json:"map"` // Side×Side characters, row by row
}

// A Drop is what a right answer earns.
type Drop struct {
	Challenge int    `json:"challenge"`
	Item      string `json:"item"`
	Points    int    `json:"points"`
}

// rules say what there is to find. Everything is drawn from the seed, the player
// and the number, so that nothing of it has to be kept.
type rules struct {
	seed uint64
	side int
}

// draw is the source of one challenge of one player.
func (r rules) draw(player string, number int) *rand.Rand {
	h := fnv.New64a()
	_, _ = io.WriteString(h, player+"\x00"+strconv.Itoa(number))
	return rand.New(rand.NewPCG(r.seed, h.Sum64()))
}

// cross marks the treasure; terrain is what else is on a map.
const (
	cross   = 'X'
	terrain = ".~^T"
)

func (r rules) challenge(player string, number int) Challenge {
	source := r.draw(player, number)
	cells := make([]byte, r.side*r.side)
	land := terrain[0]
	for i := range cells {
		if source.Uint32()%3 == 0 { // else as its neighbour is: it looks more like a map
			land = terrain[source.Uint32()%uint32(len(terrain))]
		}
		cells[i] = land
	}
	cells[source.IntN(len(cells))] = cross
	return Challenge{Number: number, Side: r.side, Map: string(cells)}
}

// treasure is what may be found, and how often among 100.
type treasure struct {
	item   string
	points int
	often  int
}

func treasures() []treasure {
	return []treasure{
		{"driftwood", 5, 40},
		{"brass button", 10, 25},
		{"silver compass", 25, 18},
		{"pearl", 50, 10},
		{"captain's log", 75, 5},
		{"golden idol", 200, 2},
	}
}

func (r rules) drop(player string, number int) Drop {
	// The same source as the map's, but not the same place in it.
	source := r.draw(player, -number)
	rest := source.IntN(100)
	all := treasures()
	for _, t := range all {
		if rest < t.often {
			return Drop{Challenge: number, Item: t.item, Points: t.points}
		}
		rest -= t.often
	}
	return Drop{Challenge: number, Item: all[0].item, Points: all[0].points}
}

// Answer names the cell with the cross as a spreadsheet does: its column in
// letters, its row from 1. Empty: there is no cross.
func Answer(cells string, side int) string {
	at := strings.IndexByte(cells, cross)
	if at < 0 || side < 1 {
		return ""
	}
	column := ""
	for n := at%side + 1; n > 0; n = (n - 1) / 26 {
		column = string(rune('A'+(n-1)%26)) + column
	}
	return column + strconv.Itoa(at/side+1)
}
