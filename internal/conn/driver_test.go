package conn

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// What both drivers promise is tested over real sockets.

// hung is how long anything may take. It guards against hangs; no speed is judged by
// it.
const hung = 2 * time.Minute

// attempts is how often something is tried that a machine may be too slow for.
const attempts = 20

// A post office serves streams that tests write into.
type office struct {
	driver Driver
	server *httptest.Server
	secure bool
	made   time.Time // not after the driver

	mu    sync.Mutex
	boxes map[string]*box // by path
}

// box is one stream and its connection.
type box struct {
	*scripted
	conn Conn
}

// send adds frames and wakes the connection.
func (b *box) send(frames ...string) {
	b.set(false, frames...)
	b.conn.Wake()
}

func (b *box) end() {
	b.set(true)
	b.conn.Wake()
}

func (o *office) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := o.driver.New(r)
	b := &box{newScripted(), c}
	o.mu.Lock()
	o.boxes[r.URL.Path] = b
	o.mu.Unlock()
	if n := r.URL.Query().Get("before"); n != "" {
		b.send(n) // joined to its source before it is served
	}
	w.Header().Set("Content-Type", "text/event-stream")
	c.Serve(w, r, []byte("first\n"), b)
}

// box waits until a path was asked for.
func (o *office) box(t *testing.T, path string) *box {
	t.Helper()
	for deadline := time.Now().Add(hung); time.Now().Before(deadline); runtime.Gosched() {
		o.mu.Lock()
		b := o.boxes[path]
		o.mu.Unlock()
		if b != nil {
			return b
		}
	}
	t.Fatalf("nobody asked for %s", path)
	return nil
}

// limits of most tests: long, so that nothing ends by itself.
var patient = Ordinary{KeepAlive: time.Minute, WriteTimeout: 20 * time.Second}

// eachDriver runs a test on both drivers, and on both with TLS.
func eachDriver(t *testing.T, limits Ordinary, test func(t *testing.T, o *office)) {
	makers := map[string]func(Ordinary) (Driver, error){
		"ordinary": func(o Ordinary) (Driver, error) { return o, nil },
		"light":    NewLight,
	}
	for name, make := range makers {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s,TLS=%v", name, secure), func(t *testing.T) {
				t.Parallel()
				made := time.Now()
				driver, err := make(limits)
				if err != nil {
					t.Fatal(err)
				}
				o := openOffice(t, driver, secure)
				o.made = made
				test(t, o)
			})
		}
	}
}

func openOffice(t *testing.T, driver Driver, secure bool) *office {
	o := &office{driver: driver, boxes: map[string]*box{}, secure: secure}
	o.server = httptest.NewUnstartedServer(o)
	o.server.Listener = replaceables{o.server.Listener}
	o.server.Config.Protocols = new(http.Protocols)
	o.server.Config.Protocols.SetHTTP1(true)
	o.server.Config.Protocols.SetUnencryptedHTTP2(true)
	o.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	if secure {
		o.server.StartTLS()
	} else {
		o.server.Start()
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), hung)
		defer cancel()
		o.mu.Lock()
		for _, b := range o.boxes {
			b.end()
		}
		o.mu.Unlock()
		o.server.CloseClientConnections()
		o.server.Close()
		o.driver.Close(ctx)
		if ctx.Err() != nil {
			t.Error("a connection has not ended")
		}
	})
	return o
}

// replaceables makes connections as the gateway's listener does.
type replaceables struct{ net.Listener }

func (l replaceables) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &replaceable{c}, c.(*net.TCPConn).SetWriteBuffer(64 << 10)
}

type replaceable struct{ net.Conn }

func (r *replaceable) Replace(with net.Conn) (was net.Conn) {
	was, r.Conn = r.Conn, with
	return was
}

func (r *replaceable) SyscallConn() (syscall.RawConn, error) {
	return r.Conn.(*net.TCPConn).SyscallConn()
}

// A device's end of a connection, with or without TLS.
type device struct {
	net.Conn
	tcp *net.TCPConn
}

func (d device) closeWrite() error {
	return d.Conn.(interface{ CloseWrite() error }).CloseWrite()
}

