package fleet

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"downlink/internal/load/wire"
)

// state is where a connection of a loop is.
type state uint8

const (
	closed state = iota
	dialling
	asked  // the request was sent
	opened // status 200
)

// A conn is a device of a loop. It is kept small: there are 18,000.
type conn struct {
	begun   int64 // ns since 1970
	unsent  []byte
	fd      int32
	life    int32 // rises with each beginning and end, so that what comes late for an old connection is told apart
	state   state
	counted bool // Connect waits for it
	manner  Manner
	tired   bool // its manner stops it from reading
	stream  wire.Stream
}

// A loop drives the devices of one lane. Only its goroutine touches it.
type loop struct {
	inbox
	opts    Options
	number  int // of the lane
	epoll   int
	settled func(n int)
	conns   []conn // device n is at n / Lanes
	scratch wire.Scratch
	buf     []byte
	request []byte
	now     time.Time
	decided int       // counted conns that were opened or have failed in this round
	asking  int       // conns that are dialling or asked
	looked  time.Time // when it was last seen how long they have been
	slow    []int     // devices that read at each tick
	agenda  agenda    // of those that misbehave

	current *conn // whose stream is being fed
	device  int   // its number
}

const (
	wakeSlot = -1
	interest = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET
)

func newLoop(o Options, number int, settled func(n int)) (*loop, error) {
	l := &loop{opts: o, number: number, settled: settled, buf: make([]byte, 64<<10)}
	l.conns = make([]conn, (o.Devices+o.Lanes-1-number)/o.Lanes)
	for i := range l.conns {
		c := &l.conns[i]
		c.manner = o.manner(number + i*o.Lanes)
		c.stream.KeepID = o.KeepID
		if c.manner == Slow {
			l.slow = append(l.slow, number+i*o.Lanes)
		}
	}
	var err error
	if l.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, err
	}
	if l.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, errors.Join(err, unix.Close(l.epoll))
	}
	err = unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, l.wake, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: wakeSlot})
	if err != nil {
		return nil, errors.Join(err, unix.Close(l.wake), unix.Close(l.epoll))
	}
	return l, nil
}

func (l *loop) conn(device int) *conn { return &l.conns[device/l.opts.Lanes] }

// dial begins a connection.
func (l *loop) dial(device int, counted bool) {
	c := l.conn(device)
	if c.state != closed {
		panic(fmt.Sprintf("device %d is connected twice", device))
	}
	l.now = time.Now()
	c.begun, c.counted, c.tired, c.state = l.now.UnixNano(), counted, false, dialling
	l.asking++
	c.life++
	c.stream.Reset(&l.scratch)
	fd, err := l.socket(device)
	if err == nil {
		c.fd = int32(fd)
		event := unix.EpollEvent{Events: interest, Fd: int32(device), Pad: c.life}
		err = unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &event)
	} else {
		c.fd = -1
	}
	if err != nil {
		l.end(device, c, err)
	}
}

// socket begins a TCP connection that doesn't block.
func (l *loop) socket(device int) (fd int, err error) {
	family := unix.AF_INET
	if l.opts.Address.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("opening a socket: %w", err)
	}
	if source := l.opts.source(device); source.IsValid() {
		// The port is chosen when the destination is known: a source has 28,000
		// ports for each destination then, and not for all of them together.
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
		err = unix.Bind(fd, sockaddr(netip.AddrPortFrom(source, 0)))
	}
	if err == nil {
		err = unix.Connect(fd, sockaddr(l.opts.Address))
	}
	if err == nil || errors.Is(err, unix.EINPROGRESS) {
		return fd, nil
	}
	_ = unix.Close(fd)
	if errors.Is(err, unix.EADDRNOTAVAIL) {
		err = fmt.Errorf("no port is free on this source address (use more of them): %w", err)
	}
	return -1, err
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is6() {
		return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
}

// ready is called for what epoll says of a connection. Edges are reported
// once, so whatever is there is taken now.
func (l *loop) ready(e *unix.EpollEvent) {
	device := int(e.Fd)
	c := l.conn(device)
	if c.state == closed || c.life != e.Pad {
		return // it ended by something else in this round
	}
	var err error
	if e.Events&unix.EPOLLOUT != 0 {
		err = l.write(device, c)
	}
	if err == nil && c.state != closed && e.Events&(unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		err = l.read(device, c, e.Events)
	}
	if err != nil {
		l.end(device, c, err)
	}
}

// write sends the request, or what is left of it.
func (l *loop) write(device int, c *conn) error {
	rest := c.unsent
	switch {
	case c.state == dialling:
		l.request = l.opts.Request(l.request[:0], device, c.stream.LastID())
		rest = l.request
		c.state = asked
	case len(rest) == 0:
		return nil
	}
	n, err := unix.Write(int(c.fd), rest)
	if err != nil && !errors.Is(err, unix.EAGAIN) {
		return err
	}
	c.unsent = nil
	if n = max(n, 0); n < len(rest) {
		c.unsent = append(c.unsent, rest[n:]...)
	}
	return nil
}

func (l *loop) read(device int, c *conn, events uint32) error {
	if c.tired {
		if events&(unix.EPOLLHUP|unix.EPOLLERR) != 0 {
			return socketError(int(c.fd))
		}
		return nil
	}
	l.current, l.device = c, device
	for {
		n, err := unix.Read(int(c.fd), l.buf)
		l.now = time.Now() // for each read: 500 of them in a round take milliseconds
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case err != nil:
			return err
		case n == 0:
			return errEnded
		}
		if err := l.feed(c, l.buf[:n]); err != nil {
			return err
		}
		if c.tired {
			return nil
		}
		// A short read has emptied the socket, except of an end.
		if n < len(l.buf) && events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) == 0 {
			return nil
		}
	}
}

func (l *loop) feed(c *conn, piece []byte) error {
	if l.opts.Raw != nil {
		l.opts.Raw(l.device, piece)
	}
	before := c.state
	err := c.stream.Feed(piece, &l.scratch, l)
	switch {
	case c.state == asked && c.stream.Status() != 0 && c.stream.Status() != 200:
		return StatusError(c.stream.Status())
	case errors.Is(err, io.EOF):
		return errEnded
	case err == nil && before != c.state:
		return l.behave(c)
	}
	return err
}

// Head is called by the stream that is being fed.
func (l *loop) Head(status int) {
	if status != 200 {
		return // feed makes it an error
	}
	c := l.current
	c.state = opened
	l.asking--
	l.opts.Observer.Opened(l.device, time.Duration(l.now.UnixNano()-c.begun))
	if c.counted {
		c.counted = false
		l.decided++
	}
}

// Event is called by the stream that is being fed.
func (l *loop) Event(e *wire.Event) { l.opts.Observer.Event(l.device, e, l.now.UnixNano()) }

// end ends a connection and reports it. err is nil by our own wish.
func (l *loop) end(device int, c *conn, err error) {
	if c.fd >= 0 {
		_ = unix.Close(int(c.fd))
	}
	was := c.state
	c.state, c.unsent = closed, nil
	c.life++
	c.stream.Reset(&l.scratch)
	if was == opened {
		l.opts.Observer.Closed(device, err)
	} else {
		l.asking--
		err = unopened(err)
		l.opts.Observer.Failed(device, err)
		if c.counted {
			c.counted = false
			l.decided++
		}
	}
	if err != nil && err != errLeft && c.manner >= Resetting { //nolint:errorlint // ours, never wrapped
		l.plan(device, c)
	}
}

func socketError(fd int) error {
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && code != 0 {
		err = unix.Errno(code)
	}
	if err == nil {
		err = errEnded
	}
	return err
}
