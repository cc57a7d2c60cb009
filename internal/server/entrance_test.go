package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"downlink/internal/peer"
)

const get = "GET /events HTTP/1.1\r\nHost: x\r\n\r\n"

// ways are the ways on which a request for a stream reaches its handler.
var ways = map[string]struct {
	request string
	only    string // the operating system
	tls     bool
}{
	"skimmed":  {request: get, only: "linux"},
	"net/http": {request: "GET /events HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 3000) + "\r\n\r\n" + "\r\n"},
	"TLS":      {request: get, tls: true},
}

// A way is a server that admits streams, and how to get one.
type way struct {
	*Server
	open    func() *bufio.Reader
	release func() // ends the streams, which are held until then
	tls     bool
}

// eachWay runs a test on each way.
func eachWay(t *testing.T, change func(*Options), test func(*testing.T, way)) {
	for name, by := range ways {
		t.Run(name, func(t *testing.T) {
			if by.only != "" && by.only != runtime.GOOS {
				t.Skip("there is no such way here")
			}
			hold := make(chan struct{})
			release := sync.OnceFunc(func() { close(hold) })
			cert, roots := certificate(t)
			s := serve(t, func(o *Options) {
				o.Handler = admitting(hold)
				if by.tls {
					o.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}}
				} else {
					o.Stream, o.StreamPath = o.Handler, "/events"
				}
				change(o)
			})
			t.Cleanup(release)
			test(t, way{Server: s, release: release, tls: by.tls, open: func() *bufio.Reader {
				if !by.tls {
					return dial(t, s, by.request)
				}
				c := tls.Client(dialConn(t, s, ""), &tls.Config{RootCAs: roots, ServerName: "example.com"})
				_, _ = io.WriteString(c, by.request) // whoever reads sees what became of it
				return bufio.NewReader(c)
			}})
		})
	}
}

// admitting is a handler that holds what is admitted until hold is closed, and
// refuses the rest.
func admitting(hold <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			fmt.Fprint(w, "well")
			return
		}
		w.Header().Set("Connection", "close")
		if why, _ := VisitOf(r).Admit(false); why != "" {
			http.Error(w, string(why), http.StatusServiceUnavailable)
			return
		}
		select {
		case <-hold:
		case <-r.Context().Done():
		}
		fmt.Fprint(w, "held")
	})
}

// await waits until a server counts so many.
func await(t *testing.T, s *Server, waiting, streams int) {
	t.Helper()
	deadline := time.Now().Add(hung)
	for {
		w, n := s.Count()
		if w == waiting && n == streams {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d wait and there are %d streams, want %d and %d", w, n, waiting, streams)
		}
		<-time.After(time.Millisecond)
	}
}

// TestFull: one stream too many is told so, health is answered, and there is
// room again when one ends.
func TestFull(t *testing.T) {
	eachWay(t, func(o *Options) { o.Lobby.Streams = is(2) }, func(t *testing.T, s way) {
		first, second := s.open(), s.open()
		await(t, s.Server, 0, 2)
		if got := answered(t, s.open()); got != "503 max_connections\n" {
			t.Errorf("a third one: %q", got)
		}
		if !s.tls {
			if got := answered(t, dial(t, s.Server, "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")); got != "200 well" {
				t.Errorf("health: %q", got)
			}
		}
		await(t, s.Server, 0, 2)
		s.release()
		for _, r := range []*bufio.Reader{first, second} {
			if got := answered(t, r); got != "200 held" {
				t.Error(got)
			}
		}
		awaitStreams(t, s.Server, 0) // a moment after the answers
		if got := answered(t, s.open()); got != "200 held" {
			t.Errorf("later: %q", got)
		}
	})
}

// TestUnfinishedHandshakesKeepNobodyOut: some say nothing, some begin a header,
// and far more than there is room for.
func TestUnfinishedHandshakesKeepNobodyOut(t *testing.T) {
	const room, crowd = 40, 400
	eachWay(t, func(o *Options) { o.Lobby.Waiting = is(room) }, func(t *testing.T, s way) {
		streams := []func() string{s.insist(t, 1)}
		var slow []net.Conn
		for i := range crowd {
			said := ""
			if i%2 == 0 {
				said = get[:1+rand.IntN(len(get)-2)]
			}
			slow = append(slow, dialConn(t, s.Server, said))
			if i%40 == 39 {
				streams = append(streams, s.insist(t, len(streams)+1))
			}
		}
		if waiting, _ := s.Count(); waiting > room {
			t.Errorf("%d wait, where %d may", waiting, room)
		}
		for _, c := range slow {
			c.Close()
		}
		await(t, s.Server, 0, len(streams))
		s.release()
		for i, answer := range streams {
			if got := answer(); got != "200 held" {
				t.Errorf("stream %d: %q", i, got)
			}
		}
		await(t, s.Server, 0, 0)
	})
}

// insist opens one stream more, again if it is cut: this device has the address
// of the flood, and a processor that is busy. It returns the answer.
func (w way) insist(t *testing.T, streams int) (answer func() string) {
	t.Helper()
	deadline := time.After(hung)
	for {
		r, said := w.open(), make(chan error, 1)
		go func() {
			_, err := r.Peek(1)
			said <- err
		}()
		for again := false; !again; {
			select {
			case err := <-said:
				if again = err != nil; !again {
					t.Fatal("there is an answer already")
				}
			case <-deadline:
				t.Fatalf("a device isn't in after %v: stream %d", hung, streams)
			case <-time.After(time.Millisecond):
				if _, n := w.Count(); n == streams {
					return func() string {
						if err := <-said; err != nil {
							return err.Error()
						}
						return answered(t, r)
					}
				}
			}
		}
	}
}