// dial sends a request and returns the connection and a reader on it.
func (o *office) dial(t *testing.T, path, more string) (device, *bufio.Reader) {
	t.Helper()
	return o.dialWith(t, path, more, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // not what is tested here
}

// dialWith is dial with settings of TLS, which an office without it ignores.
func (o *office) dialWith(t *testing.T, path, more string, settings *tls.Config) (device, *bufio.Reader) {
	t.Helper()
	tcp, err := net.Dial("tcp", o.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tcp.Close() })
	c := device{tcp, tcp.(*net.TCPConn)}
	if o.secure {
		c.Conn = tls.Client(tcp, settings)
	}
	if err := c.SetDeadline(time.Now().Add(hung)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n%s", path, more)
	return c, bufio.NewReader(c)
}

// open makes a stream and returns its body.
func (o *office) open(t *testing.T, path string) (device, *bufio.Reader) {
	t.Helper()
	c, r := o.dial(t, path, "")
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" || resp.Header.Get("Date") == "" {
		t.Errorf("answer %s %v", resp.Status, resp.Header)
	}
	return c, bufio.NewReader(resp.Body)
}

func expect(t *testing.T, r io.Reader, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
		t.Fatalf("read %.100q (%v), want %.100q", got, err, want)
	}
}

func TestDriversWriteInOrderAndEnd(t *testing.T) {
	eachDriver(t, patient, func(t *testing.T, o *office) {
		_, r := o.open(t, "/a?before=early")
		expect(t, r, "first\nearly")
		b := o.box(t, "/a")
		var all strings.Builder
		for i := range 2000 {
			frame := fmt.Sprint(i, strings.Repeat("x", i%300), "\n")
			all.WriteString(frame)
			b.send(frame)
		}
		expect(t, r, all.String())
		b.set(true, "dropped: the end comes first")
		b.conn.Wake()
		b.conn.Wake()
		rest, err := io.ReadAll(r)
		if err != nil || string(rest) != "bye" {
			t.Errorf("the end is %q, %v", rest, err)
		}
		if err := <-b.closed; err != nil {
			t.Error(err)
		}
		b.conn.Wake() // also after the end
	})
}

func TestDriversKeepQuietConnectionsAlive(t *testing.T) {
	limits := Ordinary{KeepAlive: 30 * time.Millisecond, WriteTimeout: 10 * time.Second}
	eachDriver(t, limits, func(t *testing.T, o *office) {
		_, r := o.open(t, "/a")
		expect(t, r, "first\nkkkk")
		// The driver's clock may have stood still until now, but since it was made.
		if passed := time.Since(o.made); passed < 60*time.Millisecond {
			t.Errorf("four keep-alives within %s", passed)
		}
	})
}

// A keep-alive is only for who got nothing else.
func TestDriversPutKeepAlivesOff(t *testing.T) {
	limits := Ordinary{KeepAlive: time.Second, WriteTimeout: 10 * time.Second}
	eachDriver(t, limits, func(t *testing.T, o *office) {
		_, r := o.open(t, "/a")
		expect(t, r, "first\n")
		b := o.box(t, "/a")
		for left := attempts; ; left-- {
			alive := 0
			for range 15 {
				b.send("event\n")
				line, err := r.ReadString('\n')
				if err != nil || strings.TrimLeft(line, "k") != "event\n" {
					t.Fatalf("%q, %v", line, err)
				}
				alive += strings.Count(line, "k")
				<-time.After(100 * time.Millisecond)
			}
			if alive == 0 {
				break
			}
			if left == 1 { // each time there was a second without an event, on so slow a machine?
				t.Fatalf("%d keep-alives beside an event every 100 ms", alive)
			}
		}
		expect(t, r, "k")
	})
}

