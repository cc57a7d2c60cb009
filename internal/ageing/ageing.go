// Package ageing owns when sessions end by the clock: at their maximum age, with
// their credential, or because the gateway lets them go at a pace. It says the
// word; how an end looks is the session's business, and who is to end is decided
// by others. Its invariant: however many sessions have a date, one goroutine and
// one timer keep all of them.
package ageing

import (
	"container/heap"
	"context"
	"math"
	"sync"
	"time"

	"downlink/internal/session"
)

// A Book holds the dates of a gateway's sessions. Safe for concurrent use.
type Book struct {
	began time.Time
	news  chan struct{} // the next date has become an earlier one

	mu    sync.Mutex
	dates dates
}

// New makes an empty book.
func New() *Book { return &Book{began: time.Now(), news: make(chan struct{}, 1)} }

// A Date is when a session is to end.
type Date struct {
	book    *Book
	at      time.Duration // since the book began
	session *session.Session
	reason  session.EndReason
	retry   time.Duration // 0: the session's own
	place   int           // in the book; -1: it isn't there any more
}

// Enter notes that a session is to end after a while, for a reason, and when its
// device is to come back then (session.EndWith). A session may have several
// dates: the first counts. Whoever lets it end before should strike the date.
func (b *Book) Enter(s *session.Session, after time.Duration, reason session.EndReason, retry time.Duration) *Date {
	now := time.Since(b.began)
	d := &Date{book: b, at: now + min(max(after, 0), math.MaxInt64-now), session: s, reason: reason, retry: retry}
	b.mu.Lock()
	heap.Push(&b.dates, d)
	first := d.place == 0
	b.mu.Unlock()
	if first {
		select {
		case b.news <- struct{}{}:
		default: // it is known already
		}
	}
	return d
}

// Strike takes a date out of the book. Striking again, or nil, does nothing.
func (d *Date) Strike() {
	if d == nil {
		return
	}
	d.book.mu.Lock()
	defer d.book.mu.Unlock()
	if d.place >= 0 {
		heap.Remove(&d.book.dates, d.place)
	}
}

// Len is how many dates there are.
func (b *Book) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.dates)
}

// grain is how long the book rests at least between two looks, and so how late
// an end may come.
const grain = 5 * time.Millisecond

// Run ends the sessions whose date has come, until ctx ends; then it returns nil.
func (b *Book) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var due []*Date
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b.news:
		case <-timer.C:
		}
		var next time.Duration
		due, next = b.take(due[:0])
		for i, d := range due {
			due[i] = nil
			d.session.EndWith(d.reason, d.retry)
		}
		timer.Reset(max(next, grain))
	}
}

// take takes out the dates that have come, and says in which time the next one
// does.
func (b *Book) take(due []*Date) ([]*Date, time.Duration) {
	now := time.Since(b.began)
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.dates) > 0 && b.dates[0].at <= now {
		due = append(due, heap.Pop(&b.dates).(*Date)) //nolint:forcetypeassert // it holds nothing else
	}
	if len(b.dates) == 0 {
		return due, math.MaxInt64
	}
	return due, b.dates[0].at - now
}

// dates is a heap, the earliest first (container/heap).
type dates []*Date

func (d dates) Len() int           { return len(d) }
func (d dates) Less(i, j int) bool { return d[i].at < d[j].at }

func (d dates) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].place, d[j].place = i, j
}

func (d *dates) Push(x any) {
	date := x.(*Date) //nolint:forcetypeassert // heap.Push is given nothing else
	date.place = len(*d)
	*d = append(*d, date)
}

func (d *dates) Pop() any {
	last := len(*d) - 1
	date := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	date.place = -1
	return date
}
