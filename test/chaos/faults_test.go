package chaos

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/testkit"
)

// between draws a time.
func between(rng *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(rng.Int64N(int64(most-least)))
}

// overWindow is a time that is longer than the window.
func overWindow(r *run, rng *rand.Rand) time.Duration {
	return r.window + between(rng, 2*time.Second, 6*time.Second)
}

// gatewayFaults strike one gateway, and none of them justifies anything but
// what has left the window meanwhile.
func gatewayFaults() []kind {
	return []kind{
		{name: "gateway killed", weight: 6, on: onGateway, strike: killGateway},
		{name: "gateway frozen", weight: 4, on: onGateway, strike: freezeGateway(false)},
		{name: "gateway frozen for longer than the window", weight: 1, on: onGateway, long: true, strike: freezeGateway(true)},
		{name: "link to the log held up", weight: 4, on: onGateway, strike: stallLink(false)},
		{name: "link to the log held up for longer than the window", weight: 1, on: onGateway, long: true, strike: stallLink(true)},
		{name: "link to the log reset", weight: 3, on: onGateway, strike: resetLink},
		{name: "link to the log slow and narrow", weight: 3, on: onGateway, strike: slowLink},
		{name: "rolling restart", weight: 1, on: onGateway, alone: true, strike: rollingRestart},
		{name: "configuration reloaded", weight: 2, on: onGateway, strike: reload},
	}
}

func killGateway(r *run, rng *rand.Rand) (time.Duration, func()) {
	m := r.fleet.pick(rng)
	m.down = true
	m.process.Kill9()
	return between(rng, 0, 3*time.Second), func() {
		m.launch()
		m.down = false
		r.restarted()
	}
}

// restarted counts restarts of the embedded log. It remembers sixteen, so after
// more a cursor that has left the window may lie where nobody knows.
func (r *run) restarted() {
	if r.topology != "embedded" {
		return
	}
	if r.starts++; r.starts > eventlog.MaxBreaks {
		r.chronicle.open(&incident{kind: "many restarts", shard: -1, reasons: []event.Reason{event.LogRewound}, expired: true}, r.now())
	}
}

func freezeGateway(long bool) func(*run, *rand.Rand) (time.Duration, func()) {
	return func(r *run, rng *rand.Rand) (time.Duration, func()) {
		m, from := r.fleet.pick(rng), r.now()
		m.settle()
		m.process.Stop()
		lasts := between(rng, 500*time.Millisecond, 6*time.Second)
		if long {
			lasts = overWindow(r, rng)
		}
		return lasts, func() {
			m.process.Cont()
			r.chronicle.blind(from, r.now())
		}
	}
}

func stallLink(long bool) func(*run, *rand.Rand) (time.Duration, func()) {
	return func(r *run, rng *rand.Rand) (time.Duration, func()) {
		m, from := r.fleet.pick(rng), r.now()
		m.link.Stall()
		lasts := between(rng, 500*time.Millisecond, 6*time.Second)
		if long {
			lasts = overWindow(r, rng)
		}
		return lasts, func() {
			m.link.Resume()
			r.chronicle.blind(from, r.now())
		}
	}
}

func resetLink(r *run, rng *rand.Rand) (time.Duration, func()) {
	r.fleet.pick(rng).link.Reset()
	return 0, nil
}

func slowLink(r *run, rng *rand.Rand) (time.Duration, func()) {
	m := r.fleet.pick(rng)
	m.link.Slow(between(rng, time.Millisecond, 80*time.Millisecond), (128+rng.IntN(512))<<10)
	return between(rng, time.Second, 6*time.Second), func() { m.link.Slow(0, 0) }
}

// rollingRestart ends each gateway as an update does, and starts it anew.
func rollingRestart(r *run, rng *rand.Rand) (time.Duration, func()) {
	for _, m := range r.fleet.members {
		m.process.AwaitReady()
		m.down = true
		if code := m.process.Terminate(); code != 0 {
			r.chronicle.fault("a gateway that was asked to end did so with code %d:\n%s", code, m.process.Log())
		}
		m.launch()
		m.process.AwaitReady()
		m.down = false
		r.restarted()
	}
	return 0, nil
}

func reload(r *run, rng *rand.Rand) (time.Duration, func()) {
	m := r.fleet.pick(rng)
	m.configure(16 << rng.IntN(5))
	if !m.down && m.process.Started() {
		m.process.Hangup()
	}
	return 0, nil
}

