package server

import (
	"net"
	"sync"
)

// sendBuffer bounds what the kernel holds for a peer that doesn't read: Linux,
// which doubles it, would else let it grow to 4 MiB. It also lets a write time
// limit see a slow peer's progress: a blocked writer is woken when a third of
// the buffer is free, and a third of 4 MiB takes a peer that reads 40 KB/s
// longer than 30 seconds. Measured: with a limit of 1 s a steady reader was cut
// at 1 MB/s without this bound, and isn't at 100 KB/s with it.
const sendBuffer = 64 << 10

// A limited listener keeps clients from taking every descriptor of the process:
// the log needs some, and can't go on without.
type limited struct {
	net.Listener
	free       chan struct{}
	turnedAway func()
}

func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.free <- struct{}{}:
			if tcp, ok := c.(*net.TCPConn); ok {
				tcp.SetWriteBuffer(sendBuffer) //nolint:errcheck // the peer is gone then, which the next read tells
			}
			return &limitedConn{Conn: c, release: sync.OnceFunc(func() { <-l.free })}, nil
		default:
			c.Close()
			l.turnedAway()
		}
	}
}

type limitedConn struct {
	net.Conn
	release func()
}

func (c *limitedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// CloseWrite lets net/http end a refused request without cutting its answer.
func (c *limitedConn) CloseWrite() error {
	if h, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return nil
}
