package fleet

import (
	"errors"

	"golang.org/x/sys/unix"
)

// behave lets a connection that has just opened begin to behave as it does.
func (l *loop) behave(c *conn) error {
	switch c.manner {
	case Asleep, Slow:
		c.tired = true
	case HalfClose:
		return unix.Shutdown(int(c.fd), unix.SHUT_WR)
	case Rubbish:
		_, err := unix.Write(int(c.fd), []byte(rubbish))
		return err
	case Resetting:
		l.plan(l.device, c)
	}
	return nil
}

// plan notes a device's next move.
func (l *loop) plan(device int, c *conn) {
	l.agenda.add(move{at: l.now.Add(restless(l.opts.Patience)).UnixNano(), device: device, life: c.life})
}

// moves lets devices do what they planned for a time that has come.
func (l *loop) moves() {
	for {
		m, ok := l.agenda.due(l.now.UnixNano())
		if !ok {
			return
		}
		switch c := l.conn(m.device); {
		case c.life != m.life:
		case c.state == closed:
			l.dial(m.device, false)
		case c.state == opened:
			_ = unix.SetsockoptLinger(int(c.fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
			l.end(m.device, c, errReset)
		}
	}
}

// awaken lets a connection that was tired take all that has come meanwhile.
func (l *loop) awaken(device int) {
	c := l.conn(device)
	if c.state != opened || !c.tired {
		return
	}
	c.tired, c.manner = false, Proper
	if err := l.read(device, c, unix.EPOLLRDHUP); err != nil {
		l.end(device, c, err)
	}
}

// tick lets the slow ones read, and gives up those that take too long.
func (l *loop) tick() {
	for _, device := range l.slow {
		if c := l.conn(device); c.state == opened && c.manner == Slow {
			l.sip(device, c)
		}
	}
	// Seldom: the events of all devices wait meanwhile.
	if l.asking == 0 || l.now.Sub(l.looked) < l.opts.Timeout/10 {
		return
	}
	l.looked = l.now
	for i := range l.conns {
		c := &l.conns[i]
		if (c.state == dialling || c.state == asked) && l.now.UnixNano()-c.begun > int64(l.opts.Timeout) {
			l.end(l.number+i*l.opts.Lanes, c, ErrTimeout)
		}
	}
}

// sip reads as much as a Slow device may in one tick.
func (l *loop) sip(device int, c *conn) {
	l.current, l.device = c, device
	n, err := unix.Read(int(c.fd), l.buf[:min(len(l.buf), max(1, l.opts.ReadRate/ticksPerSecond))])
	switch {
	case errors.Is(err, unix.EAGAIN):
		return
	case err == nil && n == 0:
		err = errEnded
	case err == nil:
		err = l.feed(c, l.buf[:n])
	}
	if err != nil {
		l.end(device, c, err)
	}
}
