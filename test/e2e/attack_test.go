package e2e

import (
	"bufio"
	"crypto/tls"
	"errors"
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
	say     func(c net.Conn, again bool)
	reset   bool // end them with a reset
	secured bool // say it over TLS, after a handshake
	// crowds: it takes all turns at handshakes that its addresses have, so others
	// there may be cut.
	crowds bool
}

const (
	attackers = 16 // connections that are opened at a time, at the most
	crowd     = 4  // addresses that they come from: 127.0.0.1 and on
)

// run attacks until as many as asked have been opened.
func (a attack) run(t *testing.T) {
	var all atomic.Int64
	var workers sync.WaitGroup
	for w := range attackers {
		workers.Go(func() {
			d := net.Dialer{Timeout: time.Minute, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(1+w%crowd))}}
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
				if a.secured {
					c = shaken(c)
				}
				held[i%len(held)] = c
				a.say(c, false)
				if i%8 == 7 && !*fullAttack {
					a.heed()
				}
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

// heed waits until the gateway has accepted what was opened. One that is held up by a
// busy machine would find more of it then than it has room for, with a device that
// behaves well among it. As a plain request it is answered, somehow, by any port.
func (a attack) heed() {
	d := net.Dialer{Timeout: time.Minute, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 10)}}
	c, err := d.Dial("tcp", a.address)
	if err != nil {
		return
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	_, _ = io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
	_, _ = c.Read(make([]byte, 1))
}

// shaken is TLS over c, with its handshake done unless c was cut.
func shaken(c net.Conn) net.Conn {
	over := tls.Client(c, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // who it is doesn't matter
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	_ = over.Handshake()
	return over
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

// dribble says half of a first message, and then a letter at a time: no more of them
// than the other half has, so it never becomes a whole one, which would crowd.
func dribble(hello string) func(net.Conn, bool) {
	return func(c net.Conn, again bool) {
		said := hello[:len(hello)/2]
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

// begin says the first message of a TLS handshake, and nothing to the answer.
func begin(hello string) func(net.Conn, bool) {
	return func(c net.Conn, again bool) {
		if !again {
			_, _ = io.WriteString(c, hello)
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

// A device that behaves well.
type device struct {
	name     string
	host     byte // of its address 127.0.0.host
	address  string
	security *tls.Config // nil: in the clear
}

func (d device) dial() (net.Conn, error) {
	from := net.Dialer{Timeout: time.Minute, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, d.host)}}
	c, err := from.Dial("tcp", d.address)
	if err != nil || d.security == nil {
		return c, err
	}
	return tls.Client(c, d.security), nil
}

// connect connects again and again, and notes how long that takes until the first
// bytes of the stream are there, and which failed. It doesn't try again: who is cut
// has failed.
func (d device) connect(stop <-chan struct{}) (took []time.Duration, failed error) {
	for i := 0; ; i++ {
		if i > 0 {
			select {
			case <-stop:
				return took, failed
			case <-time.After(20 * time.Millisecond):
			}
		}
		begun := time.Now()
		if err := d.once(i, begun.Add(time.Minute)); err != nil {
			failed = errors.Join(failed, fmt.Errorf("number %d, after %v: %w", i+1, time.Since(begun), err))
		}
		took = append(took, time.Since(begun))
	}
}

func (d device) once(i int, until time.Time) error {
	c, err := d.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(until)
	_, _ = fmt.Fprintf(c, "GET /events?device=%s-%d HTTP/1.1\r\nHost: x\r\n\r\n", d.name, i%50)
	answer := bufio.NewReader(c)
	for line := ""; !strings.HasPrefix(line, ": downlink"); {
		if line, err = answer.ReadString('\n'); err != nil {
			return err
		}
	}
	return nil
}

// TestAttack: the storms of a bad day, on a plain port and on one with TLS. Devices
// that behave well, one beside the attackers and one at an address of theirs, are
// never cut, and in within a second all the while (but for what crowds); health and
// publishing go on, no stream is harmed, and nothing is left behind.
func TestAttack(t *testing.T) {
	aborted, slow, late := 1000, 2000, 500
	by := program
	if *fullAttack {
		aborted, slow, late = 10_000, 20_000, 20_000
		var err error
		if by, err = testkit.BuildPlain(t.TempDir()); err != nil {
			t.Fatal(err)
		}
	}
	const get = "GET /events?device=x HTTP/1.1\r\nHost: x\r\n\r\n"
	hello := clientHello()
	certs := t.TempDir()
	testkit.Certificates(t, certs)
	many := min(slow, 14_000)
	for _, port := range []struct {
		name    string
		args    []string
		secured bool
		attacks map[string]attack
	}{
		{name: "plain", attacks: map[string]attack{
			"aborted": {opened: aborted, held: 4 * attackers, say: abort(get), reset: true},
			"slow":    {opened: slow, held: many, say: dribble(get)},
		}},
		{name: "TLS", secured: true, args: []string{
			"--tls-cert-file", filepath.Join(certs, "server.pem"), "--tls-key-file", filepath.Join(certs, "server-key.pem"),
		}, attacks: map[string]attack{
			"aborted":          {opened: aborted, held: 4 * attackers, say: abort(hello), reset: true},
			"slow handshakes":  {opened: slow, held: many, say: dribble(hello)},
			"silent handshake": {opened: late, held: many, say: begin(hello), crowds: true},
			"slow headers":     {opened: late, held: many, say: dribble(get), secured: true},
		}},
	} {
		if !*fullAttack {
			port.args = append(port.args, "--max-handshakes", "256")
		}
		g := by.StartGateway(t, append(port.args, "--log", "file:"+t.TempDir())...)
		address := g.Device[strings.LastIndex(g.Device, "/")+1:]
		beside, among := device{name: "beside", host: 9, address: address}, device{name: "among", host: 1, address: address}
		if port.secured {
			beside.security = &tls.Config{InsecureSkipVerify: true}                                                     //nolint:gosec // who it is doesn't matter
			among.security = &tls.Config{InsecureSkipVerify: true, ClientSessionCache: tls.NewLRUClientSessionCache(0)} //nolint:gosec // likewise
		}
		for name, a := range port.attacks {
			t.Run(port.name+"/"+name, func(t *testing.T) {
				a.address = address
				survive(t, g, a, beside, among)
			})
		}
	}
}

// witness is a stream that is there all the while.
func witness(t *testing.T, d device) *testkit.Stream {
	stream, err := d.dial()
	if err != nil {
		t.Fatal(err)
	}
	s := testkit.RawStream(t, stream)
	if _, err := io.WriteString(stream, "GET /events?device=witness HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	s.Until("data: {\"reason\":\"no-cursor\"")
	return s
}

func survive(t *testing.T, g *testkit.Gateway, a attack, devices ...device) {
	s := witness(t, devices[0])
	before := baseOf(t, g, 1, math.Inf(1))
	begun, cut := time.Now(), g.Metric(`downlink_listener_cut_total{listener="device"}`)
	took, failed := make([][]time.Duration, len(devices)), make([]error, len(devices))
	var others sync.WaitGroup
	over := make(chan struct{})
	for i, d := range devices {
		others.Go(func() { took[i], failed[i] = d.connect(over) })
	}
	a.run(t)
	lasted, during := time.Since(begun), g.Metric("process_resident_memory_bytes")
	close(over)
	others.Wait()
	if status, _ := testkit.Get(t, g.Backend+"/readyz"); status != 200 {
		t.Errorf("/readyz says %d", status)
	}
	if status, answer := testkit.Post(t, g.Backend+"/v1/events", "application/json", `{"device":"witness","type":"t","payload":"still here"}`); status != 200 {
		t.Errorf("publishing: %d %s", status, answer)
	}
	s.Until(`data: "still here"`)
	after := baseOf(t, g, 1, before.heap+(8<<20))
	t.Logf("%d opened in %v, %.0f cut; resident %.0f MiB; before %.0f, after %.0f", a.opened, lasted.Round(time.Millisecond),
		g.Metric(`downlink_listener_cut_total{listener="device"}`)-cut, during/(1<<20), before, after)
	for i, d := range devices {
		slices.Sort(took[i])
		n := len(took[i])
		longest := took[i][n-1]
		t.Logf("%s: %d connects, median %v, longest %v; failed: %v", d.name, n, took[i][n/2], longest, failed[i])
		if a.crowds && d.host <= crowd {
			continue
		}
		if failed[i] != nil {
			t.Errorf("the device %s isn't served: %v", d.name, failed[i])
		}
		// Beside other tests and with the race detector, time says nothing.
		if *fullAttack && longest > time.Second {
			t.Errorf("a connect of the device %s took %v, may take a second", d.name, longest)
		}
	}
	testkit.Eventually(t, fmt.Sprintf("nothing is left behind: before %+v, after %+v", before, after), func() bool {
		return g.Metric("process_open_fds") <= before.files+10 && g.Metric("go_goroutines") <= before.goroutines+20
	})
	s.Close()
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
