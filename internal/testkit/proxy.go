package testkit

import (
	"bytes"
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// A Proxy is a TCP proxy on a free loopback port: the link to a server that
// can be held up or cut while the server itself is well. Safe for concurrent use.
type Proxy struct {
	tb       testing.TB
	listener net.Listener
	ended    sync.WaitGroup

	mu      sync.Mutex
	changed *sync.Cond // of what follows
	target  string
	sent    int64 // bytes that came from the server
	links   map[*link]struct{}
	all     bool              // new connections are held up too
	unsaid  []string          // who says one of them is held up
	delay   time.Duration     // before each piece of either direction
	pace    time.Duration     // of a byte
	edits   map[string]string // of what the server says
	breach  *breach
	closed  bool
}

// A breach parts what a client sends.
type breach struct {
	before, heard []byte
	nth           int
	act           func()
	link          *link // on which it is; nil until then
	open          bool  // the server has said what was waited for
}

// A link is one connection through the proxy.
type link struct {
	client, server net.Conn
	said           []byte // the client's last words
	held, cut      bool
	over           chan struct{} // closed when it is cut
}

// StartProxy starts a proxy to host:port and ends it with the test.
func StartProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{tb: tb, target: target, listener: listener, links: make(map[*link]struct{}), edits: make(map[string]string)}
	p.changed = sync.NewCond(&p.mu)
	p.ended.Go(p.accept)
	tb.Cleanup(p.close)
	return p
}

// Addr is the host and port to connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Stall holds up every byte of every connection, of new ones too; the
// connections stay.
func (p *Proxy) Stall() {
	p.change(func() {
		p.all = true
		for l := range p.links {
			l.held = true
		}
	})
}

// StallThose holds up only the connections on which the client's last words
// contain a word, and says how many.
func (p *Proxy) StallThose(word string) (held int) {
	p.change(func() {
		for l := range p.links {
			if bytes.Contains(l.said, []byte(word)) {
				l.held = true
				held++
			}
		}
	})
	return held
}

// StallSaying holds up each connection, new ones too, once its client says one of
// these words, and before the server hears it.
func (p *Proxy) StallSaying(words ...string) {
	p.change(func() { p.unsaid = words })
}

// Resume lets everything flow that was held up.
func (p *Proxy) Resume() {
	p.change(func() {
		p.all, p.unsaid = false, nil
		for l := range p.links {
			l.held = false
		}
	})
}

// Slow delays whatever comes from either side from now on, and lets no more
// than so many bytes a second pass in each direction of a connection; 0 means
// no limit.
func (p *Proxy) Slow(delay time.Duration, bytesPerSecond int) {
	p.change(func() {
		p.delay, p.pace = delay, 0
		if bytesPerSecond > 0 {
			p.pace = time.Second / time.Duration(bytesPerSecond)
		}
	})
}

// Rewrite changes what the server says from now on, to something of the same
// length.
func (p *Proxy) Rewrite(from, to string) {
	if len(from) != len(to) {
		p.tb.Fatalf("%q and %q differ in length", from, to)
	}
	p.change(func() { p.edits[from] = to })
}

// Part parts what a client sends in one piece before the nth place of a word,
// once: only what stands before it passes. When the server has said something to
// that, act runs, and the rest passes.
func (p *Proxy) Part(before string, nth int, heard string, act func()) {
	p.change(func() { p.breach = &breach{before: []byte(before), nth: nth, heard: []byte(heard), act: act} })
}

// Reset is Cut by a segment that throws away what is still under way, as a box
// in between sends it that has forgotten the connection.
func (p *Proxy) Reset() {
	p.change(func() {
		for l := range p.links {
			for _, c := range []net.Conn{l.client, l.server} {
				_ = c.(*net.TCPConn).SetLinger(0) // fails for one that is closed
			}
			p.cutLocked(l)
		}
	})
}

