package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"
)

// TestGreets: a whole first message is known as such, at any length, and nothing
// else is taken for one.
func TestGreets(t *testing.T) {
	var said recorder
	_ = tls.Client(&said, &tls.Config{ServerName: "example.com"}).Handshake() // nobody answers
	whole := said.bytes
	if !greets(whole) || !greets(append(whole, "more"...)) {
		t.Fatal("a ClientHello isn't known")
	}
	for n := range whole {
		if greets(whole[:n]) {
			t.Fatalf("%d bytes of %d are taken for all", n, len(whole))
		}
	}
	split := append([]byte{22, 3, 1, 0, 50, 1, 0, 0, 200}, make([]byte, 500)...)
	for name, b := range map[string][]byte{"request": []byte(get), "alert": {21, 3, 1, 0, 2, 1, 0, 0, 0}, "in two records": split} {
		if greets(b) {
			t.Errorf("%s: is taken for a greeting", name)
		}
	}
}

// TestAFloodOfHalfHandshakesCutsNobody: devices whose first message is whole are
// never cut, in a lobby of 16 that thousands pass through, from their own address.
func TestAFloodOfHalfHandshakesCutsNobody(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("a connection may be accepted before it has said anything")
	}
	cert, roots := certificate(t)
	s := serve(t, func(o *Options) {
		o.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
		o.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "in") })
		o.Lobby.Waiting = is(16)
	})
	half := hello(true)
	half = half[:len(half)/2]
	over := make(chan struct{})
	var flood sync.WaitGroup
	flood.Go(func() {
		var held [64]net.Conn
		for i := 0; ; i++ {
			select {
			case <-over:
				for _, c := range held {
					if c != nil {
						c.Close()
					}
				}
				return
			default:
			}
			if c := held[i%64]; c != nil {
				c.Close()
			}
			if c, err := net.Dial("tcp", s.Addr().String()); err == nil {
				_, _ = io.WriteString(c, half) // it may have been cut
				held[i%64] = c
			}
		}
	})
	for i := range 100 {
		began := time.Now()
		under := &spoken{Conn: dialConn(t, s, "")}
		c := tls.Client(under, &tls.Config{RootCAs: roots, ServerName: "example.com"})
		_, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		if err != nil && under.first.Sub(began) > time.Second/2 { // half of deferAccept
			continue // it may have been accepted before it said anything, and then it may be cut
		}
		if err != nil {
			t.Fatalf("device %d is cut: %v", i, err)
		}
		if got := answered(t, bufio.NewReader(c)); got != "200 in" {
			t.Fatalf("device %d: %q", i, got)
		}
	}
	close(over)
	flood.Wait()
	await(t, s, 0, 0)
}

// spoken knows when a connection was first written to.
type spoken struct {
	net.Conn
	first time.Time
}

func (c *spoken) Write(b []byte) (int, error) {
	defer func() {
		if c.first.IsZero() {
			c.first = time.Now()
		}
	}()
	return c.Conn.Write(b)
}

// TestShutdownEndsHandshakes: those that aren't done hold nothing up.
func TestShutdownEndsHandshakes(t *testing.T) {
	cert, _ := certificate(t)
	s := serve(t, func(o *Options) {
		o.ReadHeaderTimeout, o.Handler = time.Hour, http.NotFoundHandler()
		o.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	})
	begun := hello(true)
	for range 20 {
		dialConn(t, s, begun[:100])
	}
	await(t, s, 20, 0)
	ctx, cancel := context.WithTimeout(t.Context(), hung)
	defer cancel()
	s.Shutdown(ctx)
	await(t, s, 0, 0)
	if ctx.Err() != nil {
		t.Error("it took as long as it might")
	}
}
