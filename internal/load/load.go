// Package load owns the scenarios by which an event-stream server is measured:
// who connects when, what is published meanwhile, and what the figures mean.
// It owns neither bytes (wire), connections (fleet), requests (producer), nor
// the accounts (ledger). Its invariant: what wasn't measured is not reported,
// and a run that lost an event never passes for one that didn't.
package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"net/url"
	"runtime"
	"strconv"
	"time"

	"crypto/tls"

	"downlink/internal/load/fleet"
	"downlink/internal/load/ledger"
	"downlink/internal/load/results"
)

// ErrNobody is wrapped by Run's error when no device at all could connect.
var ErrNobody = errors.New("no device could connect")

// A SettingError says that nothing was started because of a setting.
type SettingError struct{ Err error }

func (e *SettingError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e *SettingError) Unwrap() error { return e.Err }

// Run runs a scenario to its end, or until ctx ends, and reports. Only what
// prevents a report is an error, a *SettingError before anything was started; what went wrong in a run is in its Failures.
func Run(ctx context.Context, o Options) (*results.Report, error) {
	r, err := newRun(ctx, o)
	if err != nil {
		return nil, &SettingError{err}
	}
	defer r.close()
	stop := r.meter.start(ctx)
	err = r.play(ctx)
	stop()
	if ended := ctx.Err() != nil; err != nil && !ended {
		return nil, err
	}
	r.fleet.Close()
	if r.tally.merged(connects).TotalCount() == 0 && r.tally.failed() > 0 {
		return nil, fmt.Errorf("%w to %s: %w", ErrNobody, r.address, r.tally.first)
	}
	return r.report(ctx.Err() != nil), nil
}

// A run is one scenario being played.
type run struct {
	opts   Options
	begun  time.Time
	ledger *ledger.Ledger
	tally  *tally
	press  *press
	fleet  *fleet.Fleet
	meter  *meter

	address   netip.AddrPort // where all devices connect
	connect   results.Connect
	storm     *results.Storm
	cycles    []results.Cycle
	published time.Duration // how long was published, without the warm-up
	byUs      int
}

func newRun(ctx context.Context, o Options) (*run, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if err := descriptors(o.Devices); err != nil {
		return nil, err
	}
	u, err := targetURL(o.URL)
	if err != nil {
		return nil, err
	}
	requests, err := newRequests(&o, u)
	if err != nil {
		return nil, err
	}
	address, err := resolve(ctx, u)
	if err != nil {
		return nil, err
	}
	if o.Lanes == 0 {
		o.Lanes = min(max(runtime.NumCPU()/2, 1), 4)
	}
	r := &run{opts: o, begun: time.Now(), address: address}
	r.ledger = ledger.New(o.Devices, o.broadcasters(), o.honest)
	r.tally = newTally(&r.opts, o.Lanes, r.ledger, requests.known)
	r.tally.measured.Store(math.MaxInt64)
	if r.press, err = newPress(&r.opts, r.ledger, &r.tally.measured); err != nil {
		return nil, err
	}
	if r.meter, err = newMeter(r); err != nil {
		r.press.close()
		return nil, err
	}
	if r.fleet, err = fleet.New(r.fleetOptions(u, address, requests)); err != nil {
		r.press.close()
		return nil, err
	}
	return r, nil
}

func (r *run) close() {
	r.fleet.Close()
	r.press.close()
}

// broadcasters is the number of publishers that need a lane for broadcasts.
func (o *Options) broadcasters() int {
	if o.toAll() {
		return o.publishers()
	}
	return 0
}

func (r *run) fleetOptions(u *url.URL, address netip.AddrPort, requests *requests) fleet.Options {
	o := fleet.Options{
		Address:    address,
		Devices:    r.opts.Devices,
		Lanes:      r.opts.Lanes,
		Connecting: r.opts.Connecting,
		Rate:       r.opts.ConnectRate,
		Timeout:    r.opts.ConnectTimeout,
		Manner:     r.opts.manner,
		ReadRate:   r.opts.ReadRate,
		Patience:   time.Second,
		KeepID:     r.opts.Scenario == Storm || r.opts.Scenario == Soak || requests.uses("id") && r.opts.ResumeURL != "",
		Portable:   r.opts.Portable,
		Request:    requests.Append,
		Observer:   r.tally,
	}
	if o.ReadRate == 0 {
		o.ReadRate = 1 << 10 // of the slow ones among those that misbehave
	}
	if u.Scheme == "https" {
		o.TLS = &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12, RootCAs: r.opts.Roots}
	}
	for n := range r.opts.sources(address) {
		o.Sources = append(o.Sources, netip.AddrFrom4([4]byte{127, 0, 0, byte(n + 1)}))
	}
	if len(r.opts.Captures) > 0 {
		o.Raw = func(device int, piece []byte) {
			if requests.wants(device) {
				requests.look(device, piece)
			}
		}
	}
	return o
}

// manner: the last devices behave as the scenario wants, the kinds by turns.
func (o *Options) manner(device int) fleet.Manner {
	bad := device - (o.Devices - o.misbehaving())
	stalled := 0
	if o.Scenario == SlowOnes {
		stalled = o.Stalled
	}
	switch {
	case bad < 0:
		return fleet.Proper
	case bad < stalled && o.ReadRate > 0:
		return fleet.Slow
	case bad < stalled:
		return fleet.Asleep
	}
	kinds := []fleet.Manner{fleet.Asleep, fleet.Slow, fleet.Resetting, fleet.HalfClose, fleet.Rubbish}
	return kinds[bad%len(kinds)]
}

// resolve is the one address to which all devices connect.
func resolve(ctx context.Context, u *url.URL) (netip.AddrPort, error) {
	port := map[string]int{"http": 80, "https": 443}[u.Scheme]
	if u.Port() != "" {
		var err error
		if port, err = strconv.Atoi(u.Port()); err != nil || port < 1 || port > 65535 {
			return netip.AddrPort{}, fmt.Errorf("--url has the port %q", u.Port())
		}
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", u.Hostname())
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("--url: %w", err)
	}
	at := found[0].Unmap()
	for _, a := range found { // a server that listens on IPv4 only is the common case
		if a.Unmap().Is4() {
			at = a.Unmap()
			break
		}
	}
	return netip.AddrPortFrom(at, uint16(port)), nil
}
