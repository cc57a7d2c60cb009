package dial

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"downlink/internal/event"
	"downlink/internal/lease"
	"downlink/internal/session"
)

func TestADeviceIsGreetedAndGetsWhatItMissed(t *testing.T) {
	r := newRig(t, WebSocket, nil)
	d := newDevice(t, `{"hello":{"cursor":"1000-0"},"later":"unknown"}`)
	r.publish("a", "before")
	r.list("a", d.url())
	r.take(7, time.Hour)
	c := d.call(0)
	c.messages(t, 2)
	r.publish("a", "live")
	got := c.messages(t, 3)
	want := []string{
		`{"welcome":{"generation":7,"member":"member-1","groups":"47DEQpj8HBSa-_TI","keepalive_ms":60000}}`,
		`{"id":"1000-1","type":"t","data":"before"}`, `{"id":"1000-2","type":"t","data":"live"}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	h := d.header
	if h.Get("Downlink-Device") != "a" || h.Get("Downlink-Member") != "member-1" || h.Get("Downlink-Generation") != "7" || h.Get("Sec-WebSocket-Extensions") != "" {
		t.Errorf("it came with %v", h)
	}
	if n := r.dials(Opened); n != 1 {
		t.Errorf("%v dials", n)
	}
}

// TestHellos: where a device begins is what GET /events makes of the same words.
func TestHellos(t *testing.T) {
	r := newRig(t, WebSocket, nil)
	r.publish("a", "one")
	r.take(1, time.Hour)
	r.log.kept["kept"] = event.ID{Ms: 1000}
	for device, c := range map[string][2]string{
		"new":      {`{"hello":{}}`, `{"id":"1000-1","type":"resync","data":"{\"reason\":\"no-cursor\",\"after_ms\":0}"}`},
		"bad":      {`{"hello":{"cursor":"$"}}`, `{"id":"1000-1","type":"resync","data":"{\"reason\":\"invalid-cursor\",\"after_ms\":0}"}`},
		"moved":    {`{"hello":{"cursor":"1000-0","groups":"other"}}`, `{"id":"1000-1","type":"resync","data":"{\"reason\":\"groups-changed\",\"after_ms\":0}"}`},
		"kept":     {`{"hello":{}}`, `{"id":"1000-2","type":"t","data":"for kept"}`},
		"earliest": {`{"hello":{"from":"earliest"}}`, `{"id":"1000-2","type":"t","data":"for earliest"}`},
	} {
		t.Run(device, func(t *testing.T) {
			d := newDevice(t, c[0])
			if device == "kept" || device == "earliest" {
				id := r.publish(device, "for "+device)
				c[1] = strings.Replace(c[1], "1000-2", id.String(), 1)
			} else {
				c[1] = strings.Replace(c[1], "1000-1", r.head.String(), 1)
			}
			r.list(device, d.url())
			if got := d.call(0).messages(t, 2); got[1] != c[1] {
				t.Errorf("got %s\nwant %s", got[1], c[1])
			}
		})
	}
}

// TestWithoutALeaseThereArePingsOnly: the connection stays, nothing else is
// written, and all of it comes when there is a lease again.
func TestWithoutALeaseThereArePingsOnly(t *testing.T) {
	r := newRig(t, WebSocket, func(o *Options) { o.Keepalive = 5 * time.Millisecond })
	d := newDevice(t, `{"hello":{"cursor":"1000-0"}}`)
	r.list("a", d.url())
	r.take(7, time.Hour)
	c := d.call(0)
	c.messages(t, 1)
	tenPings := func() {
		begin := d.pings.Load()
		until(t, "ten pings", func() bool { return d.pings.Load() > begin+10 })
	}
	r.renew(-time.Second)
	tenPings() // what was begun under the lease is over
	r.publish("a", "waits")
	r.publish("b", "moves the position")
	tenPings()
	if got := c.messages(t, 1); len(got) != 1 {
		t.Fatalf("without a lease came %q", got[1:])
	}
	r.take(9, time.Hour)
	if got := c.messages(t, 3); got[1] != `{"generation":9}` || got[2] != `{"id":"1000-1","type":"t","data":"waits"}` || d.count() != 1 {
		t.Errorf("%d calls, got %q", d.count(), got)
	}
	if got := c.messages(t, 4); got[3] != `{"id":"1000-2"}` {
		t.Errorf("no position: %q", got)
	}
	r.renew(-time.Second)
	r.publish("a", "waits again")
	r.renew(time.Hour)
	if got := c.messages(t, 5); got[4] != `{"id":"1000-3","type":"t","data":"waits again"}` {
		t.Errorf("renewed, without a new generation: %q", got)
	}
}

// TestAWriteRefusesALeaseThatHasLapsed, whoever hands it over: there is no
// connection here that it could use.
func TestAWriteRefusesALeaseThatHasLapsed(t *testing.T) {
	c := &call{frames: [][]byte{[]byte("x")}}
	dead := lease.Lease{Generation: 7, Deadline: time.Now().Add(-time.Millisecond)}
	if err := c.writeAll(dead); err != nil || len(c.frames) != 1 || c.said != 0 {
		t.Errorf("%v, %d frames wait, generation %d was said", err, len(c.frames), c.said)
	}
	m := &mailbox{item: &session.Delivery{}}
	if _, err := m.post(dead); !errors.Is(err, errLapsed) {
		t.Errorf("a POST: %v", err)
	}
}

// TestALeaseThatHasLapsedDialsNobody: there may be another owner.
func TestALeaseThatHasLapsedDialsNobody(t *testing.T) {
	r := newRig(t, WebSocket, nil)
	d := newDevice(t, `{"hello":{"cursor":"1000-0"}}`)
	r.list("a", d.url())
	r.take(7, -time.Second)
	other := newDevice(t, `{"hello":{"cursor":"1000-0"}}`)
	until(t, "the link", func() bool { return r.engine.Status()[0].Devices == 1 })
	r.list("b", other.url())
	until(t, "both links", func() bool { return r.engine.Status()[0].Dialling == 2 })
	if d.count()+other.count() > 0 || r.dials(Opened) > 0 {
		t.Error("somebody was dialled")
	}
	r.renew(time.Hour)
	d.call(0)
	other.call(0)
}

func TestANewerOwnerIsHeardOf(t *testing.T) {
	r := newRig(t, WebSocket, nil)
	d := newDevice(t, `{"hello":{"cursor":"1000-0"}}`)
	d.status = http.StatusConflict
	r.list("a", d.url())
	r.take(7, time.Hour)
	until(t, "three attempts", func() bool { return r.dials(FailedOlder) >= 3 })
	if g := r.outrank.Load(); g != 77 {
		t.Errorf("the member heard of generation %d", g)
	}
	r.outrank.Store(0)
	d.mu.Lock()
	d.status = 0
	d.mu.Unlock()
	d.call(0).messages(t, 1)
	_ = d.call(0).ws.Close(overrun, "99") // whoever reads there may hear the answer first
	until(t, "the word of the close frame", func() bool { return r.outrank.Load() == 99 })
	d.mu.Lock()
	d.hello = ""
	d.mu.Unlock()
	_ = d.call(1).ws.Close(overrun, "98") // in the place of a hello
	until(t, "the word of a device that doesn't greet", func() bool { return r.outrank.Load() == 98 && r.dials(FailedOlder) > 3 })
}

// TestLettingGo closes with a reason, ends everything, and writes nothing more.
func TestLettingGo(t *testing.T) {
	r := newRig(t, WebSocket, nil)
	d := newDevice(t, `{"hello":{"cursor":"1000-0"}}`)
	r.list("a", d.url())
	r.take(7, time.Hour)
	d.call(0).messages(t, 1)
	r.let()
	r.publish("a", "not ours")
	err := d.call(0).end(t)
	if got := d.call(0).messages(t, 1); websocket.CloseStatus(err) != websocket.StatusGoingAway || len(got) != 1 || d.count() != 1 {
		t.Errorf("%v, %d calls, got %q", err, d.count(), got)
	}
	if r.engine.Sockets() != 0 || len(r.engine.Status()) != 0 {
		t.Error("something is left")
	}
	r.let() // does nothing
}

// TestLettingGoOfADeviceThatIsBeingGreeted tells it so, and doesn't welcome it.
func TestLettingGoOfADeviceThatIsBeingGreeted(t *testing.T) {
	r := newRig(t, WebSocket, nil)
	asked, answer := make(chan struct{}), make(chan struct{})
	r.log.ask = func() { close(asked); <-answer }
	d := newDevice(t, `{"hello":{}}`) // the log is asked where it is
	r.list("a", d.url())
	r.take(7, time.Hour)
	<-asked
	link, _ := r.engine.holdings()[0].link("a").link.(*socket)
	var letting sync.WaitGroup
	letting.Go(r.let)
	<-link.ctx.Done()
	close(answer)
	letting.Wait()
	if err := d.call(0).end(t); websocket.CloseStatus(err) != websocket.StatusGoingAway || len(d.call(0).messages(t, 0)) > 0 {
		t.Errorf("%v, got %q", err, d.call(0).messages(t, 0))
	}
}

func TestOnlyWhatHasChangedIsDialledAgain(t *testing.T) {
	r := newRig(t, WebSocket, nil)
	a, b, moved := newDevice(t, `{"hello":{"cursor":"1000-0"}}`), newDevice(t, `{"hello":{"cursor":"1000-0"}}`), newDevice(t, `{"hello":{"cursor":"1000-0"}}`)
	r.list("a", a.url())
	r.list("b", b.url())
	r.take(7, time.Hour)
	a.call(0).messages(t, 1)
	b.call(0).messages(t, 1)
	r.list("b", b.url()) // as it was
	r.list("a", moved.url())
	moved.call(0).messages(t, 1)
	_ = a.call(0).end(t)
	r.publish("b", "still here")
	b.call(0).messages(t, 2)
	if a.count() != 1 || b.count() != 1 || moved.count() != 1 {
		t.Errorf("%d, %d and %d calls", a.count(), b.count(), moved.count())
	}
}

func TestAnOrderEndsACallAndARevokedDeviceIsLeftAlone(t *testing.T) {
	r := newRig(t, WebSocket, nil)
	d := newDevice(t, `{"hello":{"cursor":"1000-0"}}`)
	r.list("a", d.url())
	r.take(7, time.Hour)
	served := func(n float64) { // its session is there, which is a moment after the welcome
		until(t, "a call that is served", func() bool { return r.dials(Opened) == n })
	}
	served(1)
	session.EndDevice(r.shards.Of("a"), "a", session.Disconnected, nil)
	_ = d.call(0).end(t)
	served(2)
	r.revoked.Store(true)
	session.EndDevice(r.shards.Of("a"), "a", session.Revoked, nil)
	_ = d.call(1).end(t)
	until(t, "attempts that are none", func() bool { return r.dials(FailedOwner) > 2 })
	if d.count() != 2 {
		t.Errorf("%d calls", d.count())
	}
	r.revoked.Store(false)
	d.call(2).messages(t, 1)
}

// TestWhatIsNotOfTheProtocol ends a call with a reason, and never the engine.
func TestWhatIsNotOfTheProtocol(t *testing.T) {
	for name, c := range map[string]struct {
		hello string
		say   string
		code  websocket.StatusCode
	}{
		"no JSON":           {hello: `hello`, code: websocket.StatusProtocolError},
		"no hello":          {hello: `{"commit":"1-0"}`, code: websocket.StatusPolicyViolation},
		"a long hello":      {hello: `{"hello":{"cursor":"` + strings.Repeat("1", maxMessage) + `"}}`, code: websocket.StatusMessageTooBig},
		"rubbish later":     {hello: `{"hello":{}}`, say: `[`, code: websocket.StatusProtocolError},
		"a bad commit":      {hello: `{"hello":{}}`, say: `{"commit":"$"}`, code: websocket.StatusProtocolError},
		"a long word later": {hello: `{"hello":{}}`, say: strings.Repeat(" ", maxMessage+1), code: websocket.StatusMessageTooBig},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, WebSocket, nil)
			d := newDevice(t, c.hello)
			r.list("a", d.url())
			r.take(7, time.Hour)
			if c.say != "" {
				d.call(0).messages(t, 1)
				d.call(0).say(t, c.say)
			}
			if err := d.call(0).end(t); websocket.CloseStatus(err) != c.code {
				t.Errorf("it ended with %v", err)
			}
			d.call(1) // and is tried again
		})
	}
}

func TestAHelloIsAwaitedForSoLong(t *testing.T) {
	r := newRig(t, WebSocket, func(o *Options) { o.DialTimeout = 30 * time.Millisecond })
	d := newDevice(t, "")
	r.list("a", d.url())
	r.take(7, time.Hour)
	d.call(1)
	until(t, "it is counted", func() bool { return r.dials(FailedHello) > 0 })
}

// TestCommits are kept, as far as the device has been sent something.
func TestCommits(t *testing.T) {
	r := newRig(t, WebSocket, nil)
	d := newDevice(t, `{"hello":{"cursor":"1000-0"}}`)
	r.list("a", d.url())
	r.take(7, time.Hour)
	first := r.publish("a", "one")
	c := d.call(0)
	c.messages(t, 2)
	c.say(t, fmt.Sprintf(`{"commit":%q}`, first))
	c.say(t, `{"commit":"9999999999999-0"}`)
	until(t, "the position", func() bool { return r.log.position("a") == first })
	r.publish("a", "two")
	c.messages(t, 3)
	c.say(t, `{"commit":"1000-2"}`)
	until(t, "what the device has committed before its call ended", func() bool {
		h := r.engine.holdings()[0]
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.reach["a"] == event.ID{Ms: 1000, Seq: 2} || r.log.position("a") == event.ID{Ms: 1000, Seq: 2}
	})
	r.let() // keeps at once
	if at := r.log.position("a"); at != (event.ID{Ms: 1000, Seq: 2}) {
		t.Errorf("kept is %v", at)
	}
}

// TestDialsHaveTheirTurn: a shard that is taken over isn't dialled in one go.
func TestDialsHaveTheirTurn(t *testing.T) {
	t.Parallel()
	r := newRig(t, WebSocket, func(o *Options) { o.Rate = func() int { return 2 } })
	d := newDevice(t, `{"hello":{}}`)
	for i := range 4 {
		r.list(fmt.Sprint("d", i), d.url())
	}
	began := time.Now()
	r.take(7, time.Hour)
	d.call(3)
	if took := time.Since(began); took < 750*time.Millisecond { // the first one goes at once, then 250 ms at least lie between two
		t.Errorf("four devices were dialled within %v, at two a second", took)
	}
}

func TestMaxConnections(t *testing.T) {
	r := newRig(t, WebSocket, func(o *Options) { o.Sockets = func() int { return 1 } })
	a, b := newDevice(t, `{"hello":{}}`), newDevice(t, `{"hello":{}}`)
	r.list("a", a.url())
	r.take(7, time.Hour)
	a.call(0)
	r.list("b", b.url())
	until(t, "a refusal of our own", func() bool { return r.dials(FailedLimit) > 1 })
	if b.count() != 0 || r.engine.Sockets() != 1 {
		t.Errorf("%d calls, %d sockets", b.count(), r.engine.Sockets())
	}
}

func TestSecretsOfAURLAreNotTold(t *testing.T) {
	told := make(chan string, 1)
	r := newRig(t, WebSocket, func(o *Options) {
		o.Note = func(_, _, detail string) {
			select {
			case told <- detail:
			default:
			}
		}
	})
	r.list("a", "ws://127.0.0.1:1/events?token=hunter2")
	r.take(7, time.Hour)
	if detail := <-told; strings.Contains(detail, "hunter2") || !strings.Contains(detail, "refused") {
		t.Errorf("it says %q", detail)
	}
}
