// Package usage owns what the programs that ask a governor say they use of what it
// allows: each says it again and again, and is forgotten when it ceases to. It
// moves nothing. Its invariant: what is summed up was said by programs that are
// there, and where nobody says anything the sum isn't known, and no zero.
package usage

import (
	"fmt"
	"sync"
	"time"
)

const (
	// maxCallers is how many programs are counted at a time.
	maxCallers = 4096
	// maxNameBytes of a caller's name.
	maxNameBytes = 128
	// highest is the most that one can use, as it is the most that a governor can be
	// told to allow.
	highest = 1e9
	// The bounds of how long a word may count.
	shortest = time.Second
	longest  = time.Hour
)

// A Word is what one program says.
type Word struct {
	// Caller tells it from all others, such as a process by its host and a random
	// number: 1 to 128 bytes.
	Caller string
	// Use is how much it has of what the lever lets in: 0 to 1e9.
	Use float64
	// For is how long that counts, unless it says something else: 1 s to 1 h.
	For time.Duration
}

// Seconds is a time as programs write it. What no word may have stays so.
func Seconds(s float64) time.Duration {
	if !(s >= 0) {
		return 0
	}
	return time.Duration(min(s, longest.Seconds()+1) * float64(time.Second))
}

// ErrFull says that too many programs are counted already.
var ErrFull = fmt.Errorf("%d programs say already what they use", maxCallers)

// A Book holds the last word of each. The zero value is empty. Safe for concurrent
// use.
type Book struct {
	mu    sync.Mutex // guards what follows
	words map[string]entry
}

type entry struct {
	use   float64
	until time.Time
}

// Say notes a word. An error says what is wrong with it, or is ErrFull.
func (b *Book) Say(w Word) error {
	switch {
	case w.Caller == "" || len(w.Caller) > maxNameBytes:
		return fmt.Errorf("caller must be a name of 1 to %d bytes, another one for each process", maxNameBytes)
	case !(w.Use >= 0 && w.Use <= highest): // NaN is in no range
		return fmt.Errorf("use must be 0 to %d", int64(highest))
	case w.For < shortest || w.For > longest:
		return fmt.Errorf("for_seconds must be %v to %v", shortest.Seconds(), longest.Seconds())
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if _, known := b.words[w.Caller]; !known && len(b.words) >= maxCallers {
		b.forget(now)
		if len(b.words) >= maxCallers {
			return ErrFull
		}
	}
	if b.words == nil {
		b.words = make(map[string]entry)
	}
	b.words[w.Caller] = entry{w.Use, now.Add(w.For)}
	return nil
}

// Sum is what all of them use together; known is false if nobody says anything.
func (b *Book) Sum() (sum float64, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(time.Now())
	for _, e := range b.words {
		sum += e.use
	}
	return sum, len(b.words) > 0
}

// Len is how many programs are counted.
func (b *Book) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(time.Now())
	return len(b.words)
}

// forget drops the words that don't count any more. With the lock.
func (b *Book) forget(now time.Time) {
	for name, e := range b.words {
		if !now.Before(e.until) {
			delete(b.words, name)
		}
	}
}
