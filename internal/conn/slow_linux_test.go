package conn

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// userTimeout is after how many milliseconds the kernel gives up the peer of
// the only connection; -1 if there is none.
func userTimeout(t *testing.T, o *office) int {
	t.Helper()
	ms := -1
	o.driver.(*Light).poller.each(func(c *light) {
		var err error
		if ms, err = unix.GetsockoptInt(c.fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT); err != nil {
			t.Error(err)
		}
	})
	return ms
}

// A peer that lags is ours to watch: with a small window and a slow reader the
// kernel sees no progress where there is some. Afterwards it is the kernel's
// again, which sees sooner than we do that a peer is gone.
func TestLightWatchesWhoLagsItself(t *testing.T) {
	limits := Ordinary{KeepAlive: 50 * time.Millisecond, WriteTimeout: 4 * time.Second}
	driver, err := NewLight(limits)
	if err != nil {
		t.Fatal(err)
	}
	o := openOffice(t, driver, false)
	await := func(ms int) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); userTimeout(t, o) != ms; runtime.Gosched() {
			if time.Now().After(deadline) {
				t.Fatalf("the kernel waits %d ms, want %d", userTimeout(t, o), ms)
			}
		}
	}
	_, r := o.open(t, "/a")
	expect(t, r, "first\nk")
	frame := strings.Repeat("0123456789abcde\n", 16<<20/16)
	b := o.box(t, "/a")
	for range 2 {
		b.send(frame)
		await(0)
		for { // keep-alives may stand before it
			c, err := r.ReadByte()
			if err != nil {
				t.Fatal(err)
			}
			if c == '0' {
				break
			}
		}
		expect(t, r, frame[1:])
		await(int(limits.WriteTimeout.Milliseconds()))
	}
	expect(t, r, "k") // the rhythm goes on
}

// theConn is the only connection of a light driver; nil if there is none.
func theConn(o *office) (c *light) {
	o.driver.(*Light).poller.each(func(one *light) { c = one })
	return c
}

// What a full socket can't take stays with the stream, or it would pile up here.
func TestLightTakesNothingForAFullSocket(t *testing.T) {
	for _, secure := range []bool{false, true} {
		driver, err := NewLight(patient)
		if err != nil {
			t.Fatal(err)
		}
		o := openOffice(t, driver, secure)
		_, r := o.open(t, "/a")
		expect(t, r, "first\n")
		b := o.box(t, "/a")
		b.send(strings.Repeat("x", 16<<20))
		c := theConn(o)
		rest := func() { // until it is blocked and nobody has it in hand
			for c.news.Load() != blocked {
				runtime.Gosched()
			}
		}
		rest()
		for range 100 {
			b.send("more")
			rest()
		}
		left := func(when string) {
			t.Helper()
			b.mu.Lock()
			defer b.mu.Unlock()
			if len(b.frames) != 100 {
				t.Errorf("TLS=%v, %s: %d of 100 frames are still the stream's", secure, when, len(b.frames))
			}
		}
		left("as long as it takes nothing")
		// Each time that it takes a little there is room, and as much still to be written.
		expect(t, r, strings.Repeat("x", 4<<20))
		rest()
		left("while it takes what was begun")
	}
}

// A stream that has ended can't be held by reading slowly.
func TestLightDoesNotWaitForEverWithTheEnd(t *testing.T) {
	driver, err := NewLight(Ordinary{KeepAlive: time.Minute, WriteTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	o := openOffice(t, driver, false)
	c, r := o.open(t, "/a")
	if err := c.tcp.SetReadBuffer(32 << 10); err != nil {
		t.Fatal(err)
	}
	expect(t, r, "first\n")
	b := o.box(t, "/a")
	frame := strings.Repeat("0123456789abcde\n", 16<<20/16)
	b.send(frame)
	expect(t, r, frame[:64<<10]) // it has begun
	b.end()
	for {
		select {
		case err := <-b.closed:
			if !errors.Is(err, ErrStalled) {
				t.Error(err)
			}
			return
		case <-time.After(25 * time.Millisecond):
			_, _ = r.Discard(64 << 10) // an error is the end
		}
	}
}

// Of a connection that has ended nothing is left: no place in the wheel or the
// table, and its listener has its place back.
func TestLightForgetsWhoHasEnded(t *testing.T) {
	driver, err := NewLight(patient)
	if err != nil {
		t.Fatal(err)
	}
	l := driver.(*Light)
	var released atomic.Int32
	for range 10 {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		request := httptest.NewRequest(http.MethodGet, "/", nil)
		s := newScripted()
		l.New(request).Serve(&given{ResponseRecorder: httptest.NewRecorder(), fd: pair[0], release: func() { released.Add(1) }}, request, []byte("first"), s)
		if err := unix.Close(pair[1]); err != nil {
			t.Fatal(err)
		}
		if err := <-s.closed; !errors.Is(err, ErrGone) {
			t.Error(err)
		}
	}
	over, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	l.Close(over) // a stream is told of its end before the last of it is gone
	if over.Err() != nil {
		t.Error("it still waits for a connection")
	}
	if n := released.Load(); n != 10 {
		t.Errorf("%d of 10 places are free again", n)
	}
	l.poller.each(func(c *light) { t.Errorf("the table still holds %d", c.fd) })
	l.wheel.mu.Lock()
	for _, c := range l.wheel.slots {
		if c != nil {
			t.Errorf("the wheel still holds %d", c.fd)
		}
	}
	l.wheel.mu.Unlock()
}

// given is the response of a request that net/http never saw.
type given struct {
	*httptest.ResponseRecorder
	fd      int
	release func()
}

func (g *given) Take() (fd int, release func()) { return g.fd, g.release }