// Cut closes every connection. New ones are accepted.
func (p *Proxy) Cut() {
	p.change(func() {
		for l := range p.links {
			p.cutLocked(l)
		}
	})
}

// Retarget leads to another server from now on, and cuts every connection.
func (p *Proxy) Retarget(target string) {
	p.change(func() { p.target = target })
	p.Cut()
}

// Sent is how many bytes have come from the server.
func (p *Proxy) Sent() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent
}

func (p *Proxy) change(act func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	act()
	p.changed.Broadcast()
}

func (p *Proxy) cutLocked(l *link) {
	if !l.cut {
		close(l.over)
	}
	l.cut = true
	l.client.Close()
	l.server.Close()
	delete(p.links, l)
}

func (p *Proxy) close() {
	p.listener.Close()
	p.change(func() {
		p.closed = true
		for l := range p.links {
			p.cutLocked(l)
		}
	})
	p.ended.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		target := p.target
		p.mu.Unlock()
		server, err := net.Dial("tcp", target)
		if err != nil {
			client.Close() // as the server itself would refuse
			continue
		}
		l := &link{client: client, server: server, over: make(chan struct{})}
		p.change(func() {
			l.held = p.all
			p.links[l] = struct{}{}
			if p.closed {
				p.cutLocked(l)
			}
		})
		p.ended.Go(func() { p.pump(l, client, server, true) })
		p.ended.Go(func() { p.pump(l, server, client, false) })
	}
}

// pump copies one direction until either side closes.
func (p *Proxy) pump(l *link, from, to net.Conn, fromClient bool) {
	defer p.change(func() { p.cutLocked(l) })
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil || !p.linger(l, n) || !p.pass(l, buf[:n], fromClient) {
			return
		}
		first := 0
		if fromClient {
			first = p.parts(l, buf[:n])
		}
		if first > 0 {
			if _, err := to.Write(buf[:first]); err != nil || !p.breached() {
				return
			}
		}
		if _, err := to.Write(buf[first:n]); err != nil {
			return
		}
	}
}

// parts is how much of what a client says passes first; 0: nothing parts it.
func (p *Proxy) parts(l *link, data []byte) (first int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.breach == nil || p.breach.link != nil {
		return 0
	}
	for range p.breach.nth {
		next := bytes.Index(data[first:], p.breach.before)
		if next < 0 {
			return 0
		}
		first += next + len(p.breach.before)
	}
	p.breach.link = l
	return first - len(p.breach.before)
}

// breached waits for the server's word and acts; false once the link is cut.
func (p *Proxy) breached() bool {
	p.mu.Lock()
	b := p.breach
	for !b.open && !b.link.cut {
		p.changed.Wait()
	}
	ok := b.open
	p.mu.Unlock()
	if ok {
		b.act()
	}
	return ok
}

// linger takes the time that n bytes take; false once the link is cut.
func (p *Proxy) linger(l *link, n int) bool {
	p.mu.Lock()
	takes := p.delay + time.Duration(n)*p.pace
	p.mu.Unlock()
	if takes == 0 {
		return true
	}
	select {
	case <-time.After(takes):
		return true
	case <-l.over:
		return false
	}
}

// pass waits while the link is held up; false once it is cut.
func (p *Proxy) pass(l *link, data []byte, fromClient bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if fromClient {
		l.said = append(l.said[:0], data...)
		l.held = l.held || slices.ContainsFunc(p.unsaid, func(word string) bool { return bytes.Contains(data, []byte(word)) })
	} else {
		p.sent += int64(len(data))
		if b := p.breach; b != nil && b.link == l && bytes.Contains(data, b.heard) {
			b.open = true
			p.changed.Broadcast()
		}
		for from, to := range p.edits {
			copy(data, bytes.ReplaceAll(data, []byte(from), []byte(to)))
		}
	}
	for l.held && !l.cut {
		p.changed.Wait()
	}
	return !l.cut
}
