package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"downlink/internal/testkit"
)

// largePayload of an event for a device that reads nothing.
const largePayload = 64 << 10

// held is more such events than the kernel holds for a device.
const held = 150

const stalled = `downlink_session_ends_total{reason="write_timeout"}`

// A flood is what is published for a device that reads nothing: far more than
// the kernel may hold for it.
type flood struct {
	log     string
	events  int
	publish func(t *testing.T, g *testkit.Gateway, from, to int) // numbers from up to below to
	mayGrow float64                                              // bytes, while it is published
}

// postFlood publishes for "demo" on the back end's port.
func postFlood(t *testing.T, g *testkit.Gateway, from, to int) {
	t.Helper()
	var lines strings.Builder
	for n := from; n < to; n++ {
		fmt.Fprintf(&lines, `{"device":"demo","type":"t","text":%q}`+"\n", large(n))
	}
	status, answer := testkit.Post(t, g.Backend+"/v1/events", "application/x-ndjson", lines.String())
	if status != 200 || strings.Contains(answer, `"error"`) {
		t.Fatalf("publishing: %d %.500s", status, answer)
	}
}

// addFlood publishes for "demo" past every gateway, which is much quicker.
func addFlood(redis *testkit.Redis) func(*testing.T, *testkit.Gateway, int, int) {
	return func(t *testing.T, _ *testkit.Gateway, from, to int) {
		t.Helper()
		var commands [][]string
		for n := from; n < to; n++ {
			commands = append(commands, []string{"XADD", demoShard, "*", "dev", "demo", "type", "t", "payload", large(n)})
		}
		for _, reply := range redis.Pipe(commands...) {
			if err, failed := reply.(error); failed {
				t.Fatalf("publishing: %v", err)
			}
		}
	}
}

func large(n int) string { return fmt.Sprint(n, " ", strings.Repeat("x", largePayload)) }

// A heap watches the living memory of a gateway.
type heap struct {
	t          *testing.T
	g          *testkit.Gateway
	base, most float64
}

func watchHeap(t *testing.T, g *testkit.Gateway) *heap {
	h := &heap{t: t, g: g}
	h.base = h.now()
	return h
}

// now is what is left after a collection of garbage.
func (h *heap) now() float64 {
	h.t.Helper()
	if status, text := testkit.Get(h.t, h.g.Backend+"/debug/pprof/heap?gc=1"); status != 200 {
		h.t.Fatalf("collecting garbage: %d %s", status, text)
	}
	return h.g.Metric("go_memstats_heap_alloc_bytes")
}

func (h *heap) look() { h.most = max(h.most, h.now()-h.base) }

func (h *heap) check(limit float64) {
	h.t.Helper()
	h.t.Logf("the heap grew by up to %.1f MiB", h.most/(1<<20))
	if h.most > limit {
		h.t.Errorf("the heap grew by %.0f bytes, more than %.0f", h.most, limit)
	}
}

// printed follows what a listener prints, and holds it against 0, 1, 2 …
type printed struct {
	t     *testing.T
	in    *bufio.Reader
	part  string
	count int
}

func follow(t *testing.T, file string) *printed {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return &printed{t: t, in: bufio.NewReaderSize(f, 1<<20)}
}

// upTo waits until so many events were printed.
func (p *printed) upTo(count int) {
	p.t.Helper()
	testkit.Eventually(p.t, fmt.Sprintf("%d events are printed", count), func() bool { return p.read(count) >= count })
}

// soFar is how many events were printed.
func (p *printed) soFar() int {
	p.t.Helper()
	return p.read(math.MaxInt)
}

// read reads what there is of the first events, and returns how many there were.
func (p *printed) read(most int) int {
	p.t.Helper()
	for p.count < most {
		text, err := p.in.ReadString('\n')
		p.part += text
		if errors.Is(err, io.EOF) {
			break
		}
		p.line(strings.TrimSuffix(p.part, "\n"))
		p.part = ""
	}
	return p.count
}

func (p *printed) line(line string) {
	p.t.Helper()
	fields := strings.SplitN(line, "\t", 3)
	switch {
	case len(fields) == 3 && fields[1] == "resync" && fields[2] == "no-cursor" && p.count == 0:
	case len(fields) == 3 && strings.HasPrefix(fields[2], fmt.Sprint(p.count, " x")) && strings.Count(fields[2], "x") == largePayload:
		p.count++
	default:
		p.t.Fatalf("printed %.80q (%d bytes) where %d comes next", line, len(line), p.count)
	}
}

