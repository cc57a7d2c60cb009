package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"syscall"
)

// A loop is the least that a gateway does for one event, as a floor to measure
// against: one thread, one epoll set, no check of anything. A request comes in,
// is kept, is answered, and is written to its device. What comes meanwhile
// shares the next round trip to what keeps it.
type loop struct {
	epoll          int
	devices, backs int // the listeners
	keep           keeper
	peers          []*peer        // by descriptor
	byName         map[string]int // device → descriptor
	out            []byte         // scratch
}

// A keeper is where events go before anybody is answered.
type keeper interface {
	descriptor() int // becomes readable when there is something to hear
	gather(o order, device, payload []byte)
	flush() error // begins a round trip with what was gathered, unless one is under way
	hear(answer func(order, []byte), deliver func(delivery)) error
	close()
}

// A peer is a connection of a device or of a producer.
type peer struct {
	device bool
	name   string
	in     []byte
}

// An order is a request that waits until its event is kept.
type order struct {
	producer, shard int
}

// runLoop serves until ctx ends. Events are kept in the Redis at an address, or
// in a file: file:PATH.
func runLoop(ctx context.Context, devices, backend, log string) error {
	l := &loop{byName: map[string]int{}, epoll: -1, devices: -1, backs: -1}
	defer l.close()
	var err error
	if l.epoll, err = syscall.EpollCreate1(0); err != nil {
		return err
	}
	if l.devices, err = l.listen(devices); err != nil {
		return err
	}
	if l.backs, err = l.listen(backend); err != nil {
		return err
	}
	if path, file := strings.CutPrefix(log, "file:"); file {
		l.keep, err = keepInFile(path)
	} else {
		l.keep, err = keepInRedis(log)
	}
	if err != nil {
		return err
	}
	defer l.keep.close()
	if err := l.watch(l.keep.descriptor()); err != nil {
		return err
	}
	events := make([]syscall.EpollEvent, 256)
	for ctx.Err() == nil {
		n, err := syscall.EpollWait(l.epoll, events, 500)
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return err
		}
		for i := range max(n, 0) {
			if err := l.serve(int(events[i].Fd)); err != nil {
				return err
			}
		}
		if err := l.keep.flush(); err != nil {
			return err
		}
	}
	return nil
}

func (l *loop) close() {
	for fd, p := range l.peers {
		if p != nil {
			_ = syscall.Close(fd)
		}
	}
	for _, fd := range []int{l.epoll, l.devices, l.backs} {
		_ = syscall.Close(fd) // -1 is none
	}
}

func (l *loop) listen(addr string) (int, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	port, _ := strconv.Atoi(portOf(addr)) // freeAddr made it
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, err
	}
	if err := syscall.Listen(fd, 4096); err != nil {
		return 0, err
	}
	return fd, l.watch(fd)
}

// watch adds a descriptor to the set, and turns off waiting to send.
func (l *loop) watch(fd int) error {
	_ = syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1)
	return syscall.EpollCtl(l.epoll, syscall.EPOLL_CTL_ADD, fd, &syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(fd)})
}

func (l *loop) serve(fd int) error {
	switch fd {
	case l.devices, l.backs:
		l.accept(fd)
		return nil
	case l.keep.descriptor():
		return l.keep.hear(l.respond, l.write)
	}
	p := l.peers[fd]
	chunk := room(&l.out)
	n, err := syscall.Read(fd, chunk)
	if n <= 0 && !errors.Is(err, syscall.EAGAIN) {
		delete(l.byName, p.name)
		l.peers[fd] = nil
		return syscall.Close(fd)
	}
	p.in = append(p.in, chunk[:max(n, 0)]...)
	for p.in != nil && l.take(fd, p) {
	}
	return nil
}

// room is where a read goes.
func room(scratch *[]byte) []byte {
	if cap(*scratch) < 64<<10 {
		*scratch = make([]byte, 64<<10)
	}
	return (*scratch)[:64<<10]
}

func (l *loop) accept(listener int) {
	for {
		fd, _, err := syscall.Accept4(listener, syscall.SOCK_NONBLOCK)
		if err != nil {
			return
		}
		for len(l.peers) <= fd {
			l.peers = append(l.peers, nil)
		}
		l.peers[fd] = &peer{device: listener == l.devices}
		if l.watch(fd) != nil {
			_ = syscall.Close(fd)
		}
	}
}

// take handles one request, if it is there whole.
func (l *loop) take(fd int, p *peer) bool {
	head, body, whole := bytes.Cut(p.in, []byte("\r\n\r\n"))
	if !whole {
		return false
	}
	switch {
	case p.device:
		_, query, _ := bytes.Cut(head, []byte("?device="))
		name, _, _ := bytes.Cut(query, []byte(" "))
		p.name, p.in = string(name), nil
		l.byName[p.name] = fd
		_, _ = syscall.Write(fd, []byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nretry: 3000\n\n"))
		return false
	case bytes.HasPrefix(head, []byte("GET ")):
		p.in = p.in[:0]
		_, _ = syscall.Write(fd, []byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
		return false
	}
	_, length, _ := bytes.Cut(head, []byte("Content-Length: "))
	length, _, _ = bytes.Cut(length, []byte("\r\n"))
	n, err := strconv.Atoi(string(length))
	if err != nil || len(body) < n {
		return false
	}
	l.gather(fd, body[:n])
	p.in = append(p.in[:0], body[n:]...)
	return len(p.in) > 0
}

// gather has an event kept, to be answered and delivered when it is.
func (l *loop) gather(producer int, body []byte) {
	_, rest, _ := bytes.Cut(body, []byte(`"device":"`))
	device, rest, _ := bytes.Cut(rest, []byte(`"`))
	_, payload, _ := bytes.Cut(rest, []byte(`"payload":`))
	payload = bytes.TrimSuffix(bytes.TrimRight(payload, "\n"), []byte("}"))
	shard := int(crc32.ChecksumIEEE(device) % logShards)
	l.keep.gather(order{producer, shard}, device, payload)
}

func (l *loop) respond(o order, id []byte) {
	body := fmt.Appendf(nil, `{"id":"%s","shard":%d}`+"\n", id, o.shard)
	l.out = fmt.Appendf(l.out[:0], "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	_, _ = syscall.Write(o.producer, l.out) // a producer that has gone needs none
}

func (l *loop) write(d delivery) {
	fd, connected := l.byName[string(d.device)]
	if !connected {
		return
	}
	l.out = fmt.Appendf(l.out[:0], "id: %s\nevent: load\ndata: %s\n\n", d.id, d.payload)
	_, _ = syscall.Write(fd, l.out) // its ledger shows what is missing
}

// A delivery is an entry that was read.
type delivery struct {
	shard               int
	id, device, payload []byte
}
