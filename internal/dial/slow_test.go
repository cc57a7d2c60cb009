package dial

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestADeviceThatSendsNoPongIsGone(t *testing.T) {
	r := newRig(t, WebSocket, func(o *Options) { o.Keepalive, o.WriteTimeout = 5*time.Millisecond, 50*time.Millisecond })
	silent := newDevice(t, `{"hello":{"cursor":"1000-0"}}`)
	stop := make(chan struct{})
	silent.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ws, err := websocket.Accept(w, req, &websocket.AcceptOptions{Subprotocols: []string{Subprotocol}})
		if err != nil {
			return
		}
		silent.mu.Lock()
		silent.calls = append(silent.calls, &deviceCall{ws: ws})
		silent.mu.Unlock()
		_ = ws.Write(req.Context(), websocket.MessageText, []byte(silent.hello))
		<-stop // it reads nothing
		_ = ws.CloseNow()
	})
	r.list("a", silent.url())
	r.take(7, time.Hour)
	silent.call(1) // it was given up, and tried again
	close(stop)
}

// TestAWriteThatOutlastsItsLeaseIsCut, and one whose lease is renewed isn't before
// the device has taken nothing for too long.
func TestAWriteThatOutlastsItsLeaseIsCut(t *testing.T) {
	for end, renewed := range map[End]bool{Lapsed: false, Stalled: true} {
		t.Run(string(end), func(t *testing.T) {
			t.Parallel()
			const large = 16 << 20 // more than the system takes
			r := newRig(t, WebSocket, func(o *Options) {
				if renewed {
					o.WriteTimeout = time.Second / (1 + large/stretch)
				}
			})
			d := newDevice(t, `{"hello":{"cursor":"1000-0"}}`)
			stop := make(chan struct{})
			var begun atomic.Bool // the large message has
			d.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				ws, err := websocket.Accept(w, req, &websocket.AcceptOptions{Subprotocols: []string{Subprotocol}})
				if err != nil {
					return
				}
				_ = ws.Write(req.Context(), websocket.MessageText, []byte(d.hello))
				_, _, _ = ws.Read(req.Context()) // welcome
				_, _, _ = ws.Reader(req.Context())
				begun.Store(true)
				<-stop // it reads nothing more
				_ = ws.CloseNow()
			})
			defer close(stop)
			r.list("a", d.url())
			r.take(7, time.Hour)
			until(t, "the call", func() bool { return r.dials(Opened) == 1 })
			r.renew(300 * time.Millisecond)
			r.publish("a", strings.Repeat("x", large))
			until(t, "the message", func() bool { r.renew(300 * time.Millisecond); return begun.Load() })
			if renewed {
				r.renew(time.Hour)
			}
			until(t, "its end", func() bool { return testutil.ToFloat64(r.metrics.ends.WithLabelValues(string(end))) > 0 })
		})
	}
}

func TestAnotherSubprotocolIsLeft(t *testing.T) {
	r := newRig(t, WebSocket, nil)
	d := newDevice(t, "")
	ended := make(chan error, 100)
	d.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ws, err := websocket.Accept(w, req, nil)
		if err != nil {
			return
		}
		_, _, err = ws.Read(context.Background())
		ended <- err
	})
	r.list("a", d.url())
	r.take(7, time.Hour)
	if err := <-ended; websocket.CloseStatus(err) != websocket.StatusProtocolError {
		t.Errorf("it ended with %v", err)
	}
	until(t, "it is counted", func() bool { return r.dials(FailedAnswer) > 0 })
}