// TestFrozenDevice: a device stops reading in live traffic, and again in the
// middle of the long replay that follows. It costs bounded memory, delays
// nobody in its shard, is disconnected, and misses nothing once it goes on.
func TestFrozenDevice(t *testing.T) {
	t.Parallel()
	t.Run("Redis", func(t *testing.T) {
		onlyOnce(t)
		t.Parallel()
		redis := testkit.StartRedis(t)
		freezeDevice(t, flood{log: redis.URL(), events: 800, publish: addFlood(redis), mayGrow: 32 << 20})
	})
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		freezeDevice(t, flood{log: "file:" + t.TempDir(), events: 300, publish: postFlood, mayGrow: 64 << 20}) // the store keeps what is new in memory
	})
}

func freezeDevice(t *testing.T, f flood) {
	t.Helper()
	const part = 50 // events
	// A small hot window: it isn't what is measured.
	g := program.StartGateway(t, args("--log", f.log, "--write-timeout", "2s", "--hot-window-bytes", "4MiB")...)
	neighbour := newNeighbour(t, g)
	file := filepath.Join(t.TempDir(), "printed")
	device := program.StartListener(t, file, "--url", g.Device, "--device", "demo")
	out := follow(t, file)
	testkit.Eventually(t, "the device is connected", func() bool { return g.Metric("sse_active_connections") == 2 })
	f.publish(t, g, 0, part)
	out.upTo(part)

	memory := watchHeap(t, g)
	// Once more than before: a listener that has no processor for so long is
	// disconnected, too.
	stop := func() (disconnected func() bool) {
		before := g.Metric(stalled)
		device.Stop()
		return func() bool { neighbour.gets(); memory.look(); return g.Metric(stalled) > before }
	}
	disconnected := stop()
	for n := part; n < f.events; n += part {
		f.publish(t, g, n, min(n+part, f.events))
		neighbour.gets()
		memory.look()
	}
	testkit.Eventually(t, "the device is disconnected in live traffic", disconnected)
	memory.check(f.mayGrow)

	device.Cont()
	out.upTo(f.events / 3) // more than the kernel held for it
	disconnected = stop()
	if out.soFar() > f.events-held { // it was quicker than this test
		f.publish(t, g, f.events, f.events+held)
		f.events += held
	}
	memory = watchHeap(t, g)
	testkit.Eventually(t, "the device is disconnected in its replay", disconnected)
	memory.check(16 << 20)
	neighbour.check()

	device.Cont()
	out.upTo(f.events)
}

// A neighbour is a device in the shard of "demo", which reads.
type neighbour struct {
	t      *testing.T
	g      *testkit.Gateway
	name   string
	stream *testkit.Stream
	worst  time.Duration
	pause  func() time.Duration // of the gateway, or of this process
}

func newNeighbour(t *testing.T, g *testkit.Gateway) *neighbour {
	t.Helper()
	n := &neighbour{t: t, g: g, name: siblingOf("demo"), pause: watchAwake(t, g)}
	n.stream = testkit.Open(t, g.Device+"/events?device="+n.name, "")
	n.stream.Until(resync)
	return n
}

// gets publishes an event for the neighbour and waits for it.
func (n *neighbour) gets() {
	n.t.Helper()
	publish(n.t, n.g, n.name, "for the neighbour")
	begin := time.Now()
	n.stream.Until("data: for the neighbour")
	n.worst = max(n.worst, time.Since(begin))
}

// check judges nothing if all of the gateway was held up for long.
func (n *neighbour) check() {
	n.t.Helper()
	pause := n.pause()
	n.t.Logf("the neighbour waited up to %v; who asked whether the gateway lives, up to %v", n.worst, pause)
	if n.worst >= 1500*time.Millisecond && pause < time.Second { // most of a write_timeout
		n.t.Errorf("the neighbour waited for %v", n.worst)
	}
}

