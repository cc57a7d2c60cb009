package e2e

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"downlink/internal/testkit"
)

//nolint:gochecknoglobals // as every flag
var stormDevices = flag.Int("storm.devices", 900, "devices of the storm; each needs a descriptor in this process, and one in a gateway")

// A throng is devices that do what they are told: they come back after the last
// retry that they got.
type throng struct {
	t     *testing.T
	where atomic.Pointer[string] // host:port
	stop  context.Context
	all   []visitor
}

type visitor struct {
	mu      sync.Mutex
	in, out []time.Time // when it got a stream, and when that ended
	refused int
}

func (c *throng) visit(i int) {
	v := &c.all[i]
	for retry := time.Duration(0); c.pause(retry); {
		conn, err := (&net.Dialer{}).DialContext(c.stop, "tcp", *c.where.Load())
		if err != nil {
			if c.stop.Err() == nil {
				c.t.Error(err)
			}
			return
		}
		gone := context.AfterFunc(c.stop, func() { conn.Close() })
		retry = v.stay(conn, i)
		gone()
		conn.Close()
	}
}

// pause waits; false if it is to disperse.
func (c *throng) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c.stop.Done():
		return false
	case <-timer.C:
		return true
	}
}

// stay reads a stream to its end, and returns after which time to come back.
func (v *visitor) stay(conn net.Conn, i int) (retry time.Duration) {
	_, _ = fmt.Fprintf(conn, "GET /events?device=storm-%d HTTP/1.1\r\nHost: x\r\n\r\n", i)
	resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 512), nil)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	refused := resp.Header.Get("Downlink-Refused") != ""
	v.note(func() {
		if refused {
			v.refused++
		} else {
			v.in = append(v.in, time.Now())
		}
	})
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 0, 256), 1<<16)
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), "retry: "); ok {
			ms, _ := strconv.Atoi(text)
			retry = time.Duration(ms) * time.Millisecond
		}
	}
	if !refused {
		v.note(func() { v.out = append(v.out, time.Now()) })
	}
	return retry
}

func (v *visitor) note(what func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	what()
}

// await waits until each of them has had so many streams.
func (c *throng) await(what string, streams int) {
	c.t.Helper()
	for i := range c.all {
		v := &c.all[i]
		testkit.Eventually(c.t, what, func() (had bool) { // a minute for each
			v.note(func() { had = len(v.in) >= streams })
			return had
		})
	}
}

// perSecond is the most of some times that lie within one second.
func perSecond(times []time.Time) (most int) {
	slices.SortFunc(times, time.Time.Compare)
	from := 0
	for to, at := range times {
		for at.Sub(times[from]) >= time.Second {
			from++
		}
		most = max(most, to-from+1)
	}
	return most
}

// TestStorm: a crowd that comes at once is admitted at accept_rate, and everybody
// is in within the time that docs/operate/drain.md computes. Then the gateway goes
// out of service, and the crowd comes to another one at drain_rate.
func TestStorm(t *testing.T) {
	t.Parallel()
	const (
		rate = 300
		base = 500 * time.Millisecond
		busy = 30 * time.Second // what a slow machine may add
	)
	redis := testkit.StartRedis(t)
	launch := func(more ...string) *testkit.Gateway {
		return program.StartGateway(t, append([]string{"--log", redis.URL(), "--retry", base.String(), "--drain-rate", strconv.Itoa(rate), "--drain-deadline", "5m"}, more...)...)
	}
	a, b := launch("--accept-rate", strconv.Itoa(rate)), launch()
	n := *stormDevices
	stop, disperse := context.WithCancel(t.Context())
	c := &throng{t: t, stop: stop, all: make([]visitor, n)}
	at := func(g *testkit.Gateway) *string {
		address := strings.TrimPrefix(g.Device, "http://")
		return &address
	}
	c.where.Store(at(a))
	began := time.Now()
	var visits sync.WaitGroup
	defer visits.Wait()
	defer disperse()
	for i := range n {
		visits.Go(func() { c.visit(i) })
	}
	c.await("everybody is in", 1)
	var in []time.Time
	refused := 0
	for i := range c.all {
		in = append(in, c.all[i].in[0])
		refused = max(refused, c.all[i].refused)
	}
	most := perSecond(in) // sorts
	computed := base*3/2 + time.Duration(n)*time.Second/rate
	took := in[n-1].Sub(began)
	t.Logf("%d devices at an accept_rate of %d: in after %v, computed are %v; at most %d in a second, and %d refusals of one device", n, rate, took, computed, most, refused)
	// A second's worth may come at once.
	if took > computed+busy || took < time.Duration(n-rate)*time.Second/rate {
		t.Errorf("%d were in within a second, all after %v, computed are %v", most, took, computed)
	}

	c.where.Store(at(b))
	began = time.Now()
	a.Signal(syscall.SIGTERM)
	c.await("everybody is at the other gateway", 2)
	var out, back []time.Time
	away := time.Duration(0)
	for i := range c.all {
		v := &c.all[i]
		out, back = append(out, v.out[0]), append(back, v.in[1])
		away = max(away, v.in[1].Sub(v.out[0]))
	}
	closed, returned := perSecond(out), perSecond(back)
	t.Logf("drained at a drain_rate of %d: %v until the last is back, at most %d closed and %d back in a second; away for %v at most", rate, back[n-1].Sub(began), closed, returned, away)
	// The most in a second is proved where the clock is virtual: here it counts how
	// busy the machine is, which makes nobody's return earlier than his turn.
	if took := back[n-1].Sub(began); took < time.Duration(n)*time.Second/rate*8/10 {
		t.Errorf("all came back within %v, at a rate of %d", took, rate)
	}
	if away > base*3/2+5*time.Second+busy {
		t.Errorf("a device was away for %v", away)
	}
	if code := a.AwaitExit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
