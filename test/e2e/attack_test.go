package e2e

import (
	"bufio"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"downlink/internal/testkit"
)

//nolint:gochecknoglobals // as every flag
var fullAttack = flag.Bool("attack.full", false, "attack with 10,000 and 20,000 connections, and a binary as users get it; needs 18,000 descriptors")

// An attack opens connections that never make a whole request.
type attack struct {
	address string
	opened  int // in all
	held    int // at a time
	// say speaks on a connection that is open: once when it has been opened, and
	// from time to time while it is held.
	say   func(c net.Conn, again bool)
	reset bool // end them with a reset
}

// attackers is how many connections are opened at a time, at the most.
const attackers = 16

// run attacks until as many as asked have been opened.
func (a attack) run(t *testing.T) {
	var all atomic.Int64
	var workers sync.WaitGroup
	for w := range attackers {
		workers.Go(func() {
			d := net.Dialer{Timeout: 10 * time.Second, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(1+w%4))}}
			held := make([]net.Conn, a.held/attackers)
			defer func() {
				for _, c := range held {
					a.end(c)
				}
			}()
			for i := 0; all.Add(1) <= int64(a.opened); i++ {
				a.end(held[i%len(held)])
				c, err := d.Dial("tcp", a.address)
				if err != nil {
					t.Errorf("connecting: %v", err) // not even that may fail
					return
				}
				held[i%len(held)] = c
				a.say(c, false)
				for range 4 {
					if other := held[rand.IntN(len(held))]; other != nil {
						a.say(other, true)
					}
				}
			}
		})
	}
	workers.Wait()
}

func (a attack) end(c net.Conn) {
	if c == nil {
		return
	}
	if a.reset {
		_ = c.(*net.TCPConn).SetLinger(0)
	}
	c.Close()
}

// dribble says most of a first message, and then a letter at a time.
func dribble(hello string) func(net.Conn, bool) {
	return func(c net.Conn, again bool) {
		said := hello[:len(hello)-4]
		if again {
			said = "x"
		}
		_, _ = io.WriteString(c, said) // it may have been cut
	}
}

// abort says a random part of a request, or of a TLS handshake, or nothing.
func abort(hello string) func(net.Conn, bool) {
	return func(c net.Conn, again bool) {
		if !again {
			_, _ = io.WriteString(c, hello[:rand.IntN(len(hello))])
		}
	}
}

// A base is what a gateway holds while nothing happens.
type base struct{ heap, goroutines, files, waiting, admitted float64 }

// baseOf waits until a gateway holds as few connections as it should, and no
// more memory than most.
func baseOf(t *testing.T, g *testkit.Gateway, streams, most float64) (b base) {
	t.Helper()
	testkit.Eventually(t, "the gauges are true, and the memory is free", func() bool {
		for range 2 { // the second takes what pools have kept
			if status, _ := testkit.Get(t, g.Backend+"/debug/pprof/heap?gc=1"); status != 200 {
				t.Fatal("no garbage collection")
			}
		}
		b = base{
			g.Metric("go_memstats_heap_alloc_bytes") + g.Metric("go_memstats_stack_inuse_bytes"), g.Metric("go_goroutines"), g.Metric("process_open_fds"),
			g.Metric(`downlink_listener_waiting{listener="device"}`), g.Metric(`downlink_listener_admitted{listener="device"}`),
		}
		return b.waiting == 0 && b.admitted == streams && g.Metric("sse_active_connections") == streams && b.heap <= most
	})
	return b
}

// A device connects again and again, like a decent one, and notes how long that
// takes until the first bytes of its stream are there.
func decent(t *testing.T, dial func() (net.Conn, error), stop <-chan struct{}) (took []time.Duration) {
	for i := 0; ; i++ {
		if i > 0 {
			select {
			case <-stop:
				return took
			case <-time.After(20 * time.Millisecond):
			}
		}
		begun := time.Now()
		c, err := dial()
		if err != nil {
			t.Errorf("a decent device can't connect: %v", err)
			return []time.Duration{time.Since(begun)}
		}
		_ = c.SetDeadline(begun.Add(20 * time.Second))
		_, _ = fmt.Fprintf(c, "GET /events?device=decent-%d HTTP/1.1\r\nHost: x\r\n\r\n", i%50)
		answer := bufio.NewReader(c)
		for line := ""; !strings.HasPrefix(line, ": downlink"); {
			if line, err = answer.ReadString('\n'); err != nil {
				t.Errorf("a decent device isn't served: %v", err)
				break
			}
		}
		took = append(took, time.Since(begun))
		c.Close()
	}
}