// TestReplayFollowsTheSocket: 10,000 events for a device that reads slowly but
// steadily: they come in order, and it never counts as stalled.
func TestReplayFollowsTheSocket(t *testing.T) {
	t.Parallel()
	const (
		events = 10_000
		kilo   = 1000 // bytes of each
	)
	replay := func(t *testing.T, log string) {
		g := program.StartGateway(t, args("--log", log, "--write-timeout", "2s", "--hot-window-bytes", "1MiB")...)
		// In parts whose answers the kernel holds: write_timeout is for publishers, too.
		for n := 0; n < events; n += 500 {
			var lines strings.Builder
			for i := range 500 {
				fmt.Fprintf(&lines, `{"device":"demo","type":"t","text":"%d %s"}`+"\n", n+i, strings.Repeat("x", kilo))
			}
			if status, answer := testkit.Post(t, g.Backend+"/v1/events", "application/x-ndjson", lines.String()); status != 200 || strings.Contains(answer, `"error"`) {
				t.Fatalf("publishing: %d %.500s", status, answer)
			}
		}
		// The slower one would take too long for all, but long enough to be cut
		// off if progress that is less than the kernel's buffer weren't seen.
		for try := 1; ; try++ {
			before := g.Metric(stalled)
			var readers sync.WaitGroup
			var all, some reading
			readers.Go(func() { all = readSteadily(g, 2000*kilo, events) })
			readers.Go(func() { some = readSteadily(g, 200*kilo, 1000) })
			awake := watchAwake(t, g)
			readers.Wait()
			pause := max(all.pause, some.pause, awake())
			ends, err := g.Metric(stalled)-before, errors.Join(all.err, some.err)
			if ends == 0 && err == nil {
				return
			}
			// Who was held up for half of write_timeout hasn't read, or written, steadily.
			if pause < time.Second || try == 10 {
				t.Fatalf("%v sessions counted as stalled; %v; the longest pause of a device or the gateway was %v", ends, err, pause)
			}
		}
	}
	t.Run("Redis", func(t *testing.T) {
		onlyOnce(t)
		t.Parallel()
		replay(t, testkit.StartRedis(t).URL())
	})
	t.Run("embedded", func(t *testing.T) { t.Parallel(); replay(t, "file:"+t.TempDir()) })
}

// watchAwake asks a gateway again and again whether it lives, until the longest time
// without an answer is asked for.
func watchAwake(t *testing.T, g *testkit.Gateway) (longest func() time.Duration) {
	done, found := make(chan struct{}), make(chan time.Duration)
	go func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		worst := time.Duration(0)
		for last := time.Now(); ; last = time.Now() {
			select {
			case <-done:
				found <- worst
				return
			case <-tick.C:
			}
			testkit.Get(t, g.Backend+"/healthz")
			worst = max(worst, time.Since(last))
		}
	}()
	longest = sync.OnceValue(func() time.Duration { close(done); return <-found })
	t.Cleanup(func() { longest() })
	return longest
}

// A reading is what became of one.
type reading struct {
	pause time.Duration // the longest between two reads
	err   error
}

// readSteadily is a device that asks for everything, and reads so many bytes a
// second until it has got the first events.
func readSteadily(g *testkit.Gateway, second, events int) reading {
	conn, err := net.Dial("tcp", strings.TrimPrefix(g.Device, "http://"))
	if err != nil {
		return reading{err: err}
	}
	defer conn.Close()
	err = conn.(*net.TCPConn).SetReadBuffer(32 << 10) // or the kernel would read ahead
	if err == nil {
		_, err = fmt.Fprint(conn, "GET /events?device=demo&from=earliest HTTP/1.0\r\n\r\n")
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	pace := &paced{conn: conn, tick: tick.C, second: second, begin: time.Now(), last: time.Now()}
	in := bufio.NewScanner(pace)
	next := 0
	for err == nil && next < events && in.Scan() {
		if text, ok := strings.CutPrefix(in.Text(), "data: "); ok {
			if !strings.HasPrefix(text, fmt.Sprint(next, " x")) {
				err = fmt.Errorf("got %.20q where %d comes next", text, next)
			}
			next++
		}
	}
	if next < events || err != nil {
		err = fmt.Errorf("the stream at %d bytes a second ended after %d events: %w", second, next, errors.Join(err, in.Err(), io.ErrUnexpectedEOF))
	}
	return reading{pace.pause, err}
}

// paced reads so many bytes a second. It looks at each tick how many are due:
// on a busy machine ticks get lost.
type paced struct {
	conn   net.Conn
	tick   <-chan time.Time
	second int
	begin  time.Time
	read   int
	last   time.Time     // when it read
	pause  time.Duration // the longest between two reads
}

func (p *paced) Read(b []byte) (int, error) {
	due := p.due()
	for ; due <= 0; due = p.due() {
		<-p.tick
	}
	p.pause = max(p.pause, time.Since(p.last))
	n, err := p.conn.Read(b[:min(len(b), due)])
	p.read += n
	p.last = time.Now()
	return n, err
}

func (p *paced) due() int { return int(time.Since(p.begin).Seconds()*float64(p.second)) - p.read }
