package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"downlink/internal/event"
)

// patience is how long a publisher waits for an answer, over the gateways'
// publish_timeout.
const patience = 4 * time.Second

// attempts are how many a publisher has for a batch: enough for a gateway that is
// killed, and comes back slowly, while it refuses connections at once.
const attempts = 800

// A publisher repeats what wasn't acknowledged, with the same idempotency key,
// at any gateway, until it is.
type publisher struct {
	run   *run
	rng   *rand.Rand
	lanes []*lane // its own
	web   *http.Client
	pad   string
	next  int
	told  time.Duration // to wait, by what was refused last
}

// A line is one event on its way.
type line struct {
	lane *lane
	n    int
	text string
}

func newPublisher(r *run, lanes []*lane, seed uint64) *publisher {
	return &publisher{
		run: r, rng: rand.New(rand.NewPCG(r.seed, seed)), lanes: lanes,
		web: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience},
		pad: strings.Repeat("x", 4096),
	}
}

// publish sends rate events a second, in batches or one by one, until ctx ends;
// after a pause that a fault has caused it catches up a little.
func (p *publisher) publish(ctx context.Context, rate float64, step func(n int)) {
	const rounds = 15 // a second
	tick := time.NewTicker(time.Second / rounds)
	defer tick.Stop()
	due, last := 0.0, time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		due, last = min(due+rate*now.Sub(last).Seconds(), rate*2), now
		if n := int(min(due, 400)); n > 0 {
			step(n)
			due -= float64(n)
		}
	}
}

// batch publishes n events as NDJSON, one to three to each lane in turn.
func (p *publisher) batch(n int) {
	var lines []line
	for len(lines) < n {
		l := p.lanes[p.next%len(p.lanes)]
		p.next++
		for range min(1+p.rng.IntN(3), n-len(lines)) {
			lines = append(lines, p.compose(l))
		}
	}
	for attempt := 0; len(lines) > 0; attempt++ {
		p.rest(attempt)
		lines = p.send(lines)
	}
}

// compose makes the next event of a lane, a large one now and then.
func (p *publisher) compose(l *lane) line {
	n := l.begin(p.run.now())
	pad := 16
	if p.rng.IntN(100) == 0 {
		pad = len(p.pad)
	}
	return line{l, n, fmt.Sprintf(`{"device":%q,"type":%q,"key":%q,"text":"%d %s","idem":"%s/%s/%d"}`, l.target, l.name, l.key, n, p.pad[:pad], l.target, l.name, n)}
}

// rest pauses before a repeat, for as long as it was told: whoever repeats without
// keeps servers from coming back.
func (p *publisher) rest(attempt int) {
	if attempt > 0 {
		wait(context.Background(), max(time.Duration(20+p.rng.IntN(150))*time.Millisecond, p.told))
	}
	p.told = 0
	if attempt == attempts {
		p.run.chronicle.fault("a batch isn't accepted in %d attempts", attempt)
	}
}

// An answer is what the back end says of one line, or of one request.
type answer struct {
	ID    event.ID
	Shard int
	IDs   []struct {
		ID    event.ID
		Shard int
	}
	Error *refusal
}

// A refusal is a problem document.
type refusal struct {
	Type       string
	Status     int
	Detail     string
	RetryAfter int `json:"retry_after"`
}

// heed reports whether an event may be repeated that was refused: the log is away, or
// the governor holds publishers back, as faults make it do. No rate is configured, so
// of what was refused for a rate the first must name it; what follows in the
// batch must not overtake it.
func (p *publisher) heed(e *refusal) bool {
	switch {
	case e == nil || e.Status == http.StatusServiceUnavailable:
		return true
	case e.Status != http.StatusTooManyRequests || p.told == 0 && !strings.Contains(e.Detail, "the governor"):
		return false
	}
	p.told = max(p.told, time.Duration(e.RetryAfter)*time.Second, time.Millisecond)
	return true
}

// send posts lines and returns those that weren't acknowledged.
func (p *publisher) send(lines []line) (left []line) {
	var body strings.Builder
	for _, l := range lines {
		body.WriteString(l.text + "\n")
	}
	resp, err := p.web.Post(p.run.backend(p.rng)+"/v1/events", "application/x-ndjson", strings.NewReader(body.String()))
	if err != nil {
		return lines
	}
	defer resp.Body.Close()
	if c := resp.StatusCode; c != http.StatusOK && c != http.StatusServiceUnavailable && c != http.StatusTooManyRequests {
		p.run.chronicle.fault("a batch was refused: %d", c)
	}
	answers := bufio.NewScanner(resp.Body)
	answers.Buffer(nil, 1<<20)
	k := 0
	for ; k < len(lines) && answers.Scan(); k++ {
		var a answer
		if json.Unmarshal(answers.Bytes(), &a) != nil {
			break
		}
		if !p.accepted(lines[k], a) {
			left = append(left, lines[k])
		}
	}
	return append(left, lines[k:]...)
}

// accepted takes one answer.
func (p *publisher) accepted(l line, a answer) bool {
	now := p.run.now()
	switch {
	case !a.ID.IsZero():
		if a.Shard != l.lane.shard {
			p.run.chronicle.fault("%s %d was stored in shard %d", l.lane.target, l.n, a.Shard)
		}
		p.run.chronicle.hold(a.Shard, a.ID, now)
	case len(a.IDs) > 0 && a.Error == nil:
		for _, one := range a.IDs {
			p.run.chronicle.hold(one.Shard, one.ID, now)
		}
	default:
		if !p.heed(a.Error) {
			p.run.chronicle.fault("%s %d was refused: %d %s %s", l.lane.target, l.n, a.Error.Status, a.Error.Type, a.Error.Detail)
		}
		return false
	}
	l.lane.ack(l.n, now)
	return true
}

// single publishes one event in a request of its own.
func (p *publisher) single(int) {
	l := p.compose(p.lanes[p.next%len(p.lanes)])
	p.next++
	for attempt := 0; ; attempt++ {
		p.rest(attempt)
		if p.post(l) {
			return
		}
		if attempt > attempts {
			return
		}
	}
}

func (p *publisher) post(l line) bool {
	resp, err := p.web.Post(p.run.backend(p.rng)+"/v1/events", "application/json", strings.NewReader(l.text))
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	var a answer
	if err != nil || resp.StatusCode == http.StatusServiceUnavailable || json.Unmarshal(text, &a) != nil {
		return false
	}
	if resp.StatusCode != http.StatusOK {
		var e refusal
		if json.Unmarshal(text, &e) != nil || !p.heed(&e) || resp.Header.Get("Downlink-Signal") == "" {
			p.run.chronicle.fault("%s %d was refused: %d %s", l.lane.target, l.n, resp.StatusCode, text)
		}
		return false
	}
	return p.accepted(l, a)
}

// raw adds an entry to the stream itself, as any program may. It isn't repeated
// when the answer is lost: that could make a second event of it.
func (p *publisher) raw(int) {
	l := p.lanes[p.next%len(p.lanes)]
	p.next++
	n := l.begin(p.run.now())
	id, err := p.run.store.add(l.shard, "dev", l.target, "type", l.name, "payload", fmt.Sprintf("%d raw", n))
	if err != nil {
		l.abandon(n)
		return
	}
	p.run.chronicle.hold(l.shard, id, p.run.now())
	l.ack(n, p.run.now())
}
