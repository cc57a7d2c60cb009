package publish

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"downlink/internal/event"
	"downlink/internal/problem"
)

// Names of the rates, in what a publisher is told.
const (
	rateOfAll        = "publish_rate"
	ratePerPublisher = "publish_rate_per_token"
	ratePerTarget    = "publish_rate_per_device"
)

// rates hold publishers, and what is sent to one addressee, to a number of
// entries a second. Safe for concurrent use.
type rates struct {
	// Set at construction.
	ofAll, perPublisher, perTarget func() int
	because                        func() Cause

	held atomic.Bool // there may be buckets

	mu         sync.Mutex // guards what follows
	total      total
	publishers buckets
	targets    buckets
}

func newRates(o Options) *rates {
	never := func() int { return 0 }
	r := &rates{ofAll: o.Rate, perPublisher: o.PublisherRate, perTarget: o.TargetRate, because: o.Because}
	if r.ofAll == nil {
		r.ofAll = never
	}
	if r.because == nil {
		r.because = func() Cause { return Cause{} }
	}
	if r.perPublisher == nil {
		r.perPublisher = never
	}
	if r.perTarget == nil {
		r.perTarget = never
	}
	return r
}

// overRate is a message that comes too early.
type overRate struct {
	all    bool   // the rate of all publishers
	cause  Cause  // of that
	target string // whose rate it is; empty: the publisher's
	rate   int
	wait   time.Duration // until it may be tried again
}

// A Cause is why all publishers are held to less than is configured; the zero
// Cause is none.
type Cause struct {
	Signal string // of the governor
	Detail string // a sentence
}

// problem tells a publisher.
func (o *overRate) problem() *problem.Document {
	detail := fmt.Sprintf("%s is %d entries/s for each publisher", ratePerPublisher, o.rate)
	switch {
	case o.all && o.cause.Signal != "":
		detail = fmt.Sprintf("%s is %d entries/s at the moment, for all publishers of this gateway: %s", rateOfAll, o.rate, o.cause.Detail)
	case o.all:
		detail = fmt.Sprintf("%s is %d entries/s for all publishers of this gateway", rateOfAll, o.rate)
	case o.target != "":
		detail = fmt.Sprintf("%s is %d entries/s, and %s had more", ratePerTarget, o.rate, o.target)
	}
	return problem.New(problem.TooManyEvents, detail).After(max(int(math.Ceil(o.wait.Seconds())), 1))
}

// admit takes what a message costs from its publisher's and its addressees'
// buckets, or nothing, and says which of them has none left.
func (r *rates) admit(publisher string, m *message, shards int) *overRate {
	ofAll, perPublisher, perTarget := r.ofAll(), r.perPublisher(), r.perTarget()
	if ofAll == 0 && perPublisher == 0 && perTarget == 0 && !r.held.Load() {
		return nil // as it mostly is: that costs no lock
	}
	entries, each := cost(m, shards)
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held.Store(ofAll != 0 || perPublisher != 0 || perTarget != 0)
	if wait := r.publishers.wait(publisher, perPublisher, now); wait > 0 {
		return &overRate{rate: perPublisher, wait: wait}
	}
	for _, t := range m.targets { // at least one, so that a rate of 0 is seen
		if wait := r.targets.wait(t, perTarget, now); wait > 0 {
			return &overRate{target: t, rate: perTarget, wait: wait}
		}
	}
	if wait := r.total.wait(publisher, ofAll, entries, now); wait > 0 {
		return &overRate{all: true, cause: r.because(), rate: ofAll, wait: wait}
	}
	r.total.take(publisher, ofAll, entries, now)
	r.publishers.take(publisher, perPublisher, entries, now)
	for _, t := range m.targets {
		r.targets.take(t, perTarget, each, now)
	}
	return nil
}

// giveBack returns what a message was charged that nothing was stored for: a
// repetition would else be refused for what it merely repeats, again and again.
func (h *Handler) giveBack(s Sender, m *message, o outcome) {
	if o.replayed || len(o.stored) == 0 {
		h.rates.giveBack(s.Name(), m, h.opts.Shards)
	}
}

func (r *rates) giveBack(publisher string, m *message, shards int) {
	if !r.held.Load() {
		return
	}
	entries, each := cost(m, shards)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total.put(publisher, entries)
	r.publishers.put(publisher, entries)
	for _, t := range m.targets {
		r.targets.put(t, each)
	}
}

// cost is how many entries a message makes, and how many for each addressee.
func cost(m *message, shards int) (entries, each int) {
	if event.ToAll(m.targets[0]) && !m.list {
		return shards, shards
	}
	return len(m.targets), 1
}

// buckets are token buckets by name: each fills at the rate, up to a second's
// worth. What is taken may be more than is left (a broadcast can't be stored in
// parts); then the bucket is in debt, and nobody may take until it is paid. So
// the rate holds whatever is sent, and nothing is too large to be sent at all.
// A full bucket is like none and is dropped, so there are no more of them than
// names that were used within the last moments. The zero value is ready.
type buckets struct {
	byName map[string]*bucket
	purge  int       // so many lead to a search for full ones
	purged time.Time // the last search
}

type bucket struct {
	tokens float64
	at     time.Time // when there were so many
}

// Full buckets are looked for when there are more than leastPurge: at twice as
// many as the last search has left, which on average costs nothing, and every
// purgeEvery, or many idle ones would stay.
const (
	leastPurge = 1024
	purgeEvery = 10 * time.Second
)

// fill brings a bucket up to date.
func (b *bucket) fill(rate int, now time.Time) {
	b.tokens = min(b.tokens+now.Sub(b.at).Seconds()*float64(rate), float64(rate))
	b.at = now
}

// wait is how long until something may be taken; a rate of 0 is no rate.
func (bs *buckets) wait(name string, rate int, now time.Time) time.Duration {
	b := bs.byName[name]
	if rate == 0 {
		bs.byName = nil // nobody is in debt when the rate comes back
		return 0
	}
	if b == nil {
		return 0
	}
	if b.fill(rate, now); b.tokens >= 1 {
		return 0
	}
	return time.Duration((1 - b.tokens) / float64(rate) * float64(time.Second))
}

// take takes n, which wait has allowed.
func (bs *buckets) take(name string, rate, n int, now time.Time) {
	if rate == 0 {
		return
	}
	b := bs.byName[name]
	if b == nil {
		bs.makeRoom(rate, now)
		b = &bucket{tokens: float64(rate), at: now}
		bs.byName[strings.Clone(name)] = b // name may be a part of the whole message
	}
	b.tokens -= float64(n)
}

// put gives back what was taken; the next fill sees to it that it isn't too much.
func (bs *buckets) put(name string, n int) {
	if b := bs.byName[name]; b != nil {
		b.tokens += float64(n)
	}
}

// makeRoom drops full buckets, if there are many.
func (bs *buckets) makeRoom(rate int, now time.Time) {
	if bs.byName == nil {
		bs.byName = make(map[string]*bucket)
	}
	n := len(bs.byName)
	if n < leastPurge || n < bs.purge && now.Sub(bs.purged) < purgeEvery {
		return
	}
	kept := make(map[string]*bucket) // a map that has been large stays so
	for name, b := range bs.byName {
		if b.fill(rate, now); b.tokens < float64(rate) {
			kept[name] = b
		}
	}
	bs.byName, bs.purge, bs.purged = kept, 2*len(kept), now
}
