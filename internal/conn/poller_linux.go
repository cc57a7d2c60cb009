package conn

import (
	"errors"
	"net/netip"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A poller learns from the kernel which connections have news. A connection is
// registered edge-triggered (epoll(7)), once, and once more when its socket was
// full for the first time: a socket that has room would be reported at once,
// which would wake the poller for each new connection. What it reports is a hint, and whoever acts on it asks the socket. So a late event for a
// descriptor that has become another's does no harm. Safe for concurrent use.
type poller struct {
	epoll *os.File // in turn watched by Go's own poller, so that waiting holds no thread
	raw   syscall.RawConn
	fd    int

	mu    sync.RWMutex
	conns []*light // by descriptor
}

func newPoller() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd) //nolint:errcheck // the first error tells
		return nil, os.NewSyscallError("fcntl", err)
	}
	p := &poller{epoll: os.NewFile(uintptr(fd), "epoll"), fd: fd}
	if p.raw, err = p.epoll.SyscallConn(); err != nil {
		p.epoll.Close()
		return nil, err
	}
	return p, nil
}

const (
	interest = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLET
	incoming = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR
)

// add watches a connection.
func (p *poller) add(c *light) error {
	p.mu.Lock()
	for c.fd >= len(p.conns) {
		p.conns = append(p.conns, make([]*light, max(len(p.conns), 256))...)
	}
	p.conns[c.fd] = c
	c.watch = int32(c.fd) + 1 //nolint:gosec // descriptors are small
	p.mu.Unlock()
	return p.control(c, unix.EPOLL_CTL_ADD, interest)
}

// room watches for room in the socket, too, from now on; if there is some, that
// is reported at once.
func (p *poller) room(c *light) error {
	return p.control(c, unix.EPOLL_CTL_MOD, interest|unix.EPOLLOUT)
}

func (p *poller) control(c *light, operation int, events uint32) error {
	event := unix.EpollEvent{Events: events, Fd: int32(c.fd)} //nolint:gosec // descriptors are small
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(p.fd, operation, c.fd, &event))
}

// remove forgets a connection, if it was ever added. Closing its descriptor
// takes it out of the set.
func (p *poller) remove(c *light) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.fd < len(p.conns) && p.conns[c.fd] == c {
		p.conns[c.fd] = nil
		c.watch = 0
	}
}

// each calls f for every connection.
func (p *poller) each(f func(*light)) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, c := range p.conns {
		if c != nil {
			f(c)
		}
	}
}

// peer is the address of a connection's other end; false if it isn't watched.
// Under the lock its descriptor can't become another's.
func (p *poller) peer(c *light) (address string, secured, ok bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if c.watch == 0 {
		return "", false, false
	}
	return peerName(int(c.watch) - 1), c.secured != nil, true
}

func peerName(fd int) string {
	peer, err := unix.Getpeername(fd)
	if err != nil {
		return "" // the client is gone
	}
	switch a := peer.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)).String() //nolint:gosec // a port
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port)).String() //nolint:gosec // a port
	default:
		return ""
	}
}

// run passes events on until close.
func (p *poller) run() {
	events := make([]unix.EpollEvent, 256)
	for {
		n := 0
		err := p.raw.Read(func(fd uintptr) bool {
			var err error
			n, err = unix.EpollWait(int(fd), events, 0)
			return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
		})
		if err != nil {
			return // closed
		}
		p.report(events[:max(n, 0)])
	}
}

func (p *poller) report(events []unix.EpollEvent) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, e := range events {
		c := p.conns[e.Fd]
		if c == nil {
			continue
		}
		var what uint32
		if e.Events&incoming != 0 {
			what |= readable
		}
		if e.Events&unix.EPOLLOUT != 0 && c.isBlocked() {
			what |= writable // who isn't blocked has found room without being told
		}
		if what != 0 {
			c.notify(what)
		}
	}
}

// close ends run and frees the set.
func (p *poller) close() { p.epoll.Close() }
