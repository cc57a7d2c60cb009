package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"downlink/internal/testkit"
)

// A temper is how a device behaves.
type temper string

const (
	healthy temper = "healthy"
	slow    temper = "slow"   // answers after a while
	refuses temper = "refuse" // nobody listens at its address
	silent  temper = "silent" // takes connections, and says nothing
)

// temperOf: of each twenty devices two are slow, one refuses and one is silent.
func temperOf(i int) temper {
	switch i % 20 {
	case 5, 15:
		return slow
	case 3:
		return refuses
	case 13:
		return silent
	}
	return healthy
}

// pushDevices are HTTP devices with an address each, in this process. They count
// each request that they get, by its key, and do a key's work once.
type pushDevices struct {
	inventory string // JSON

	mu  sync.Mutex
	got map[string]int // by key, requests
}

// startPushDevices starts n devices; the slow ones take so long to answer.
func startPushDevices(t *testing.T, n int, late time.Duration) *pushDevices {
	t.Helper()
	d := &pushDevices{got: make(map[string]int)}
	tempers := make(map[string]temper, n) // by address
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || string(body) != payload {
			return // cut off: it didn't get it
		}
		d.mu.Lock()
		d.got[r.Header.Get("Idempotency-Key")]++
		d.mu.Unlock()
		if tempers[r.Host] == slow {
			select {
			case <-time.After(late):
			case <-r.Context().Done():
			}
		}
		w.WriteHeader(http.StatusNoContent)
	})}
	var serving sync.WaitGroup
	var entries []string
	var silents []net.Listener
	var listeners []net.Listener
	for i := range n {
		entry := func(addr string) {
			tempers[addr] = temperOf(i)
			entries = append(entries, fmt.Sprintf(`{"id":"pos-%d","url":"http://%s/"}`, i, addr))
		}
		if temperOf(i) == refuses {
			entry(testkit.LastingAddr(t)) // nobody else gets it
			continue
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		entry(l.Addr().String())
		switch temperOf(i) {
		case silent:
			silents = append(silents, l)
		default:
			listeners = append(listeners, l)
		}
	}
	for _, l := range listeners {
		serving.Go(func() { _ = server.Serve(l) })
	}
	t.Cleanup(func() {
		for _, l := range silents {
			l.Close()
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			server.Close()
		}
		serving.Wait()
	})
	d.inventory = "[" + strings.Join(entries, ",") + "]"
	return d
}

func (d *pushDevices) received(key string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.got[key]
}
