package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"downlink/client"
	"downlink/internal/load/producer"
	"downlink/internal/testkit"
)

// The benchmarks run the plain binary as a process of its own, with default
// settings, and load it over loopback from this one. Their figures hold for
// both together on one machine.

func benchGateway(b *testing.B, log string) *testkit.Gateway {
	b.Helper()
	plain, err := testkit.BuildPlain(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	return plain.StartGateway(b, "--log", log)
}

// eachLog runs a benchmark on the embedded log and on Redis (which stores with
// an append-only file, synced every second, as it would in production).
func eachLog(b *testing.B, run func(b *testing.B, g *testkit.Gateway)) {
	b.Run("embedded", func(b *testing.B) { run(b, benchGateway(b, "file:"+b.TempDir())) })
	b.Run("redis", func(b *testing.B) {
		redis := testkit.StartRedis(b, testkit.RedisConfig("appendonly yes"))
		run(b, benchGateway(b, redis.URL()))
	})
}

const payload = `{"order":17,"lines":[{"sku":"4006381333931","n":2},{"sku":"4006381333948","n":1}],"note":"at the counter"}`

// BenchmarkPublishSingle: one event a request, 32 publishers.
func BenchmarkPublishSingle(b *testing.B) {
	eachLog(b, func(b *testing.B, g *testkit.Gateway) { benchPublish(b, g, 32, 1) })
}

// BenchmarkPublishBatch: NDJSON of 100 lines a request, 4 publishers; one
// iteration is one event.
func BenchmarkPublishBatch(b *testing.B) {
	eachLog(b, func(b *testing.B, g *testkit.Gateway) { benchPublish(b, g, 4, 100) })
}

// benchPublish publishes as the load generator does: net/http's client would
// cost as much as the gateway. Each publisher waits for its answer.
func benchPublish(b *testing.B, g *testkit.Gateway, publishers, size int) {
	var left atomic.Int64
	left.Store(int64(b.N))
	failed := make(chan error, publishers)
	before := processorTime(b, g.Pid())
	b.ResetTimer()
	for p := range publishers {
		go func() { failed <- publishAll(b.Context(), g.Backend, p, size, &left) }()
	}
	for range publishers {
		if err := <-failed; err != nil {
			b.Error(err)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64((processorTime(b, g.Pid())-before).Microseconds())/float64(b.N), "gateway-µs/event")
}

// publishAll sends requests until nothing is left.
func publishAll(ctx context.Context, backend string, seed, size int, left *atomic.Int64) error {
	s, err := producer.NewBackend(backend, size > 1)
	if err != nil {
		return err
	}
	defer s.Close()
	events, outcomes := make([]producer.Event, size), make([]producer.Outcome, size)
	for n := seed; left.Add(int64(-size)) > int64(-size); n++ {
		for i := range events {
			events[i] = producer.Event{Device: "device-" + strconv.Itoa((n*size+i*7)%1000), Payload: []byte(payload)}
		}
		if err := s.Publish(ctx, events, outcomes); err != nil {
			return err
		}
		if slices.Contains(outcomes, producer.Refused) || slices.Contains(outcomes, producer.Unknown) {
			return errors.New("an event was not accepted")
		}
	}
	return nil
}

// processorTime is what a process has used so far, in user and kernel mode.
func processorTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Skip("needs /proc, as Linux has it")
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // the name may hold spaces
	fields := strings.Fields(rest)
	user, err := strconv.Atoi(fields[11])
	kernel, err2 := strconv.Atoi(fields[12])
	if err := errors.Join(err, err2); err != nil {
		b.Fatal(err)
	}
	return time.Duration(user+kernel) * 10 * time.Millisecond // USER_HZ is 100 on Linux
}

// publishers keep connections to a back end.
func publishers(b *testing.B) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 256}
	b.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func post(web *http.Client, url, contentType, body string) error {
	resp, err := web.Post(url, contentType, strings.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || strings.Contains(string(answer), `"error"`)) {
		err = fmt.Errorf("%s: %.200s", resp.Status, answer)
	}
	return err
}

// BenchmarkLatency: publish to receipt, 200 devices, 1,000 events a second, one
// event a request. One iteration is one event.
func BenchmarkLatency(b *testing.B) {
	const devices, rate = 200, 1000
	eachLog(b, func(b *testing.B, g *testkit.Gateway) {
		var mu sync.Mutex
		var took []time.Duration
		began := time.Now()
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		var ready sync.WaitGroup
		ready.Add(devices)
		for i := range devices {
			wg.Go(func() {
				var once sync.Once
				c := &client.Client{URL: g.Device, Device: fmt.Sprint("device-", i)}
				_ = c.Run(ctx, client.Handler{ // ends with ctx
					Event: func(_ context.Context, e client.Event) error {
						sent, err := strconv.ParseInt(e.Data, 10, 64)
						if err != nil {
							return err
						}
						mu.Lock()
						took = append(took, time.Since(began)-time.Duration(sent))
						mu.Unlock()
						return nil
					},
					Resync: func(context.Context, client.Resync) error { once.Do(ready.Done); return nil },
				})
			})
		}
		ready.Wait()
		web := publishers(b)
		tick := time.NewTicker(time.Second / rate)
		defer tick.Stop()
		var sending sync.WaitGroup
		b.ResetTimer()
		for n := range b.N {
			<-tick.C
			sending.Go(func() {
				body := fmt.Sprintf(`{"device":"device-%d","type":"t","text":"%d"}`, n%devices, time.Since(began).Nanoseconds())
				if err := post(web, g.Backend+"/v1/events", "application/json", body); err != nil {
					b.Error(err)
				}
			})
		}
		sending.Wait()
		testkit.Eventually(b, "every event has arrived", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(took) >= b.N
		})
		b.StopTimer()
		cancel()
		wg.Wait()
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	})
}

// BenchmarkIdleConnection: what one more idle connection costs the gateway's
// process (Linux: growth of its resident set). One iteration is one connection.
func BenchmarkIdleConnection(b *testing.B) {
	g := benchGateway(b, "file:"+b.TempDir())
	open := func(n int) []net.Conn {
		conns := make([]net.Conn, n)
		for i := range conns {
			c, err := net.Dial("tcp", strings.TrimPrefix(g.Device, "http://"))
			if err == nil {
				_, err = fmt.Fprintf(c, "GET /events?device=idle-%d HTTP/1.1\r\nHost: x\r\n\r\n", i)
			}
			if err == nil {
				_, err = c.Read(make([]byte, 1))
			}
			if err != nil {
				b.Fatal(err)
			}
			conns[i] = c
		}
		return conns
	}
	n := min(b.N, 8000) // descriptors of this process
	before := resident(b, g.Pid())
	b.ResetTimer()
	conns := open(n)
	b.StopTimer()
	b.ReportMetric(float64(resident(b, g.Pid())-before)/float64(n), "B/conn")
	for _, c := range conns {
		c.Close()
	}
}

func resident(b *testing.B, pid int) int {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Skip("needs /proc, as Linux has it")
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.Atoi(strings.Fields(value)[0])
			if err != nil {
				b.Fatal(err)
			}
			return kb << 10
		}
	}
	b.Fatal("no VmRSS")
	return 0
}
