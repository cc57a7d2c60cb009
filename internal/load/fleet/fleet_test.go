package fleet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"downlink/internal/load/wire"
)

// waiting bounds a wait; no speed is judged by it.
const waiting = time.Minute

// both runs a test with each driver.
func both(t *testing.T, test func(t *testing.T, portable bool)) {
	t.Run("native", func(t *testing.T) { test(t, false) })
	t.Run("portable", func(t *testing.T) { test(t, true) })
}

// A server accepts connections and lets each be handled.
type server struct {
	address netip.AddrPort
	hanging sync.WaitGroup
}

// serve runs handle for each connection, after its request was read.
func serve(t *testing.T, handle func(c net.Conn, r *http.Request)) *server {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{address: netip.MustParseAddrPort(ln.Addr().String())}
	s.hanging.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s.hanging.Go(func() {
				defer c.Close()
				r, err := http.ReadRequest(bufio.NewReader(c))
				if err == nil {
					handle(c, r)
				}
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		s.hanging.Wait()
	})
	return s
}

// An observer keeps what it was told.
type observer struct {
	mu     sync.Mutex
	opened map[int]int
	failed map[int]error
	closed map[int]error
	ends   map[int]int
	events map[int][]wire.Mark
}

func newObserver() *observer {
	return &observer{opened: map[int]int{}, failed: map[int]error{}, closed: map[int]error{}, ends: map[int]int{}, events: map[int][]wire.Mark{}}
}

func (o *observer) Opened(device int, took time.Duration) { o.note(func() { o.opened[device]++ }) }
func (o *observer) Failed(device int, err error)          { o.note(func() { o.failed[device] = err }) }
func (o *observer) Event(device int, e *wire.Event, _ int64) {
	o.note(func() { o.events[device] = append(o.events[device], e.Mark) })
}

func (o *observer) Closed(device int, err error) {
	o.note(func() { o.closed[device] = err; o.ends[device]++ })
}

func (o *observer) note(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f()
}

func (o *observer) await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(waiting)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		done := false
		o.note(func() { done = ok() })
		if done {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited in vain: %s; %+v", what, o)
		}
	}
}

func start(t *testing.T, s *server, portable bool, change func(*Options)) (*Fleet, *observer) {
	t.Helper()
	seen := newObserver()
	o := Options{
		Address: s.address, Devices: 20, Lanes: 2, Connecting: 5, Timeout: waiting, KeepID: true, Portable: portable,
		Request: func(b []byte, device int, id []byte) []byte {
			return fmt.Appendf(b, "GET /%d HTTP/1.1\r\nHost: h\r\nLast-Event-ID: %s\r\n\r\n", device, id)
		},
		Observer: seen,
	}
	if change != nil {
		change(&o)
	}
	f, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f, seen
}

func connect(t *testing.T, f *Fleet, first, end int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waiting)
	defer cancel()
	if err := f.Connect(ctx, first, end); err != nil {
		t.Fatal(err)
	}
}

const ok = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"

