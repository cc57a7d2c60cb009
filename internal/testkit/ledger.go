package testkit

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"downlink/client"
	"downlink/internal/event"
)

// Shard is the shard of a device.
func Shard(device string, shards int) int { return event.Shard(device, shards) }

// A Ledger holds what was published against what each device has finished.
// Devices are clients that commit, and reconnect at random; publishers repeat
// what wasn't acknowledged under the same idempotency key. So each device must
// see 1, 2, 3 … without a gap, a repeat or a step back. Every fourth device
// polls.
type Ledger struct {
	names []string
	web   *http.Client // nil: each device its own

	mu       sync.Mutex
	acked    []int // highest number that was acknowledged, by device
	finished []int
	sent     []int // highest number that was published, acknowledged or not
	fetched  []int // what the full state of a resync has told, so that it may come again
	faults   []string
	begun    int                       // devices that have got their first position
	got      []time.Time               // when a device last got an event
	stall    time.Duration             // the longest time without one, of any device
	resyncs  map[string]int            // by reason, the first of each device left out
	justify  func(client.Resync) error // nil: no resync is justified
	owed     map[int]string            // gaps that a resync has to follow, by device

	watch func(device int, s client.Status) // nil: nobody
}

// NewLedger makes a ledger of devices with the given prefix.
func NewLedger(prefix string, devices int) *Ledger {
	names := make([]string, devices)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", prefix, i)
	}
	return NewLedgerOf(names)
}

// NewLedgerOf makes a ledger of these devices.
func NewLedgerOf(names []string) *Ledger {
	n := len(names)
	return &Ledger{names: names, acked: make([]int, n), sent: make([]int, n), finished: make([]int, n), fetched: make([]int, n),
		got: make([]time.Time, n), resyncs: make(map[string]int), owed: make(map[int]string)}
}

// Connect runs all devices until ctx ends. where picks a gateway for each
// connection; a connection lasts about stay, at random, and never ends by
// itself if stay is 0.
func (l *Ledger) Connect(ctx context.Context, where func() string, stay time.Duration) {
	var wg sync.WaitGroup
	for i := range l.names {
		wg.Go(func() { l.device(ctx, i, where, stay) })
	}
	wg.Wait()
}

func (l *Ledger) device(ctx context.Context, i int, where func() string, stay time.Duration) {
	store := &client.MemoryStore{}
	first := true
	leave := func() {} // in a while
	handler := client.Handler{
		Event: func(_ context.Context, e client.Event) error { l.finish(i, e); return nil },
		Resync: func(_ context.Context, r client.Resync) error {
			l.resynced(i, r, first)
			if first {
				leave()
			}
			first = false
			return nil
		},
	}
	if l.watch != nil {
		handler.Status = func(s client.Status) { l.watch(i, s) }
	}
	for ctx.Err() == nil {
		life, cancel := context.WithCancel(ctx)
		if stay > 0 {
			leave = func() { time.AfterFunc(time.Duration(rand.Int64N(int64(2*stay))), cancel) }
		}
		if !first { // a busy machine may need longer than that for the first answer
			leave()
		}
		c := &client.Client{URL: where(), Device: l.names[i], Cursors: store, Poll: i%4 == 3 && l.watch == nil, HTTPClient: l.web}
		err := c.Run(life, handler)
		if life.Err() == nil {
			l.fault("%s: the client gave up: %v", l.names[i], err)
			cancel()
			return
		}
		cancel()
	}
}

func (l *Ledger) finish(i int, e client.Event) {
	var body struct{ N int }
	if err := json.Unmarshal([]byte(e.Data), &body); err != nil {
		l.fault("%s: %q isn't what was published", l.names[i], e.Data)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); !l.got[i].IsZero() {
		l.stall, l.got[i] = max(l.stall, now.Sub(l.got[i])), now
	}
	switch want := l.finished[i] + 1; {
	case body.N > want && body.N <= l.fetched[i]+1:
	case body.N > want && l.justify != nil:
		// Gateways that have left a server that was replaced learn only later of
		// what others stored there.
		l.owed[i] = fmt.Sprintf("%s: gap, %d after %d (id %s), and no resync after it", l.names[i], body.N, l.finished[i], e.ID)
	case body.N > want:
		l.faultLocked("%s: gap, %d after %d (id %s)", l.names[i], body.N, l.finished[i], e.ID)
	case body.N < want && body.N <= l.fetched[i]:
		return
	case body.N < want:
		l.faultLocked("%s: repeat, %d after %d (id %s)", l.names[i], body.N, l.finished[i], e.ID)
		return
	}
	l.finished[i] = body.N
}

func (l *Ledger) resynced(i int, r client.Resync, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if first && r.Reason == "no-cursor" {
		l.begun++
		return
	}
	l.resyncs[r.Reason]++
	if l.justify == nil {
		l.faultLocked("%s: resync %s at %s", l.names[i], r.Reason, r.ID)
		return
	}
	if err := l.justify(r); err != nil {
		l.faultLocked("%s: %v", l.names[i], err)
	}
	delete(l.owed, i)
	// The full state holds what was acknowledged, and what is under way: whoever
	// publishes a change has made it before.
	l.finished[i] = l.acked[i]
	l.fetched[i] = l.sent[i]
}

