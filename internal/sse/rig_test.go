package sse

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"downlink/internal/ageing"
	"downlink/internal/conn"
	"downlink/internal/door"
	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/limits"
	"downlink/internal/session"
	"downlink/internal/shard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hung is how long anything may take. It guards against hangs; no speed is judged by
// it.
const hung = 2 * time.Minute

// away is a log that never answers.
type away struct{}

func (away) Range(context.Context, int, event.ID, event.ID, int) (eventlog.Page, error) {
	return eventlog.Page{}, eventlog.ErrUnavailable
}

func (away) Judge(context.Context, int, []eventlog.Question) ([]event.Reason, eventlog.State, error) {
	return nil, eventlog.State{}, eventlog.ErrUnavailable
}

type rig struct {
	t       *testing.T
	shards  *shard.Set
	handler *Handler
	server  *httptest.Server
	roster  session.Roster
	metrics *Metrics
	refused *door.Metrics
	head    event.ID
}

// newRig serves one shard whose position is 1000-0.
func newRig(t *testing.T, change func(*Options)) *rig {
	return newRigBehind(t, door.Options{Identify: door.Open}, change)
}

// newRigBehind has another door.
func newRigBehind(t *testing.T, before door.Options, change func(*Options)) *rig {
	t.Helper()
	r := &rig{t: t, head: event.ID{Ms: 1000}, metrics: NewMetrics(prometheus.NewRegistry()), refused: door.NewMetrics(nil)}
	r.shards = shard.NewSet(away{}, shard.Options{
		Shards: 1, HotBytes: limits.Always(64 << 20), StreamsPerDevice: limits.Always(2), MaxLaps: 1, Pacer: shard.NewPacer(0), Metrics: shard.NewMetrics(nil),
	})
	r.shards.Start(0, r.head)
	before.Retry, before.Metrics = 3*time.Second, r.refused
	opts := Options{
		Door: door.New(before), Shards: r.shards,
		Driver:  conn.Ordinary{KeepAlive: time.Minute, WriteTimeout: time.Minute},
		Roster:  &r.roster,
		Ages:    book(t),
		Session: session.Options{MaxPending: limits.Always(100), MaxBytes: limits.Always(1 << 20)},
		Retry:   3 * time.Second, Metrics: r.metrics, Logger: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&opts)
	}
	if limits, ok := opts.Driver.(conn.Ordinary); ok && os.Getenv("DOWNLINK_DRIVER") != "ordinary" {
		driver, err := conn.NewLight(limits)
		if err != nil {
			t.Fatal(err)
		}
		opts.Driver = driver
	}
	r.handler = New(opts)
	r.server = httptest.NewUnstartedServer(r.handler)
	r.server.Config.Protocols = new(http.Protocols)
	r.server.Config.Protocols.SetHTTP1(true)
	r.server.Config.Protocols.SetUnencryptedHTTP2(true)
	r.server.Start()
	t.Cleanup(func() {
		r.endAll(session.Draining)
		r.server.CloseClientConnections()
		r.server.Close()
		opts.Driver.Close(t.Context())
		// A moment later: a server doesn't wait for connections that were taken from it.
		eventually(t, "no session is left, no member, and sse_active_connections is 0", func() bool {
			return r.roster.Len() == 0 && r.shards.Members() == 0 && testutil.ToFloat64(r.metrics.Active) == 0
		})
	})
	return r
}

// book is one that is kept until the test has ended.
func book(t *testing.T) *ageing.Book {
	b := ageing.New()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = b.Run(ctx) // ends with ctx, without an error
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return b
}

// endAll ends every session, and lets none in from now on.
func (r *rig) endAll(reason session.EndReason) {
	for _, s := range r.roster.Close() {
		s.End(reason)
	}
}

// publish dispatches an event and returns its ID.
func (r *rig) publish(device, payload string) event.ID {
	r.head = r.head.Next()
	r.shards.Dispatch(0, []eventlog.Entry{{ID: r.head, Event: event.Event{Target: device, Type: "t", Payload: payload}}})
	return r.head
}

// request writes a raw request and returns the connection and its reader.
func (r *rig) request(lines ...string) (net.Conn, *bufio.Reader) {
	r.t.Helper()
	c, err := net.Dial("tcp", r.server.Listener.Addr().String())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(hung)); err != nil {
		r.t.Fatal(err)
	}
	if _, err := io.WriteString(c, strings.Join(lines, "\r\n")+"\r\n\r\n"); err != nil {
		r.t.Fatal(err)
	}
	return c, bufio.NewReader(c)
}

// get is an ordinary request for a stream with further header lines.
func (r *rig) get(target string, header ...string) (net.Conn, *http.Response, *bufio.Reader) {
	r.t.Helper()
	c, br := r.request(append([]string{"GET " + target + " HTTP/1.1", "Host: x"}, header...)...)
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		c.Close() // first, or the body would be read to its end
		resp.Body.Close()
	})
	return c, resp, bufio.NewReader(resp.Body)
}

// until reads lines until one equals the wanted one.
func until(t *testing.T, r *bufio.Reader, want string) string {
	t.Helper()
	var all strings.Builder
	for {
		line, err := r.ReadString('\n')
		all.WriteString(line)
		if err != nil {
			t.Fatalf("the stream ended (%v) without %q:\n%s", err, want, all.String())
		}
		if strings.TrimSuffix(line, "\n") == want {
			return all.String()
		}
	}
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(hung)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("never: %s", what)
		case <-tick.C:
		}
	}
}

func (r *rig) ended(reason session.EndReason) func() bool {
	return func() bool { return testutil.ToFloat64(r.metrics.ends.WithLabelValues(string(reason))) > 0 }
}

func resync(id, reason string) string {
	return fmt.Sprintf("id: %s\nevent: resync\ndata: {\"reason\":%q,\"after_ms\":0}\n\n", id, reason)
}
