package load

import (
	"context"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"downlink/internal/load/results"
)

// Phases and moments of a run, as the report names them.
const (
	phaseConnect = "connect"
	phaseIdle    = "idle"
	phaseRun     = "run"
	phaseStorm   = "storm"

	momentBefore    = "before"    // nothing is connected
	momentConnected = "connected" // all are
	momentAfter     = "after"     // the last phase is over, all are still connected
	momentClosed    = "closed"    // all have left again
	momentPeak      = "peak"      // the highest in between
)

func connects(l *laneTally) *hdrhistogram.Histogram { return l.connects }

// play plays the scenario.
func (r *run) play(ctx context.Context) error {
	if err := r.meter.mark(momentBefore); err != nil {
		return err
	}
	if r.opts.Scenario == Soak && r.opts.Cycles > 0 {
		return r.playCycles(ctx)
	}
	if err := r.connectAll(ctx); err != nil {
		return err
	}
	if r.tally.connected() == 0 {
		return nil // Run says why
	}
	switch r.opts.Scenario {
	case Idle:
		return r.playIdle(ctx)
	case Storm:
		return r.playStorm(ctx)
	case Soak:
		return r.playSoak(ctx)
	default:
		return r.playSteady(ctx)
	}
}

// connectAll connects every device, and tells how that went.
func (r *run) connectAll(ctx context.Context) error {
	r.meter.say("connecting %d devices", r.opts.Devices)
	begun := time.Now()
	err := r.meter.phase(phaseConnect, func() error { return r.fleet.Connect(ctx, 0, r.opts.Devices) })
	r.connect.Asked = r.opts.Devices
	r.connect.Failed = r.tally.failed()
	r.connect.Seconds = time.Since(begun).Seconds()
	r.fleet.Do(func(lane int) {
		r.connect.Connected += int(r.tally.lanes[lane].opened.Load())
	})
	r.connect.Connected = min(r.connect.Connected, r.opts.Devices) // those that come back by themselves count once
	r.connect.PerSecond = float64(r.connect.Connected) / r.connect.Seconds
	return err
}

// playIdle watches connections without events.
func (r *run) playIdle(ctx context.Context) error {
	r.meter.say("settling")
	if !sleep(ctx, r.opts.Settle) {
		return ctx.Err()
	}
	if err := r.meter.mark(momentConnected); err != nil {
		return err
	}
	r.meter.say("idle")
	err := r.meter.phase(phaseIdle, func() error {
		if !sleep(ctx, r.opts.Duration) {
			return ctx.Err()
		}
		return nil
	})
	if err != nil {
		return err
	}
	return r.leave(ctx)
}

// leave ends all connections, and looks what is left of them.
func (r *run) leave(ctx context.Context) error {
	if err := r.meter.mark(momentAfter); err != nil {
		return err
	}
	r.meter.say("disconnecting")
	if err := r.disconnect(ctx, r.connectedNow()); err != nil {
		return err
	}
	if !sleep(ctx, r.opts.Settle) {
		return ctx.Err()
	}
	return r.meter.mark(momentClosed)
}

// connectedNow lists the devices that are connected.
func (r *run) connectedNow() []int {
	var all []int
	for device := range r.tally.up {
		if r.tally.up[device].Load() {
			all = append(all, device)
		}
	}
	return all
}

// disconnect ends connections of devices and waits until they are closed.
func (r *run) disconnect(ctx context.Context, devices []int) error {
	r.byUs += len(devices)
	for _, device := range devices {
		r.fleet.Disconnect(device)
	}
	return until(ctx, func() bool {
		for len(devices) > 0 && !r.tally.up[devices[0]].Load() {
			devices = devices[1:]
		}
		return len(devices) == 0
	})
}

// until waits for a condition that others bring about.
func until(ctx context.Context, ok func() bool) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// playSteady publishes at a rate, or flat out, to devices that stay.
func (r *run) playSteady(ctx context.Context) error {
	if err := r.meter.mark(momentConnected); err != nil {
		return err
	}
	if err := r.publishFor(ctx, func(ctx context.Context) error {
		sleep(ctx, r.opts.Duration)
		return nil
	}); err != nil {
		return err
	}
	if err := r.meter.mark(momentAfter); err != nil {
		return err
	}
	return r.wake(ctx)
}

// wake lets the devices that read slowly or not at all read on: only then do
// they see what the server has done with their connections, behind all that
// the kernel holds for them.
func (r *run) wake(ctx context.Context) error {
	first := r.opts.Devices - r.opts.misbehaving()
	for device := first; device < r.opts.Devices; device++ {
		r.fleet.Wake(device)
	}
	if first == r.opts.Devices {
		return nil
	}
	r.meter.say("waking the sleepers")
	sleep(ctx, time.Second)
	return nil
}

// publishFor publishes while meanwhile runs, after a warm-up, and waits for
// what was published. An end of ctx ends it in order: what was accepted until
// then is waited for.
func (r *run) publishFor(ctx context.Context, meanwhile func(context.Context) error) error {
	publishing, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.press.run(publishing, 0)
	}()
	if r.opts.Warmup > 0 {
		r.meter.say("warming up")
		sleep(ctx, r.opts.Warmup)
	}
	r.press.measure()
	r.meter.say("publishing")
	begun := time.Now()
	err := r.meter.phase(phaseRun, func() error {
		err := meanwhile(ctx)
		r.published = time.Since(begun)
		stop()
		<-done
		r.meter.say("waiting for the last receipts")
		r.drain()
		return err
	})
	return err
}