func (l *Ledger) fault(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faultLocked(format, args...)
}

func (l *Ledger) faultLocked(format string, args ...any) {
	l.faults = append(l.faults, fmt.Sprintf(format, args...))
}

// AwaitBegun waits until every device has its first position: what is
// published from then on is owed to it.
func (l *Ledger) AwaitBegun(tb testing.TB) {
	tb.Helper()
	Eventually(tb, "every device has got its first position", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.begun == len(l.names)
	})
}

// Publish sends about rate events a second, in batches to all devices in
// turn, until ctx ends. where picks a back end for each attempt.
func (l *Ledger) Publish(ctx context.Context, where func() string, rate int) {
	size := min(max(rate/20, 1), len(l.names)) // of a batch: twenty a second, unless there are too few devices
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	web := &http.Client{Transport: transport, Timeout: 15 * time.Second}
	tick := time.NewTicker(time.Duration(size) * time.Second / time.Duration(rate))
	defer tick.Stop()
	for next := 0; ; next += size {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// A batch that was begun is finished: it may be half stored already.
		l.batch(ctx, web, where, next, size)
	}
}

// batch publishes one event to each of n devices, until all are acknowledged.
func (l *Ledger) batch(ctx context.Context, web *http.Client, where func() string, from, n int) {
	open := make(map[int]string, n) // line by device
	order := make([]int, 0, n)
	l.mu.Lock()
	for k := range n {
		i := (from + k) % len(l.names)
		number := l.acked[i] + 1
		open[i] = fmt.Sprintf(`{"device":%q,"type":"n","payload":{"n":%d},"idem":"%s/%d"}`, l.names[i], number, l.names[i], number)
		order = append(order, i)
		l.sent[i] = number
	}
	l.mu.Unlock()
	for len(open) > 0 {
		var lines []string
		var sent []int
		for _, i := range order {
			if line, ok := open[i]; ok {
				lines, sent = append(lines, line), append(sent, i)
			}
		}
		if !l.send(web, where(), lines, sent, open) && ctx.Err() != nil {
			return // the test is over and the log is away
		}
		if len(open) > 0 { // whoever repeats without a pause keeps the servers from coming back
			<-time.After(20 * time.Millisecond)
		}
	}
}

// send posts lines and takes what was acknowledged out of open.
func (l *Ledger) send(web *http.Client, backend string, lines []string, sent []int, open map[int]string) bool {
	resp, err := web.Post(backend+"/v1/events", "application/x-ndjson", strings.NewReader(strings.Join(lines, "\n")+"\n"))
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	answers := bufio.NewScanner(resp.Body)
	for k := 0; answers.Scan() && k < len(sent); k++ {
		var answer struct{ ID string }
		if json.Unmarshal(answers.Bytes(), &answer) == nil && answer.ID != "" {
			l.mu.Lock()
			l.acked[sent[k]]++
			l.mu.Unlock()
			delete(open, sent[k])
		}
	}
	return resp.StatusCode == http.StatusOK
}

// Acked is how many events were acknowledged so far.
func (l *Ledger) Acked() (events int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.acked {
		events += n
	}
	return events
}

// Finished is how many events the devices have finished so far.
func (l *Ledger) Finished() (events int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.finished {
		events += n
	}
	return events
}

// Stall is the longest time for which some device has got nothing since Stall
// was last called; the first call only begins. It means something while events
// for all devices are published.
func (l *Ledger) Stall() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, worst := time.Now(), l.stall
	for i := range l.got {
		if !l.got[i].IsZero() {
			worst = max(worst, now.Sub(l.got[i]))
		}
		l.got[i] = now
	}
	l.stall = 0
	return worst
}

// Settle waits until every device has finished what was acknowledged for it,
// then fails the test for every gap, repeat and resync. It returns how many
// events went through.
func (l *Ledger) Settle(tb testing.TB) (events int) {
	tb.Helper()
	Eventually(tb, "every device has finished what was acknowledged for it", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.faults) > 0 {
			return true
		}
		for i := range l.names {
			if max(l.finished[i], l.fetched[i]) < l.acked[i] {
				return false
			}
		}
		return true
	})
	told := time.Now().Add(patience / 2)
	Eventually(tb, "every gap is told of", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.owed) == 0 || time.Now().After(told)
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = slices.AppendSeq(l.faults, maps.Values(l.owed))
	for k, f := range l.faults {
		if k == 20 {
			tb.Errorf("… and %d more", len(l.faults)-k)
			break
		}
		tb.Error(f)
	}
	for _, n := range l.finished {
		events += n
	}
	if events == 0 {
		tb.Error("nothing was published: the ledger proves nothing")
	}
	return events
}

// Through lets all devices connect by one client. Call it before Connect.
func (l *Ledger) Through(web *http.Client) { l.web = web }

// Justify lets resyncs pass that it returns nil for. Call it before Connect.
func (l *Ledger) Justify(rule func(client.Resync) error) { l.justify = rule }

// Watch has f told of every beginning and end of a device's stream, on the
// device's goroutine. No device polls then. Call it before Connect.
func (l *Ledger) Watch(f func(device int, s client.Status)) { l.watch = f }

// Resyncs counts the resyncs after each device's first, by reason.
func (l *Ledger) Resyncs() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.resyncs)
}
