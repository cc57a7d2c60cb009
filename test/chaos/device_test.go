package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"downlink/client"
	"downlink/internal/event"
)

// A manner is how a device behaves.
type manner string

const (
	steady manner = "steady" // moves between gateways now and then
	slow   manner = "slow"   // takes time for each event
	dozing manner = "dozing" // stops reading for seconds
	absent manner = "absent" // is away for longer than the window now and then
)

// A device is a client that commits what it has handled.
type device struct {
	*witness
	run    *run
	manner manner
	rng    *rand.Rand
	client client.Client

	mu      sync.Mutex
	revoked time.Duration // when that was acknowledged; 0: it isn't
	lifted  chan struct{} // closed when it is restored
}

// connect runs the device until ctx ends.
func (d *device) connect(ctx context.Context) {
	for ctx.Err() == nil {
		stay := time.Duration(float64(d.run.stay) * (0.2 + 1.6*d.rng.Float64()))
		life, cancel := context.WithTimeout(ctx, stay)
		d.client.URL = d.run.front(d.rng)
		d.client.HTTPClient = &http.Client{Transport: &tap{
			Transport: &http.Transport{}, device: d.device, fault: d.chronicle.fault,
		}}
		err := d.client.Run(life, client.Handler{Event: d.handle, Resync: d.resynced})
		over := life.Err() != nil
		cancel()
		switch {
		case errors.Is(err, client.ErrRevoked):
			d.barred(ctx)
		case !over:
			d.fault("%s: the client gave up: %v", d.device, err)
			return
		default:
			wait(d.run.home, d.off())
		}
	}
}

// off is how long the device stays away between two connections.
func (d *device) off() time.Duration {
	switch {
	case d.manner == absent && d.rng.IntN(3) == 0:
		return time.Duration(float64(d.run.window) * (0.7 + 1.3*d.rng.Float64()))
	case d.rng.IntN(4) == 0:
		return time.Duration(d.rng.IntN(2000)) * time.Millisecond
	}
	return 0
}

func (d *device) handle(ctx context.Context, e client.Event) error {
	now := d.run.now()
	id, err := event.ParseID(e.ID)
	number, _, _ := strings.Cut(e.Data, " ")
	n, notNumber := strconv.Atoi(number)
	if err != nil || notNumber != nil {
		d.fault("%s: event %q of type %q holds %.40q, which nobody published", d.device, e.ID, e.Type, e.Data)
		return nil
	}
	// What a dozing device has received it may handle whenever it wakes up.
	if at, is := d.since(); is && now-at > obeyed && d.manner != dozing {
		d.fault("%s: event %s came %v after the device was revoked", d.device, e.ID, now-at)
	}
	d.event(e.Type, n, id, now, d.manner == steady)
	d.chronicle.hold(d.shard, id, now)
	switch {
	case d.manner == slow:
		wait(ctx, 20*time.Millisecond)
	case d.manner == dozing && d.rng.IntN(150) == 0:
		wait(ctx, time.Duration(1000+d.rng.IntN(6000))*time.Millisecond)
	}
	return nil
}

func (d *device) resynced(ctx context.Context, r client.Resync) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	id, err := event.ParseID(r.ID)
	if err != nil {
		return fmt.Errorf("the resync has the ID %q", r.ID)
	}
	d.resync(event.Reason(r.Reason), id, d.run.now())
	return nil
}

// obeyed is how long an order may take once every gateway can reach the log;
// the rest is for a loaded machine.
const obeyed = 2*time.Second + 10*time.Second

// bar notes that the device was revoked.
func (d *device) bar(now time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.revoked, d.lifted = now, make(chan struct{})
}

// pardon notes that the device is about to be restored, lift that it was: it
// may come again.
func (d *device) pardon() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.revoked = 0
}

func (d *device) lift() {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.lifted)
	d.lifted = nil
}

func (d *device) since() (at time.Duration, revoked bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.revoked, d.revoked != 0
}

// barred waits until the device is restored.
func (d *device) barred(ctx context.Context) {
	d.mu.Lock()
	lifted := d.lifted
	d.mu.Unlock()
	if lifted == nil {
		return // it was restored meanwhile
	}
	select {
	case <-ctx.Done():
	case <-lifted:
	}
}

// wait waits, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
