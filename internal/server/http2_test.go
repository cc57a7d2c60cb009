package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A framed client speaks HTTP/2 frame by frame, as no decent client would.
type framed struct {
	*http2.Framer
	t    *testing.T
	conn net.Conn
	head *hpack.Encoder
	buf  bytes.Buffer
	next uint32
}

func frames(t *testing.T, s *Server, settings ...http2.Setting) *framed {
	t.Helper()
	var hello bytes.Buffer // in one piece: a server waits two seconds for the settings
	hello.WriteString(http2.ClientPreface)
	if err := http2.NewFramer(&hello, nil).WriteSettings(settings...); err != nil {
		t.Fatal(err)
	}
	c := dialConn(t, s, hello.String())
	f := &framed{Framer: http2.NewFramer(c, c), t: t, conn: c, next: 1}
	f.head = hpack.NewEncoder(&f.buf)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	return f
}

// get asks for a path on a new stream. It returns an error once the connection
// has ended.
func (f *framed) get(path string, more ...string) (stream uint32, err error) {
	f.buf.Reset()
	for _, h := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "x"}, {":path", path}} {
		err = errors.Join(err, f.head.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}))
	}
	for i := 0; i+1 < len(more); i += 2 {
		err = errors.Join(err, f.head.WriteField(hpack.HeaderField{Name: more[i], Value: more[i+1]}))
	}
	stream = f.next
	f.next += 2
	return stream, errors.Join(err, f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: f.buf.Bytes(), EndHeaders: true, EndStream: true}))
}

// await reads frames until ok says that one is it.
func (f *framed) await(what string, ok func(http2.Frame) bool) http2.Frame {
	f.t.Helper()
	for {
		got, err := f.ReadFrame()
		if err != nil {
			f.t.Fatalf("waiting for %s: %v", what, err)
		}
		if ok(got) {
			return got
		}
	}
}

// status waits for a stream's answer.
func (f *framed) status(stream uint32) string {
	f.t.Helper()
	got := f.await(fmt.Sprint("the answer of stream ", stream), func(got http2.Frame) bool {
		_, isHead := got.(*http2.MetaHeadersFrame)
		_, isEnd := got.(*http2.RSTStreamFrame)
		return (isHead || isEnd) && got.Header().StreamID == stream
	})
	if end, ok := got.(*http2.RSTStreamFrame); ok {
		return end.ErrCode.String()
	}
	return got.(*http2.MetaHeadersFrame).PseudoValue("status")
}

// TestStreamsOfAConnectionAreBounded: the setting says how many, and one more is
// refused; each one counts for the lobby.
func TestStreamsOfAConnectionAreBounded(t *testing.T) {
	hold := make(chan struct{})
	s := serve(t, func(o *Options) {
		o.Handler, o.MaxConcurrentStreams = flushing(hold), 10
		o.Lobby.Streams = is(8)
	})
	defer close(hold)
	f := frames(t, s)
	settings := f.await("the settings", func(got http2.Frame) bool { _, ok := got.(*http2.SettingsFrame); return ok }).(*http2.SettingsFrame)
	if n, ok := settings.Value(http2.SettingMaxConcurrentStreams); !ok || n != 10 {
		t.Errorf("the setting says %d", n)
	}
	for i := range 10 {
		stream, err := f.get("/events")
		if err != nil {
			t.Fatal(err)
		}
		want := "200"
		if i >= 8 {
			want = "503"
		}
		if got := f.status(stream); got != want {
			t.Errorf("stream %d: %s, want %s", i, got, want)
		}
	}
	await(t, s, 0, 8)
	f.conn.Close()
	await(t, s, 0, 0)
}

// flushing admits, answers at once, and holds the stream until hold is closed.
func flushing(hold <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if why, _ := VisitOf(r).Admit(false); why != "" {
			http.Error(w, string(why), http.StatusServiceUnavailable)
			return
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-hold:
		case <-r.Context().Done():
		}
	})
}