// TestAttack: the two storms of a bad day, on a plain port and on one with TLS. A
// decent device gets in within a second all the while, health and publishing go
// on, no stream is harmed, and nothing is left behind.
func TestAttack(t *testing.T) {
	aborted, slow, least := 1000, 2000, 5*time.Second // beside other tests, with the race detector
	by := program
	if *fullAttack {
		aborted, slow, least = 10_000, 20_000, time.Second
		var err error
		if by, err = testkit.BuildPlain(t.TempDir()); err != nil {
			t.Fatal(err)
		}
	}
	certs := t.TempDir()
	testkit.Certificates(t, certs)
	for _, port := range []struct {
		name, hello string
		args        []string
		secured     bool
	}{
		{name: "plain", hello: "GET /events?device=x HTTP/1.1\r\nHost: x\r\n\r\n"},
		{name: "TLS", secured: true, hello: clientHello(), args: []string{
			"--tls-cert-file", filepath.Join(certs, "server.pem"), "--tls-key-file", filepath.Join(certs, "server-key.pem"),
		}},
	} {
		if !*fullAttack {
			port.args = append(port.args, "--max-handshakes", "256")
		}
		g := by.StartGateway(t, append(port.args, "--log", "file:"+t.TempDir())...)
		address := g.Device[strings.LastIndex(g.Device, "/")+1:]
		dial := func() (net.Conn, error) {
			from := net.Dialer{Timeout: 10 * time.Second, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}
			c, err := from.Dial("tcp", address)
			if err != nil || !port.secured {
				return c, err
			}
			return tls.Client(c, &tls.Config{InsecureSkipVerify: true}), nil //nolint:gosec // who it is doesn't matter
		}
		for name, a := range map[string]attack{
			"aborted": {opened: aborted, held: 4 * attackers, say: abort(port.hello), reset: true},
			"slow":    {opened: slow, held: min(slow, 14_000), say: dribble(port.hello)},
		} {
			t.Run(port.name+"/"+name, func(t *testing.T) {
				a.address = address
				survive(t, g, a, dial, least)
			})
		}
	}
}

func survive(t *testing.T, g *testkit.Gateway, a attack, dial func() (net.Conn, error), least time.Duration) {
	stream, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	s := testkit.RawStream(t, stream)
	if _, err := io.WriteString(stream, "GET /events?device=witness HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	s.Until("data: {\"reason\":\"no-cursor\"")
	before := baseOf(t, g, 1, math.Inf(1))
	begun := time.Now()
	var took []time.Duration
	var others sync.WaitGroup
	over := make(chan struct{})
	others.Go(func() { took = decent(t, dial, over) })
	a.run(t)
	during := g.Metric("process_resident_memory_bytes")
	close(over)
	others.Wait()
	if status, _ := testkit.Get(t, g.Backend+"/readyz"); status != 200 {
		t.Errorf("/readyz says %d", status)
	}
	if status, answer := testkit.Post(t, g.Backend+"/v1/events", "application/json", `{"device":"witness","type":"t","payload":"still here"}`); status != 200 {
		t.Errorf("publishing: %d %s", status, answer)
	}
	s.Until(`data: "still here"`)
	slices.Sort(took)
	if longest := took[len(took)-1]; longest > least {
		t.Errorf("of %d decent connects the longest took %v, may take %v", len(took), longest, least)
	}
	after := baseOf(t, g, 1, before.heap+(8<<20))
	t.Logf("%d opened in %v, %.0f cut; %d decent connects, median %v, longest %v; resident %.0f MiB; before %.0f, after %.0f",
		a.opened, time.Since(begun).Round(time.Millisecond), g.Metric(`downlink_listener_cut_total{listener="device"}`),
		len(took), took[len(took)/2], took[len(took)-1], during/(1<<20), before, after)
	if after.files > before.files+10 || after.goroutines > before.goroutines+20 {
		t.Errorf("something is left behind: before %+v, after %+v", before, after)
	}
	stream.Close()
}

// clientHello is how a TLS handshake begins.
func clientHello() string {
	here, there := net.Pipe()
	go func() {
		_ = tls.Client(here, &tls.Config{InsecureSkipVerify: true}).Handshake() //nolint:gosec // nobody answers
	}()
	said := make([]byte, 16<<10)
	n, _ := there.Read(said)
	there.Close()
	return string(said[:n])
}