func TestDriversNoticeHangUps(t *testing.T) {
	hangUps := map[string]func(c device) error{
		"close":      func(c device) error { return c.Close() },
		"half-close": device.closeWrite,
		"cut":        func(c device) error { return c.tcp.Close() },
		"reset": func(c device) error {
			return errors.Join(c.tcp.SetLinger(0), c.tcp.Close())
		},
	}
	eachDriver(t, patient, func(t *testing.T, o *office) {
		for name, hangUp := range hangUps {
			c, r := o.open(t, "/"+name)
			expect(t, r, "first\n")
			if err := hangUp(c); err != nil {
				t.Fatal(err)
			}
			if err := <-o.box(t, "/"+name).closed; !errors.Is(err, ErrGone) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestDriversBearAStrayCRLF(t *testing.T) {
	eachDriver(t, patient, func(t *testing.T, o *office) {
		_, raw := o.dial(t, "/with-the-request", "\r\n")
		resp, err := http.ReadResponse(raw, nil)
		if err != nil {
			t.Fatal(err)
		}
		expect(t, resp.Body, "first\n")
		c, r := o.open(t, "/later")
		expect(t, r, "first\n")
		if _, err := io.WriteString(c, "\r\n"); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/with-the-request", "/later"} {
			o.box(t, path).send("event")
		}
		expect(t, resp.Body, "event")
		expect(t, r, "event")
	})
}

// TestLightEndsWhoTalks: the ordinary driver can't see what comes after the
// request, because net/http reads it.
func TestLightEndsWhoTalks(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the light driver needs epoll")
	}
	eachDriver(t, patient, func(t *testing.T, o *office) {
		if _, ordinary := o.driver.(Ordinary); ordinary {
			return
		}
		for path, rubbish := range map[string]string{"/a": "GET / HTTP/1.1\r\n", "/b": "\r\n\r\n\r\n", "/c": "\x00"} {
			o.dial(t, path, rubbish)
			c, r := o.open(t, path+"/later")
			expect(t, r, "first\n")
			if _, err := io.WriteString(c, rubbish); err != nil {
				t.Fatal(err)
			}
			for _, p := range []string{path, path + "/later"} {
				if err := <-o.box(t, p).closed; !errors.Is(err, ErrUnexpected) {
					t.Errorf("%q at %s: %v", rubbish, p, err)
				}
			}
		}
	})
}

func TestDriversCutWhoTakesNothing(t *testing.T) {
	limits := Ordinary{KeepAlive: time.Minute, WriteTimeout: time.Second}
	eachDriver(t, limits, func(t *testing.T, o *office) {
		_, r := o.open(t, "/a")
		expect(t, r, "first\n")
		b := o.box(t, "/a")
		b.send(strings.Repeat("x", 16<<20)) // more than any socket's buffers
		if err := <-b.closed; !errors.Is(err, ErrStalled) {
			t.Error(err)
		}
	})
}

// A slow peer isn't a dead one: it takes several times the limit for its frame.
func TestDriversBearASlowReader(t *testing.T) {
	limits := Ordinary{KeepAlive: time.Minute, WriteTimeout: 500 * time.Millisecond}
	eachDriver(t, limits, func(t *testing.T, o *office) {
		for try := range attempts {
			took, pause, err := o.readSlowly(t, fmt.Sprint("/", try))
			switch {
			case err == nil && took < 3*limits.WriteTimeout:
				t.Errorf("only %s", took)
				return
			case err == nil:
				return
			case pause < limits.WriteTimeout/2:
				t.Fatalf("%v, and it never waited for longer than %v", err, pause)
			}
			t.Logf("once more: for %v this machine read nothing", pause)
		}
		t.Error("this machine never reads for as long as it takes")
	})
}

// readSlowly reads a frame in pieces, and says how long that took, and the longest
// time without one.
func (o *office) readSlowly(t *testing.T, path string) (took, pause time.Duration, err error) {
	t.Helper()
	began := time.Now()
	last := began
	next := func() { pause, last = max(pause, time.Since(last)), time.Now() }
	c, r := o.dial(t, path, "")
	defer c.tcp.Close()
	if err := c.tcp.SetReadBuffer(32 << 10); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(r, nil)
	if err == nil {
		_, err = io.ReadFull(resp.Body, make([]byte, len("first\n")))
	}
	next()
	if err != nil {
		return 0, pause, err
	}
	frame := strings.Repeat("0123456789abcde\n", 4<<20/16)
	o.box(t, path).send(frame)
	began = time.Now()
	got := make([]byte, 64<<10)
	for at := 0; at < len(frame); at += len(got) {
		_, err := io.ReadFull(resp.Body, got)
		next()
		if err != nil {
			return 0, pause, err
		}
		if string(got) != frame[at:at+len(got)] {
			t.Fatalf("other bytes than were sent at %d", at)
		}
		<-time.After(25 * time.Millisecond)
	}
	return time.Since(began), pause, nil
}

// TestDriversLoseNothing: readers of every pace get every byte in order,
// whatever the sizes of frames and the moments of wakes.
func TestDriversLoseNothing(t *testing.T) {
	eachDriver(t, patient, func(t *testing.T, o *office) {
		const readers = 24
		var wg sync.WaitGroup
		for i := range readers {
			path := fmt.Sprint("/", i)
			c, r := o.open(t, path)
			expect(t, r, "first\n")
			b := o.box(t, path)
			sum := bytes.NewBuffer(nil)
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(i), 1))
				for n := range 300 {
					size := rnd.IntN(200)
					if n%100 == i {
						size = 300 << 10
					}
					frame := fmt.Sprintf("%d.%d:%s\n", i, n, strings.Repeat(string(rune('a'+n%26)), size))
					sum.WriteString(frame)
					b.send(frame)
					if rnd.IntN(4) == 0 {
						runtime.Gosched()
					}
				}
				// Only now does this one begin to read: its socket was full.
				if err := c.tcp.SetReadBuffer(64 << 10 << (i % 4)); err != nil {
					t.Error(err)
				}
				got := make([]byte, sum.Len())
				if _, err := io.ReadFull(r, got); err != nil || !bytes.Equal(got, sum.Bytes()) {
					t.Errorf("reader %d: other bytes than were sent, %v", i, err)
				}
			})
		}
		wg.Wait()
	})
}

