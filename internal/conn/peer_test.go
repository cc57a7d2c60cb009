package conn

import (
	"errors"
	"net/http"
	"testing"
)

// told is a stream that asks for its peer when it is closed.
type told struct {
	*scripted
	conn Conn
	peer chan string
}

func (s told) Closed(err error) {
	address, protocol := s.conn.Peer()
	s.peer <- address + " " + protocol
	s.scripted.Closed(err)
}

// TestDriversKnowThePeer while the stream lives, and when it is told of its end.
func TestDriversKnowThePeer(t *testing.T) {
	eachDriver(t, patient, func(t *testing.T, o *office) {
		streams := make(chan told, 1)
		o.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s := told{newScripted(), o.driver.New(r), make(chan string, 1)}
			s.conn.Peer() // it may be asked at any time
			streams <- s
			s.conn.Serve(w, r, []byte("first\n"), s)
		})
		c, br := o.dial(t, "/a", "")
		s := <-streams
		want := c.tcp.LocalAddr().String() + " HTTP/1.1"
		if o.secure {
			want += ", TLS"
		}
		for line := ""; line != "first\n"; {
			var err error
			if line, err = br.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		address, protocol := s.conn.Peer()
		if got := address + " " + protocol; got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
		c.Close()
		if got := <-s.peer; got != want {
			t.Errorf("at its end it says %q, want %q", got, want)
		}
		if err := <-s.closed; !errors.Is(err, ErrGone) {
			t.Error(err)
		}
		if _, light := s.conn.(interface{ isBlocked() bool }); light {
			o.driver.Close(t.Context())
			if address, _ := s.conn.Peer(); address != "" {
				t.Errorf("after its end it says %q", address)
			}
		}
	})
}
