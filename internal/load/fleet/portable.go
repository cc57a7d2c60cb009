package fleet

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"downlink/internal/load/wire"
)

// portable drives each connection with a goroutine.
type portable struct {
	opts    Options
	settled func(n int)
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
	lanes   []sync.Mutex // held while the Observer is called
	devices []caller
}

// A caller is a device with a goroutine while it is connected.
type caller struct {
	mu      sync.Mutex
	conn    net.Conn // nil while there is none
	leaving bool     // Disconnect was called
	awake   bool     // Wake was called
	stream  wire.Stream
}

func newPortable(o Options, settled func(n int)) *portable {
	p := &portable{opts: o, settled: settled, lanes: make([]sync.Mutex, o.Lanes), devices: make([]caller, o.Devices)}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

func (p *portable) connect(device int) {
	p.devices[device].mu.Lock()
	p.devices[device].leaving = false
	p.devices[device].mu.Unlock()
	p.running.Go(func() { p.live(device) })
}

func (p *portable) disconnect(device int) {
	c := &p.devices[device]
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaving = true
	if c.conn != nil {
		c.conn.Close()
	}
}

func (p *portable) wake(device int) {
	c := &p.devices[device]
	c.mu.Lock()
	defer c.mu.Unlock()
	c.awake = true
}

func (p *portable) do(f func(int)) {
	for lane := range p.lanes {
		p.lanes[lane].Lock()
		f(lane)
		p.lanes[lane].Unlock()
	}
}

func (p *portable) close() {
	p.cancel()
	for device := range p.devices {
		p.disconnect(device)
	}
	p.running.Wait()
}

// observe calls f as the Observer may be called, unless the fleet is closing.
func (p *portable) observe(device int, f func(Observer)) {
	lane := &p.lanes[device%len(p.lanes)]
	lane.Lock()
	defer lane.Unlock()
	if p.ctx.Err() == nil {
		f(p.opts.Observer)
	}
}

// live is a device's life from one Connect to its end.
func (p *portable) live(device int) {
	manner := p.opts.manner(device)
	for settled := p.settled; p.once(device, manner, settled) && pause(p.ctx, restless(p.opts.Patience)); {
		settled = func(int) {} // nobody counts how often it comes back by itself
	}
}

// once is one connection; it returns whether the device comes back by itself.
func (p *portable) once(device int, manner Manner, settled func(n int)) (again bool) {
	c := &p.devices[device]
	h := &hearing{p: p, c: c, device: device, begun: time.Now(), settled: settled}
	c.stream.KeepID = p.opts.KeepID
	c.stream.Reset(&h.scratch)
	err := p.dial(device, c)
	if err == nil {
		err = h.listen(manner)
	}
	c.mu.Lock()
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
	left := c.leaving
	c.mu.Unlock()
	if left {
		err = nil
	}
	if !h.opened {
		err = unopened(err)
		p.observe(device, func(o Observer) { o.Failed(device, err) })
		settled(1)
	} else {
		p.observe(device, func(o Observer) { o.Closed(device, err) })
	}
	return !left && manner >= Resetting
}

func (p *portable) dial(device int, c *caller) error {
	ctx, cancel := context.WithTimeout(p.ctx, p.opts.Timeout)
	defer cancel()
	dialer := net.Dialer{}
	if source := p.opts.source(device); source.IsValid() {
		dialer.LocalAddr = &net.TCPAddr{IP: source.AsSlice()}
	}
	conn, err := dialer.DialContext(ctx, "tcp", p.opts.Address.String())
	if err == nil && p.opts.TLS != nil {
		secured := tls.Client(conn, p.opts.TLS)
		if err = secured.HandshakeContext(ctx); err != nil {
			conn.Close()
		}
		conn = secured
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return ErrTimeout
	}
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leaving {
		conn.Close()
		return nil
	}
	c.conn = conn
	_ = conn.SetDeadline(time.Now().Add(p.opts.Timeout)) // a failed one shows in the next call
	_, err = conn.Write(p.opts.Request(nil, device, c.stream.LastID()))
	return err
}

// A hearing is one connection being read. It is the stream's Sink.
type hearing struct {
	p       *portable
	c       *caller
	device  int
	begun   time.Time
	settled func(n int)
	scratch wire.Scratch
	status  int
	opened  bool
	at      int64
}

// listen reads until the end of the connection, and says why it ended.
func (h *hearing) listen(manner Manner) error {
	buf := make([]byte, 4<<10)
	if h.p.opts.ReadRate > 0 && manner == Slow {
		buf = buf[:min(len(buf), max(1, h.p.opts.ReadRate/ticksPerSecond))]
	}
	for {
		h.c.mu.Lock()
		conn := h.c.conn
		h.c.mu.Unlock()
		if conn == nil {
			return nil // it left while it was connecting
		}
		n, err := conn.Read(buf)
		if h.at = time.Now().UnixNano(); n > 0 {
			if fed := h.feed(buf[:n]); fed != nil {
				return fed
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return errEnded
		case isTimeout(err):
			return ErrTimeout
		case err != nil:
			return err
		}
		if h.opened {
			if done, err := h.misbehave(conn, &manner); done {
				return err
			}
		}
	}
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

func (h *hearing) feed(piece []byte) error {
	var err error
	h.p.observe(h.device, func(Observer) {
		if h.p.opts.Raw != nil {
			h.p.opts.Raw(h.device, piece)
		}
		err = h.c.stream.Feed(piece, &h.scratch, h)
	})
	if h.status != 0 && h.status != 200 {
		return StatusError(h.status)
	}
	if errors.Is(err, io.EOF) {
		return errEnded
	}
	return err
}

// Head is called by the stream, within observe.
func (h *hearing) Head(status int) {
	if h.status = status; status != 200 {
		return
	}
	h.opened = true
	h.c.mu.Lock()
	_ = h.c.conn.SetDeadline(time.Time{})
	h.c.mu.Unlock()
	h.p.opts.Observer.Opened(h.device, time.Since(h.begun))
	h.settled(1)
}

// Event is called by the stream, within observe.
func (h *hearing) Event(e *wire.Event) { h.p.opts.Observer.Event(h.device, e, h.at) }

// misbehave does what a manner asks for after something was read. done is
// whether the connection has ended by it.
func (h *hearing) misbehave(conn net.Conn, manner *Manner) (done bool, err error) {
	switch *manner {
	case Asleep:
		for h.tired() && pause(h.p.ctx, time.Second/ticksPerSecond) {
		}
		*manner = Proper
	case Slow:
		if h.tired() {
			return !pause(h.p.ctx, time.Second/ticksPerSecond), nil
		}
	case Resetting:
		pause(h.p.ctx, restless(h.p.opts.Patience))
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		return true, errReset
	case HalfClose:
		*manner = Proper
		if half, ok := conn.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	case Rubbish:
		*manner = Proper
		_, err = conn.Write([]byte(rubbish))
		return err != nil, err
	}
	return false, nil
}

// tired reports whether the device was neither woken nor disconnected.
func (h *hearing) tired() bool {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	return !h.c.awake && !h.c.leaving
}