// drain waits until everything expected has been received, or until nothing
// has come for the time of grace.
func (r *run) drain() {
	got, since := r.tally.received(), time.Now()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for got < r.press.expectedAll.Load() && time.Since(since) < r.opts.Grace {
		<-tick.C
		if now := r.tally.received(); now != got {
			got, since = now, time.Now()
		}
	}
}

// playStorm lets all devices come back at once after each has missed events.
func (r *run) playStorm(ctx context.Context) error {
	r.tally.measured.Store(time.Now().UnixNano()) // there is no warm-up
	r.meter.say("an event for each device, so that each has a position")
	r.press.run(ctx, 1)
	r.drain()
	if err := r.meter.mark(momentConnected); err != nil {
		return err
	}
	if err := r.disconnect(ctx, r.connectedNow()); err != nil {
		return err
	}
	r.meter.say("publishing %d events for each device while nobody is there", r.opts.Missed)
	before := r.press.expectedAll.Load()
	began := time.Now()
	err := r.meter.phase(phaseRun, func() error {
		r.press.run(ctx, r.opts.Missed)
		return ctx.Err()
	})
	r.published = time.Since(began)
	if err != nil {
		return err
	}
	return r.comeBack(ctx, r.press.expectedAll.Load()-before)
}

// comeBack is the storm itself.
func (r *run) comeBack(ctx context.Context, expected uint64) error {
	r.meter.say("all devices come back")
	s := &results.Storm{Devices: r.opts.Devices, Missed: r.opts.Missed, Expected: expected}
	had := r.tally.received()
	r.fleet.Do(func(int) {}) // nobody has news of the first connects any more
	r.connect.Latency = results.Summarize(r.tally.merged(connects), r.opts.Series)
	r.fleet.Do(func(lane int) { r.tally.lanes[lane].connects.Reset() })
	begun := time.Now()
	err := r.meter.phase(phaseStorm, func() error {
		err := r.fleet.Connect(ctx, 0, r.opts.Devices)
		s.ConnectedSeconds = time.Since(begun).Seconds()
		r.drain()
		return err
	})
	s.Received = r.tally.received() - had
	s.Complete = s.Received >= expected
	if last := r.tally.lastReceipt(); last.After(begun) {
		s.Seconds = last.Sub(begun).Seconds()
	}
	s.Seconds = max(s.Seconds, s.ConnectedSeconds)
	s.PerSecond = float64(s.Received) / s.Seconds
	r.fleet.Do(func(lane int) { s.Connected += int(r.tally.lanes[lane].connects.TotalCount()) })
	r.storm = s
	if err != nil {
		return err
	}
	return r.meter.mark(momentAfter)
}

// playSoak publishes while a share of the devices leaves and comes back, and
// brings back whom the server has let go.
func (r *run) playSoak(ctx context.Context) error {
	if err := r.meter.mark(momentConnected); err != nil {
		return err
	}
	err := r.publishFor(ctx, func(ctx context.Context) error {
		if err := r.churn(ctx); err != nil {
			return err
		}
		return r.bringBack(ctx)
	})
	if err != nil {
		return err
	}
	return r.meter.mark(momentAfter)
}

// churn lets devices leave and come back, by turns, until the duration is over.
func (r *run) churn(ctx context.Context) error {
	over := time.Now().Add(r.opts.Duration)
	perSecond := float64(r.opts.Devices-r.opts.misbehaving()) * r.opts.Churn / 100 / 60
	turn, due := 0, 0.0
	for time.Now().Before(over) {
		if !sleep(ctx, min(time.Second, time.Until(over))) {
			return nil // publishFor ends in order
		}
		var leaving []int
		for due += perSecond; due >= 1; due-- {
			device := turn % (r.opts.Devices - r.opts.misbehaving())
			turn++
			if r.tally.up[device].Load() {
				leaving = append(leaving, device)
			}
		}
		if err := r.disconnect(ctx, leaving); err != nil {
			return err
		}
		if err := r.bringBack(ctx); err != nil {
			return err
		}
	}
	return nil
}

// bringBack connects every honest device that isn't connected.
func (r *run) bringBack(ctx context.Context) error {
	return r.fleet.ConnectEach(ctx, func(yield func(int) bool) {
		for device := range r.opts.Devices - r.opts.misbehaving() {
			if !r.tally.up[device].Load() && !yield(device) {
				return
			}
		}
	})
}

// playCycles connects and disconnects all devices again and again.
func (r *run) playCycles(ctx context.Context) error {
	for n := range r.opts.Cycles {
		r.meter.say("cycle %d of %d", n+1, r.opts.Cycles)
		failed, begun := r.tally.failed(), time.Now()
		if err := r.meter.phase(phaseConnect, func() error { return r.fleet.Connect(ctx, 0, r.opts.Devices) }); err != nil {
			return err
		}
		c := results.Cycle{Seconds: time.Since(begun).Seconds(), Connected: r.tally.connected(), Failed: r.tally.failed() - failed}
		r.cycles = append(r.cycles, c)
		r.connect.Asked += r.opts.Devices
		r.connect.Connected += c.Connected
		r.connect.Failed += c.Failed
		r.connect.Seconds += c.Seconds
		r.connect.PerSecond = float64(r.connect.Connected) / r.connect.Seconds
		if n == 0 {
			if err := r.meter.mark(momentConnected); err != nil {
				return err
			}
		}
		if n == r.opts.Cycles-1 {
			return r.leave(ctx)
		}
		if err := r.disconnect(ctx, r.connectedNow()); err != nil {
			return err
		}
	}
	return fmt.Errorf("--cycles must be 1 or more")
}