// TestVanishedClientsHoldNothing: a client may go at each byte of its handshake,
// politely or not, and after it.
func TestVanishedClientsHoldNothing(t *testing.T) {
	eachWay(t, func(o *Options) { o.Lobby.Streams = is(1000) }, func(t *testing.T, s way) {
		s.release() // streams end at once, while their clients go
		vanish(t, s.Server, 400, hello(s.tls))
		await(t, s.Server, 0, 0)
	})
}

// hello is what a client says first, with more behind it.
func hello(secured bool) string {
	if !secured {
		return get + get
	}
	var said recorder
	_ = tls.Client(&said, &tls.Config{ServerName: "example.com"}).Handshake() // nobody answers
	return string(said.bytes) + strings.Repeat("\x17", 100)
}

// vanish opens n connections, says a random part of text, and goes.
func vanish(t *testing.T, s *Server, n int, text string) {
	t.Helper()
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for range n / 8 {
				c, err := net.Dial("tcp", s.Addr().String())
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.WriteString(c, text[:rand.IntN(len(text)+1)]) // it may have been cut
				if rand.IntN(2) == 0 {
					_ = c.(*net.TCPConn).SetLinger(0) // resets the connection
				}
				if rand.IntN(4) == 0 { // waits for an answer, for a moment
					_ = c.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
					_, _ = c.Read(make([]byte, 1))
				}
				c.Close()
			}
		})
	}
	clients.Wait()
}

func awaitStreams(t *testing.T, s *Server, n int) {
	t.Helper()
	deadline := time.Now().Add(hung)
	for _, streams := s.Count(); streams != n; _, streams = s.Count() {
		if time.Now().After(deadline) {
			t.Fatalf("there are %d streams, want %d", streams, n)
		}
		<-time.After(time.Millisecond)
	}
}

// A recorder is a connection to nobody.
type recorder struct {
	net.Conn
	bytes []byte
}

func (r *recorder) Write(b []byte) (int, error)      { r.bytes = append(r.bytes, b...); return len(b), nil }
func (r *recorder) Read([]byte) (int, error)         { return 0, io.EOF }
func (r *recorder) SetWriteDeadline(time.Time) error { return nil }
func (r *recorder) SetDeadline(time.Time) error      { return nil }
func (r *recorder) Close() error                     { return nil }

// A publisher's connection stays in between two requests, however many others
// wait; and it is let go.
func TestPublishersStay(t *testing.T) {
	admit := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if why, _ := VisitOf(r).Admit(false); why != "" {
			http.Error(w, string(why), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, "ok")
	})
	s := directServer(t, func(o *Options) {
		o.Handler, o.Brief = admit, admit
		o.Lobby.Waiting, o.Lobby.Streams = is(5), is(2)
	})
	first, second := dialConn(t, s, brief("{}")), dialConn(t, s, "POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
	publishers := []*bufio.Reader{bufio.NewReader(first), bufio.NewReader(second)}
	for _, r := range publishers {
		if got := answered(t, r); got != "200 ok" {
			t.Fatal(got)
		}
	}
	for range 50 {
		dialConn(t, s, "POST /v1/ev")
	}
	if got := answered(t, dial(t, s, brief("{}"))); got != "503 max_connections\n" {
		t.Errorf("a third publisher: %q", got)
	}
	for i, c := range []net.Conn{first, second} {
		if _, err := io.WriteString(c, brief("{}")); err != nil {
			t.Fatal(err)
		}
		if got := answered(t, publishers[i]); got != "200 ok" {
			t.Errorf("publisher %d: %q", i, got)
		}
		c.Close()
	}
	vanish(t, s, 200, brief("{}"))
	awaitStreams(t, s, 0)
}

// TestAddressesBehindAProxy: what a trusted proxy says counts on every way.
func TestAddressesBehindAProxy(t *testing.T) {
	hold := make(chan struct{})
	s := serve(t, func(o *Options) {
		o.Handler = admitting(hold)
		o.Stream, o.StreamPath = o.Handler, "/events"
		o.Lobby.StreamsPerAddress = is(1)
		o.Lobby.Proxies = loopback()
	})
	defer close(hold)
	from := func(address, more string) *bufio.Reader {
		return dial(t, s, "GET /events HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: invented, "+address+"\r\n"+more+"\r\n")
	}
	from("192.0.2.1", "")
	from("192.0.2.2", "Connection: close\r\n")
	await(t, s, 0, 2)
	for _, more := range []string{"", "Connection: close\r\n"} {
		for _, address := range []string{"192.0.2.1", "192.0.2.2"} {
			if got := answered(t, from(address, more)); got != "503 connections_per_address\n" {
				t.Errorf("%s again: %q", address, got)
			}
		}
	}
}

// TestShutdownWithAFullLobby: nobody who waits holds the end up.
func TestShutdownWithAFullLobby(t *testing.T) {
	s := hasty(t, http.NotFoundHandler())
	for range 20 {
		dialConn(t, s, "GET")
	}
	ctx, cancel := context.WithTimeout(t.Context(), hung)
	defer cancel()
	s.Shutdown(ctx)
	if waiting, _ := s.Count(); waiting != 0 && ctx.Err() != nil {
		t.Errorf("%d are left", waiting)
	}
}

func loopback() peer.Proxies { return peer.Proxies{netip.MustParsePrefix("127.0.0.0/8")} }