// TestMoreStreamsThanAllowed: a client that doesn't mind the setting.
func TestMoreStreamsThanAllowed(t *testing.T) {
	hold := make(chan struct{})
	s := serve(t, func(o *Options) { o.Handler, o.MaxConcurrentStreams = flushing(hold), 3 })
	defer close(hold)
	f := frames(t, s)
	for range 3 {
		stream, err := f.get("/events")
		if err != nil {
			t.Fatal(err)
		}
		if got := f.status(stream); got != "200" {
			t.Fatal(got)
		}
	}
	// The one too many is reset, until the client has confirmed the settings;
	// from then on it is a fault of the connection.
	stream, err := f.get("/events")
	if err != nil {
		t.Fatal(err)
	}
	if got := f.status(stream); got != "REFUSED_STREAM" && got != "PROTOCOL_ERROR" {
		t.Errorf("one too many: %s", got)
	}
	await(t, s, 0, 3)
}

// TestAStalledStreamStallsNoOther: one is never read, and has used its window
// up; the others of its connection get what is theirs.
func TestAStalledStreamStallsNoOther(t *testing.T) {
	const pieces = 50
	s := serve(t, func(o *Options) {
		o.WriteTimeout = 2 * hung // nothing ends by it
		o.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/stalled" {
				_, _ = w.Write(make([]byte, 10<<20)) // until the connection ends
				return
			}
			for range pieces {
				_, _ = io.WriteString(w, "piece of 16 bytes")
				_ = http.NewResponseController(w).Flush()
			}
		})
	})
	// The connection's window is wide open, as clients have it: it is theirs.
	f := frames(t, s, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 32 << 10})
	if err := f.WriteWindowUpdate(0, 1<<30); err != nil {
		t.Fatal(err)
	}
	stalled, err := f.get("/stalled")
	if err != nil {
		t.Fatal(err)
	}
	got := 0
	f.await("a full window", func(fr http2.Frame) bool {
		if d, ok := fr.(*http2.DataFrame); ok && d.StreamID == stalled {
			got += len(d.Data())
		}
		return got == 32<<10
	})
	for range 20 {
		stream, err := f.get("/events")
		if err != nil {
			t.Fatal(err)
		}
		f.await("the end of a neighbour", func(fr http2.Frame) bool {
			if fr.Header().StreamID == stalled {
				t.Errorf("the stalled stream got more: %v", fr)
			}
			d, ok := fr.(*http2.DataFrame)
			return ok && d.StreamID == stream && d.StreamEnded()
		})
	}
}

// TestRapidReset (CVE-2023-44487): a client that opens streams and resets them at
// once has no more at work than allowed, whatever it does, and others are served.
func TestRapidReset(t *testing.T) {
	var working, most, all atomic.Int32
	cut := make(chan struct{})
	s := serve(t, func(o *Options) {
		o.MaxConcurrentStreams = 20
		o.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/healthz" {
				fmt.Fprint(w, "well")
				return
			}
			all.Add(1)
			for n := working.Add(1); ; {
				seen := most.Load()
				if n <= seen || most.CompareAndSwap(seen, n) {
					break
				}
			}
			<-cut // an answer costs more than to ask for it, on any machine
			working.Add(-1)
		})
	})
	f := frames(t, s)
	done := make(chan int)
	go func() {
		sent := 0
		defer func() { done <- sent }()
		for ; sent < 20_000; sent++ {
			stream, err := f.get("/events")
			if err != nil || f.WriteRSTStream(stream, http2.ErrCodeCancel) != nil {
				return // cut
			}
		}
	}()
	go func() {
		_, err := io.Copy(io.Discard, f.conn) // until it is closed
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("the connection wasn't cut")
		}
		close(cut)
	}()
	if got := answered(t, dial(t, s, "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")); got != "200 well" {
		t.Errorf("another client: %q", got)
	}
	sent := <-done
	<-cut
	f.conn.Close()
	await(t, s, 0, 0)
	if n := most.Load(); n > 20 {
		t.Errorf("%d were at work at a time", n)
	}
	if n := all.Load(); n > 100 {
		t.Errorf("of %d requests %d reached the handler", sent, n)
	}
}

// TestHTTP2LargeHeader: 431, as by HTTP/1.1. (What is twice too large, or one
// field alone, is a fault of the connection, which ends.)
func TestHTTP2LargeHeader(t *testing.T) {
	s := serve(t, func(o *Options) { o.Handler = http.NotFoundHandler() })
	f := frames(t, s)
	var large []string
	for i := range 6 {
		large = append(large, fmt.Sprint("x-large-", i), strings.Repeat("x", 1<<10))
	}
	stream, err := f.get("/events", large...)
	if err != nil {
		t.Fatal(err)
	}
	if got := f.status(stream); got != "431" {
		t.Errorf("status %s", got)
	}
}
