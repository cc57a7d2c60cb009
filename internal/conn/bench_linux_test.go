package conn

import (
	"context"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What a delivery costs, beside the floor under it: the same bytes written to
// the same kind of sockets by a bare loop. Both report the processor time of
// this process (µs/write), of which reading the other ends is a part that is
// the same in both.

const (
	benchDevices = 1000
	benchFrame   = 300
)

// fill opens connections by serve, which gets the server's end of each, and
// returns the function that waits until all have read so many bytes in total.
func fill(b *testing.B, serve func(i int, c *net.TCPConn)) (await func(bytes int64)) {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	reader := newDrain(b)
	for i := range benchDevices {
		far, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { far.Close() })
		near, err := listener.Accept()
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { near.Close() })
		reader.add(b, far.(*net.TCPConn))
		serve(i, near.(*net.TCPConn))
	}
	return reader.await
}

// drain reads what comes for many sockets, on a thread of its own.
type drain struct {
	epoll int
	mu    sync.Mutex
	more  sync.Cond
	total int64
	fds   []int
}

func newDrain(b *testing.B) *drain {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		b.Fatal(err)
	}
	d := &drain{epoll: epoll}
	d.more.L = &d.mu
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() { defer close(ended); d.run(stop) }()
	b.Cleanup(func() {
		close(stop)
		<-ended
		shut(epoll)
		for _, fd := range d.fds {
			shut(fd)
		}
	})
	return d
}

func shut(fd int) { _ = unix.Close(fd) } // nothing is done with it any more

func (d *drain) add(b *testing.B, c *net.TCPConn) {
	fd, err := duplicate(c)
	if err != nil {
		b.Fatal(err)
	}
	d.fds = append(d.fds, fd)
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}
	if err := unix.EpollCtl(d.epoll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		b.Fatal(err)
	}
}

func (d *drain) run(stop chan struct{}) {
	events := make([]unix.EpollEvent, 128)
	buf := make([]byte, 64<<10)
	for {
		select {
		case <-stop:
			return
		default:
		}
		n, _ := unix.EpollWait(d.epoll, events, 100)
		got := 0
		for _, e := range events[:max(n, 0)] {
			if m, err := unix.Read(int(e.Fd), buf); err == nil {
				got += m
			}
		}
		d.mu.Lock()
		d.total += int64(got)
		d.mu.Unlock()
		d.more.Broadcast()
	}
}

func (d *drain) await(bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.total < bytes {
		d.more.Wait()
	}
}

func processorTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// each runs a broadcast for each iteration and reports what a write of it costs.
func each(b *testing.B, before int64, broadcast func(), await func(int64)) {
	b.Helper()
	runtime.GC()
	began := processorTime(b)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		broadcast()
		await(before + int64(i+1)*benchDevices*benchFrame)
	}
	b.StopTimer()
	spent := processorTime(b) - began
	b.ReportMetric(float64(spent.Nanoseconds())/1000/float64(b.N)/benchDevices, "µs/write")
}

// BenchmarkBroadcastBare is the floor: write(2) in a loop.
func BenchmarkBroadcastBare(b *testing.B) {
	var fds []int
	await := fill(b, func(_ int, c *net.TCPConn) {
		fd, err := duplicate(c)
		if err != nil {
			b.Fatal(err)
		}
		fds = append(fds, fd)
		b.Cleanup(func() { shut(fd) })
	})
	frame := []byte(strings.Repeat("x", benchFrame))
	each(b, 0, func() {
		for _, fd := range fds {
			if n, err := writeNow(fd, frame); n != benchFrame {
				b.Fatal(n, err)
			}
		}
	}, await)
}

// handed is a ResponseWriter whose connection is there to be taken.
type handed struct {
	http.ResponseWriter
	fd int
}

func (h handed) Header() http.Header         { return http.Header{} }
func (h handed) Take() (fd int, done func()) { return h.fd, func() {} }

// loop is a stream that has one frame whenever it was told so.
type loop struct {
	frame []byte
	mu    sync.Mutex
	due   int
}

func (l *loop) Next(dst [][]byte, _ int) [][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	for ; l.due > 0; l.due-- {
		dst = append(dst, l.frame)
	}
	return dst
}

func (*loop) KeepAlive() []byte   { return nil }
func (*loop) End() ([]byte, bool) { return nil, false }
func (*loop) Closed(error)        {}

// BenchmarkBroadcastLight is the same through the driver.
func BenchmarkBroadcastLight(b *testing.B) {
	d, err := NewLight(patient)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		d.Close(over)
	})
	streams := make([]*loop, benchDevices)
	conns := make([]Conn, benchDevices)
	r := &http.Request{ProtoMajor: 1, ProtoMinor: 1}
	frame := []byte(strings.Repeat("x", benchFrame))
	head := int64(len(responseHead(nil, http.Header{}, nil)))
	await := fill(b, func(i int, c *net.TCPConn) {
		fd, err := duplicate(c)
		if err != nil {
			b.Fatal(err)
		}
		streams[i], conns[i] = &loop{frame: frame}, d.New(r)
		conns[i].Serve(handed{fd: fd}, r, nil, streams[i])
	})
	await(benchDevices * head)
	each(b, benchDevices*head, func() {
		for i, s := range streams {
			s.mu.Lock()
			s.due++
			s.mu.Unlock()
			conns[i].Wake()
		}
	}, await)
}
