package config

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// Bytes is a size. Its text is a number and a unit, as in "64MiB".
type Bytes int64

type byteUnit struct {
	name string
	size int64
}

// byteUnits, largest first. "M" alone is missing on purpose: nobody can tell
// whether it means 1000 x 1000 or 1024 x 1024.
var byteUnits = [...]byteUnit{
	{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"B", 1}, {"", 1},
}

var errBytes = errors.New("isn't a size: write a whole number with B, KiB, MiB, GiB (1024) or kB, MB, GB (1000), for example 64MiB")

// ParseBytes reads a size: a whole number, then nothing or a unit.
func ParseBytes(text string) (Bytes, error) {
	digits := strings.TrimRight(text, "BGKMikg")
	for _, u := range byteUnits {
		if text[len(digits):] != u.name {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSuffix(digits, " "), 10, 63)
		if err != nil || int64(n) > math.MaxInt64/u.size {
			return 0, errBytes
		}
		return Bytes(int64(n) * u.size), nil
	}
	return 0, errBytes
}

// String writes a size with the largest unit of 1024s that leaves it whole.
func (b Bytes) String() string {
	for _, u := range byteUnits[:3] {
		if b != 0 && int64(b)%u.size == 0 {
			return strconv.FormatInt(int64(b)/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10) + "B"
}