// deviceFaults strike devices on their way to a gateway, or by an order.
func deviceFaults() []kind {
	return []kind{
		{name: "devices' connections reset", weight: 3, on: onDevices, strike: resetFront},
		{name: "devices' connections held up", weight: 3, on: onDevices, strike: stallFront},
		{name: "devices disconnected by order", weight: 2, on: onDevices, strike: disconnect},
		{name: "device revoked and restored", weight: 2, on: onDevices, alone: true, strike: revoke},
	}
}

func resetFront(r *run, rng *rand.Rand) (time.Duration, func()) {
	r.fleet.pick(rng).front.Reset()
	return 0, nil
}

func stallFront(r *run, rng *rand.Rand) (time.Duration, func()) {
	m := r.fleet.pick(rng)
	m.front.Stall()
	return between(rng, 500*time.Millisecond, 8*time.Second), m.front.Resume
}

// disconnect orders some devices off; with the log away the answer is 503.
func disconnect(r *run, rng *rand.Rand) (time.Duration, func()) {
	for range 5 {
		d := r.devices[rng.IntN(len(r.devices))]
		_, _ = d.order(http.MethodPost, r.fleet.pick(rng).backend, "disconnect")
	}
	return 0, nil
}

// revoke keeps a device out, checks that no gateway lets it stay, and restores
// it. Nothing else is broken meanwhile, but a gateway may still be starting.
func revoke(r *run, rng *rand.Rand) (time.Duration, func()) {
	for _, m := range r.fleet.members {
		m.process.AwaitReady()
	}
	d := r.devices[rng.IntN(len(r.devices))]
	if !d.ordered(r, rng, http.MethodPost) {
		return 0, nil
	}
	d.bar(r.now())
	deadline := time.Now().Add(obeyed)
	<-time.After(2 * time.Second) // until then a gateway needn't have heard of it
	if !r.out(d, deadline) {
		r.chronicle.fault("%s has a session %v after it was revoked", d.device, obeyed)
	}
	<-time.After(between(rng, 0, time.Second)) // it comes, and is told no
	if !r.out(d, deadline) {                   // of a gateway that heard late it isn't the last word
		r.chronicle.fault("%s was let in although it was revoked %v ago", d.device, obeyed)
	}
	d.pardon()
	if !d.ordered(r, rng, http.MethodDelete) {
		r.chronicle.fault("%s can't be restored", d.device)
	}
	d.lift()
	return 0, nil
}

// out waits until a device has no session any more; false if it has one at the
// deadline.
func (r *run) out(d *device, deadline time.Time) bool {
	for r.sessions(d.device) > 0 {
		if time.Now().After(deadline) {
			return false
		}
		<-time.After(50 * time.Millisecond)
	}
	return true
}

// ordered repeats an order until it stands.
func (d *device) ordered(r *run, rng *rand.Rand, method string) bool {
	for range 100 {
		status, text := d.order(method, r.fleet.pick(rng).backend, "revoke")
		if status == http.StatusOK {
			return true
		}
		if status != http.StatusServiceUnavailable && status != 0 {
			r.chronicle.fault("%s of %s was refused: %d %s", method, d.device, status, text)
			return false
		}
		<-time.After(100 * time.Millisecond)
	}
	r.chronicle.fault("%s of %s isn't accepted", method, d.device)
	return false
}

// order gives an order about the device; status 0 is no answer.
func (d *device) order(method, backend, what string) (status int, answer string) {
	req, err := http.NewRequest(method, backend+"/v1/devices/"+d.device+"/"+what, nil)
	if err != nil {
		return 0, err.Error()
	}
	req.Close = true
	web := &http.Client{Timeout: patience}
	resp, err := web.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// sessions counts a device's streams and polls on all gateways.
func (r *run) sessions(device string) (open int) {
	for _, m := range r.fleet.members {
		status, text := testkit.Get(r.tb, m.backend+"/v1/devices/"+device)
		var report struct{ Sessions []json.RawMessage }
		if status != http.StatusOK || json.Unmarshal([]byte(text), &report) != nil {
			r.chronicle.fault("asking about %s: %d %s", device, status, fmt.Sprintf("%.200s", text))
		}
		open += len(report.Sessions)
	}
	return open
}