// hang waits until the client has gone.
func hang(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

func TestStreamsAndResume(t *testing.T) {
	both(t, func(t *testing.T, portable bool) {
		s := serve(t, func(c net.Conn, r *http.Request) {
			lane := strings.TrimPrefix(r.URL.Path, "/")
			fmt.Fprintf(c, ok+"id: after-%s\ndata: dl1:%s:0:1:0;\n\n", r.Header.Get("Last-Event-ID"), lane)
			hang(c)
		})
		f, seen := start(t, s, portable, func(o *Options) {
			o.Sources = []netip.Addr{netip.MustParseAddr("127.0.0.1")}
			o.Rate = 2000
		})
		for range 2 {
			connect(t, f, 0, 20)
			seen.await(t, "an event for each", func() bool { return len(seen.events) == 20 })
			for device := range 20 {
				f.Disconnect(device)
				f.Disconnect(device) // the second finds nothing
			}
			seen.await(t, "all are closed", func() bool { return len(seen.closed) == 20 })
			seen.note(func() {
				for device, err := range seen.closed {
					if err != nil || seen.opened[device] != seen.ends[device] || seen.events[device][0].Lane != int32(device) {
						t.Errorf("device %d: %v, opened %d times, ended %d times, %v", device, err, seen.opened[device], seen.ends[device], seen.events[device])
					}
				}
				clear(seen.closed)
				clear(seen.events)
			})
		}
		if len(seen.failed) > 0 {
			t.Error(seen.failed)
		}
	})
}

// TestPosition: what a device asks for when it comes back.
func TestPosition(t *testing.T) {
	both(t, func(t *testing.T, portable bool) {
		asked := make(chan string, 2)
		s := serve(t, func(c net.Conn, r *http.Request) {
			asked <- r.Header.Get("Last-Event-ID")
			fmt.Fprint(c, ok+"id: 7-3\ndata: x\n\nid: 8-0\ndata: cut")
		})
		f, seen := start(t, s, portable, nil)
		for _, want := range []string{"", "7-3"} {
			connect(t, f, 3, 4)
			if got := <-asked; got != want {
				t.Errorf("asked with %q, want %q", got, want)
			}
			seen.await(t, "the server's end", func() bool { return errors.Is(seen.closed[3], errEnded) })
			seen.note(func() { clear(seen.closed) })
		}
	})
}

func TestFailures(t *testing.T) {
	both(t, func(t *testing.T, portable bool) {
		s := serve(t, func(c net.Conn, r *http.Request) {
			switch r.URL.Path {
			case "/0":
				fmt.Fprint(c, "HTTP/1.1 503 No\r\nContent-Length: 3\r\n\r\nno\n")
			case "/1":
				fmt.Fprint(c, "what?\r\n")
			case "/2": // ends without an answer
			case "/3":
				hang(c) // never answers
			}
		})
		f, seen := start(t, s, portable, nil)
		connect(t, f, 0, 3)
		hasty, late := start(t, s, portable, func(o *Options) { o.Timeout = 300 * time.Millisecond })
		connect(t, hasty, 3, 4)
		if len(seen.failed) != 3 || len(late.failed) != 1 || len(seen.opened)+len(late.opened) != 0 {
			t.Fatalf("%v %v; %v %v", seen.failed, seen.opened, late.failed, late.opened)
		}
		if status := StatusError(0); !errors.As(seen.failed[0], &status) || status != 503 {
			t.Errorf("503: %v", seen.failed[0])
		}
		if !errors.Is(seen.failed[1], wire.ErrMalformed) {
			t.Errorf("rubbish: %v", seen.failed[1])
		}
		if !errors.Is(seen.failed[2], errUnanswered) {
			t.Errorf("no answer: %v", seen.failed[2])
		}
		if !errors.Is(late.failed[3], ErrTimeout) {
			t.Errorf("silence: %v", late.failed[3])
		}
	})
}

func TestNobodyListens(t *testing.T) {
	both(t, func(t *testing.T, portable bool) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := &server{address: netip.MustParseAddrPort(ln.Addr().String())}
		ln.Close()
		f, seen := start(t, s, portable, nil)
		connect(t, f, 0, 20)
		if len(seen.failed) != 20 || !errors.Is(seen.failed[7], syscall.ECONNREFUSED) {
			t.Errorf("%v", seen.failed)
		}
	})
}

// TestConnectingIsBounded: no more connections are opening than allowed.
func TestConnectingIsBounded(t *testing.T) {
	both(t, func(t *testing.T, portable bool) {
		var mu sync.Mutex
		var once sync.Once
		now, most := 0, 0
		enough, tooMany := make(chan struct{}), make(chan struct{})
		s := serve(t, func(c net.Conn, _ *http.Request) {
			mu.Lock()
			now++
			most = max(most, now)
			switch {
			case now == 5 && most == 5:
				once.Do(func() { close(enough) })
			case now == 6:
				close(tooMany)
			}
			mu.Unlock()
			<-enough
			select { // a sixth would come while five wait
			case <-tooMany:
			case <-time.After(100 * time.Millisecond):
			}
			mu.Lock()
			now--
			mu.Unlock()
			fmt.Fprint(c, ok)
			hang(c)
		})
		f, seen := start(t, s, portable, func(o *Options) { o.Devices = 12 })
		t.Cleanup(func() { once.Do(func() { close(enough) }) }) // if five never came
		connect(t, f, 0, 12)
		mu.Lock()
		defer mu.Unlock()
		if most != 5 || len(seen.opened) != 12 {
			t.Errorf("%d at once, %d opened", most, len(seen.opened))
		}
	})
}

func TestConnectEndsWithItsContext(t *testing.T) {
	both(t, func(t *testing.T, portable bool) {
		s := serve(t, func(c net.Conn, _ *http.Request) { hang(c) })
		f, _ := start(t, s, portable, nil)
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		if err := f.Connect(ctx, 0, 20); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

func TestDoSeesEachLaneAlone(t *testing.T) {
	both(t, func(t *testing.T, portable bool) {
		s := serve(t, func(c net.Conn, _ *http.Request) {
			fmt.Fprint(c, ok)
			for {
				if _, err := fmt.Fprint(c, "data: dl1:0:0:1:0;\n\n"); err != nil {
					return
				}
			}
		})
		counts := make([]int, 2) // without a lock: the race detector sees if Do doesn't hold off the Observer
		f, _ := start(t, s, portable, func(o *Options) { o.Observer = bare{counts} })
		connect(t, f, 0, 4)
		for seen := 0; seen < 1000; {
			f.Do(func(lane int) { seen += counts[lane] })
		}
	})
}

// bare counts without a lock.
type bare struct{ counts []int }

func (bare) Opened(int, time.Duration)                  {}
func (bare) Failed(int, error)                          {}
func (bare) Closed(int, error)                          {}
func (b bare) Event(device int, _ *wire.Event, _ int64) { b.counts[device%2]++ }
