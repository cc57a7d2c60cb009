package conn

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scripted is a stream that writes what a test gives it.
type scripted struct {
	mu     sync.Mutex
	frames [][]byte
	over   bool
	closed chan error
}

func newScripted() *scripted { return &scripted{closed: make(chan error, 1)} }

func (s *scripted) Next(dst [][]byte, maxBytes int) [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	for total := 0; len(s.frames) > 0 && total < maxBytes; s.frames = s.frames[1:] {
		dst = append(dst, s.frames[0])
		total += len(s.frames[0])
	}
	return dst
}

func (s *scripted) KeepAlive() []byte { return []byte("k") }

func (s *scripted) End() ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return []byte("bye"), s.over
}

func (s *scripted) Closed(err error) { s.closed <- err }

func (s *scripted) set(over bool, frames ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range frames {
		s.frames = append(s.frames, []byte(f))
	}
	s.over = over
}

// recorder is a response that notes each flush as a bar.
type recorder struct {
	httptest.ResponseRecorder
	mu   sync.Mutex
	out  bytes.Buffer
	fail error // of the next write
}

func (r *recorder) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return 0, r.fail
	}
	return r.out.Write(b)
}

func (r *recorder) FlushError() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.out.WriteByte('|')
	return r.fail
}

func (r *recorder) SetWriteDeadline(time.Time) error { return nil }

func (r *recorder) written() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.String()
}

func TestRhythmOfTheOrdinaryDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := &recorder{}, newScripted()
		c := Ordinary{KeepAlive: 20 * time.Second, WriteTimeout: time.Second}.New(nil)
		go c.Serve(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil), []byte("first"), s)
		step := func(d time.Duration, want string) {
			t.Helper()
			time.Sleep(d) //nolint:forbidigo // virtual time
			synctest.Wait()
			if got := w.written(); got != want {
				t.Errorf("written %q, want %q", got, want)
			}
		}
		step(0, "first|")
		step(20*time.Second, "first|k|")
		step(15*time.Second, "first|k|")
		s.set(false, "a", "b")
		c.Wake()
		c.Wake() // it never blocks
		step(0, "first|k|ab|")
		step(19*time.Second, "first|k|ab|") // traffic puts the keep-alive off
		step(time.Second, "first|k|ab|k|")
		s.set(true, "late")
		c.Wake()
		step(0, "first|k|ab|k|bye|")
		if err := <-s.closed; err != nil {
			t.Error(err)
		}
	})
}

func TestAFailedWriteEndsTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := &recorder{}, newScripted()
		c := Ordinary{KeepAlive: time.Second, WriteTimeout: time.Second}.New(nil)
		go c.Serve(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil), nil, s)
		synctest.Wait()
		w.mu.Lock()
		w.fail = io.ErrClosedPipe
		w.mu.Unlock()
		if err := <-s.closed; !errors.Is(err, ErrGone) {
			t.Error(err)
		}
	})
}

func TestATransportThatCantStream(t *testing.T) {
	s := newScripted()
	Ordinary{KeepAlive: time.Second, WriteTimeout: time.Second}.New(nil).Serve(
		struct{ http.ResponseWriter }{httptest.NewRecorder()}, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil), []byte("x"), s)
	if err := <-s.closed; !errors.Is(err, ErrTransport) {
		t.Error(err)
	}
}