// A stream has more than a driver asks for at a time, and ends while its socket
// is full: all of it arrives, with one wake.
func TestDriversWriteAllAndThenTheEnd(t *testing.T) {
	eachDriver(t, patient, func(t *testing.T, o *office) {
		_, r := o.open(t, "/a")
		expect(t, r, "first\n")
		b := o.box(t, "/a")
		frames := make([]string, 50)
		for i := range frames {
			frames[i] = strings.Repeat(string(rune('a'+i%26)), 10<<10)
		}
		b.send(frames...)
		expect(t, r, strings.Join(frames, ""))

		large := strings.Repeat("x", 16<<20)
		b.send(large)
		expect(t, r, "x") // it was begun
		b.end()
		rest, err := io.ReadAll(r)
		if want := large[1:] + "bye"; err != nil || string(rest) != want {
			t.Errorf("%d bytes came, want %d, %v", len(rest), len(want), err)
		}
	})
}

func TestDriversServeOldAndNewHTTP(t *testing.T) {
	eachDriver(t, patient, func(t *testing.T, o *office) {
		if o.secure {
			return // TLS agrees on the version before there is a request
		}
		c, err := net.Dial("tcp", o.server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprint(c, "GET /old HTTP/1.0\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		expect(t, resp.Body, "first\n")

		protocols := new(http.Protocols)
		protocols.SetUnencryptedHTTP2(true)
		transport := &http.Transport{Protocols: protocols}
		defer transport.CloseIdleConnections()
		second, err := (&http.Client{Transport: transport}).Get(o.server.URL + "/new")
		if err != nil {
			t.Fatal(err)
		}
		defer second.Body.Close()
		expect(t, second.Body, "first\n")
		o.box(t, "/new").send("event")
		expect(t, second.Body, "event")
	})
}

// TestLightCutsWhatDoesNotEnd: whoever doesn't read its goodbye can't hold the
// gateway, and nothing is served after the close.
func TestLightCutsWhatDoesNotEnd(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the light driver needs epoll")
	}
	eachDriver(t, patient, func(t *testing.T, o *office) {
		if _, ordinary := o.driver.(Ordinary); ordinary {
			return
		}
		_, r := o.open(t, "/a")
		expect(t, r, "first\n")
		b := o.box(t, "/a")
		b.send(strings.Repeat("x", 16<<20))
		expect(t, r, "x") // it was begun, so the goodbye can only follow it
		b.end()
		over, cancel := context.WithCancel(t.Context())
		cancel()
		o.driver.Close(over)
		if err := <-b.closed; !errors.Is(err, ErrCut) {
			t.Error(err)
		}
		o.dial(t, "/late", "")
		if err := <-o.box(t, "/late").closed; !errors.Is(err, ErrCut) {
			t.Error(err)
		}
	})
}
