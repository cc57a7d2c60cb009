package testkit

import (
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// A Balancer is what stands before gateways: a listener that hands each
// connection to one of them, at random, that says that it is ready.
type Balancer struct {
	tb       testing.TB
	listener net.Listener
	done     chan struct{}
	ended    sync.WaitGroup

	mu    sync.Mutex
	all   []*Gateway
	ready []*Gateway
	conns map[net.Conn]bool
}

// balancerLooks is how often a balancer asks /readyz.
const balancerLooks = 100 * time.Millisecond

// StartBalancer starts one before ready gateways; it ends with the test.
func StartBalancer(tb testing.TB, gateways ...*Gateway) *Balancer {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	b := &Balancer{tb: tb, listener: listener, done: make(chan struct{}), all: gateways, ready: gateways, conns: make(map[net.Conn]bool)}
	b.ended.Go(b.accept)
	b.ended.Go(b.look)
	tb.Cleanup(b.close)
	return b
}

// URL is where devices connect to.
func (b *Balancer) URL() string { return "http://" + b.listener.Addr().String() }

// Add puts one more gateway behind it.
func (b *Balancer) Add(g *Gateway) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = append(b.all, g)
}

// Backend is the back end's port of one of those that are ready.
func (b *Balancer) Backend() string {
	if g := b.pick(); g != nil {
		return g.Backend
	}
	return "http://127.0.0.1:1"
}

func (b *Balancer) pick() *Gateway {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.ready) == 0 {
		return nil
	}
	return b.ready[rand.IntN(len(b.ready))]
}

func (b *Balancer) look() {
	tick := time.NewTicker(balancerLooks)
	defer tick.Stop()
	for {
		select {
		case <-b.done:
			return
		case <-tick.C:
		}
		b.mu.Lock()
		all := b.all
		b.mu.Unlock()
		var ready []*Gateway
		for _, g := range all {
			if status, _ := Get(b.tb, g.Device+"/readyz"); status == 200 {
				ready = append(ready, g)
			}
		}
		b.mu.Lock()
		b.ready = ready
		b.mu.Unlock()
	}
}

func (b *Balancer) accept() {
	for {
		from, err := b.listener.Accept()
		if err != nil {
			return
		}
		b.ended.Go(func() { b.join(from) })
	}
}

// join moves bytes until one end closes.
func (b *Balancer) join(from net.Conn) {
	defer b.forget(from)
	if !b.keep(from) {
		return
	}
	g := b.pick()
	if g == nil {
		return
	}
	to, err := net.Dial("tcp", strings.TrimPrefix(g.Device, "http://"))
	if err != nil {
		return
	}
	defer b.forget(to)
	if !b.keep(to) {
		return
	}
	b.ended.Go(func() {
		_, _ = io.Copy(to, from) // whoever closes ends both
		b.forget(to)
		b.forget(from)
	})
	_, _ = io.Copy(from, to)
}

// keep notes a connection; false if the balancer has ended.
func (b *Balancer) keep(c net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conns == nil {
		return false
	}
	b.conns[c] = true
	return true
}

func (b *Balancer) forget(c net.Conn) {
	c.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.conns, c)
}

func (b *Balancer) close() {
	close(b.done)
	b.listener.Close()
	b.mu.Lock()
	for c := range b.conns {
		c.Close()
	}
	b.conns = nil
	b.mu.Unlock()
	b.ended.Wait()
}
