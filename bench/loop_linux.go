package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strconv"
	"syscall"
)

// A loop is the least that a gateway on Redis does for one event, as a floor to
// measure against: one thread, one epoll set, no check of anything. A request
// comes in, is appended in a pipeline with a read of what was appended, is
// answered, and is written to its device. What comes meanwhile shares the next
// round trip.
type loop struct {
	epoll           int
	devices, backs  int // the listeners
	redis           int
	peers           []*peer        // by descriptor
	byName          map[string]int // device → descriptor
	positions       [logShards]string
	gathered, asked []order // for the next round trip; of the one under way
	touched         []int   // shards of gathered
	request, answer []byte  // to Redis; from Redis
	out             []byte  // scratch
}

// A peer is a connection of a device or of a producer.
type peer struct {
	device bool
	name   string
	in     []byte
}

// An order is a request that waits for Redis.
type order struct {
	producer, shard int
}

// runLoop serves until ctx ends.
func runLoop(ctx context.Context, devices, backend, redis string) error {
	l := &loop{byName: map[string]int{}, epoll: -1, devices: -1, backs: -1, redis: -1}
	defer l.close()
	var err error
	if l.epoll, err = syscall.EpollCreate1(0); err != nil {
		return err
	}
	for i := range l.positions {
		l.positions[i] = "0-0"
	}
	if l.devices, err = l.listen(devices); err != nil {
		return err
	}
	if l.backs, err = l.listen(backend); err != nil {
		return err
	}
	if l.redis, err = l.connect(redis); err != nil {
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
		if err := l.flush(); err != nil {
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
	for _, fd := range []int{l.epoll, l.devices, l.backs, l.redis} {
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

func (l *loop) connect(addr string) (int, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		return 0, err
	}
	port, _ := strconv.Atoi(portOf(addr))
	if err := syscall.Connect(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, err
	}
	return fd, errors.Join(syscall.SetNonblock(fd, true), l.watch(fd))
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
	case l.redis:
		return l.hear()
	}
	p := l.peers[fd]
	chunk := l.room()
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
func (l *loop) room() []byte {
	if cap(l.out) < 64<<10 {
		l.out = make([]byte, 64<<10)
	}
	return l.out[:64<<10]
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

// gather puts an event into the next round trip.
func (l *loop) gather(producer int, body []byte) {
	_, rest, _ := bytes.Cut(body, []byte(`"device":"`))
	device, rest, _ := bytes.Cut(rest, []byte(`"`))
	_, payload, _ := bytes.Cut(rest, []byte(`"payload":`))
	payload = bytes.TrimSuffix(bytes.TrimRight(payload, "\n"), []byte("}"))
	shard := int(crc32.ChecksumIEEE(device) % logShards)
	l.request = appendWords(append(l.request, "*9\r\n"...),
		[]string{"XADD", keyPrefix + strconv.Itoa(shard), "*", "dev", string(device), "type", "load", "payload", string(payload)})
	l.gathered = append(l.gathered, order{producer, shard})
	if !slices.Contains(l.touched, shard) {
		l.touched = append(l.touched, shard)
	}
}

// flush sends what was gathered, unless a round trip is under way.
func (l *loop) flush() error {
	if len(l.asked) > 0 || len(l.gathered) == 0 {
		return nil
	}
	words := []string{"XREAD", "COUNT", "1000", "STREAMS"}
	for _, s := range l.touched {
		words = append(words, keyPrefix+strconv.Itoa(s))
	}
	for _, s := range l.touched {
		words = append(words, l.positions[s])
	}
	l.request = appendWords(fmt.Appendf(l.request, "*%d\r\n", len(words)), words)
	l.asked, l.gathered = l.gathered, l.asked[:0]
	l.touched = l.touched[:0]
	for sent := 0; sent < len(l.request); {
		n, err := syscall.Write(l.redis, l.request[sent:])
		if err != nil && !errors.Is(err, syscall.EAGAIN) {
			return err
		}
		sent += max(n, 0)
	}
	l.request = l.request[:0]
	return nil
}

// hear reads from Redis, and ends the round trip when all of it is there.
func (l *loop) hear() error {
	chunk := l.room()
	n, err := syscall.Read(l.redis, chunk)
	if n == 0 {
		return io.ErrUnexpectedEOF
	}
	if err != nil {
		if errors.Is(err, syscall.EAGAIN) {
			return nil
		}
		return err
	}
	l.answer = append(l.answer, chunk[:n]...)
	r := reply{rest: l.answer}
	ids := make([][]byte, 0, len(l.asked))
	for range l.asked {
		id, ok := r.text()
		if !ok {
			return nil
		}
		ids = append(ids, id)
	}
	deliver := make([]delivery, 0, len(l.asked))
	if !r.streams(func(d delivery) { deliver = append(deliver, d) }) {
		return nil
	}
	for i, o := range l.asked {
		l.respond(o, ids[i])
	}
	for _, d := range deliver {
		l.positions[d.shard] = string(d.id)
		l.write(d)
	}
	l.asked, l.answer = l.asked[:0], append(l.answer[:0], r.rest...)
	return nil
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

// A reply is what Redis has said, to be read from the front.
type reply struct{ rest []byte }

// header reads a line that begins with kind and a number; -1 is a null, too.
func (r *reply) header(kind byte) (n int, ok bool) {
	line, rest, ok := bytes.Cut(r.rest, []byte("\r\n"))
	if !ok || len(line) < 2 {
		return 0, false
	}
	n, err := strconv.Atoi(string(line[1:]))
	if err != nil || line[0] != kind && n >= 0 {
		panic(fmt.Sprintf("redis answered %q", line)) // this loop checks nothing
	}
	r.rest = rest
	return n, true
}

func (r *reply) text() ([]byte, bool) {
	n, ok := r.header('$')
	if !ok || len(r.rest) < n+2 {
		return nil, false
	}
	text := r.rest[:n]
	r.rest = r.rest[n+2:]
	return text, true
}

// streams reads what XREAD answers, and shows each entry.
func (r *reply) streams(show func(delivery)) bool {
	streams, ok := r.header('*')
	for i := 0; ok && i < streams; i++ {
		var key []byte
		var entries int
		_, ok = r.header('*')
		if ok {
			key, ok = r.text()
		}
		if ok {
			entries, ok = r.header('*')
		}
		for e := 0; ok && e < entries; e++ {
			var d delivery
			if d, ok = r.entry(); ok {
				d.shard = shardOf(key)
				show(d)
			}
		}
	}
	return ok
}

// entry reads an ID, and the fields in the order in which they were appended.
func (r *reply) entry() (d delivery, ok bool) {
	var words [7][]byte // ID, dev, …, type, …, payload, …
	if _, ok = r.header('*'); !ok {
		return d, false
	}
	for i := range words {
		if i == 1 {
			if _, ok = r.header('*'); !ok {
				return d, false
			}
		}
		if words[i], ok = r.text(); !ok {
			return d, false
		}
	}
	return delivery{id: words[0], device: words[2], payload: words[6]}, true
}
