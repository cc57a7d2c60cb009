// Package revoked owns a gateway's copy of the lists of revoked devices: it keeps
// up with the log, and asks it where the copy may be behind. It lets nobody in
// and ends no stream; it says who is on a list. Its invariant: a device leaves
// the copy only if an order or an operator's hand took it off the list, never
// because the log forgot.
package revoked

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"downlink/internal/backoff"
	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// Options for a Set.
type Options struct {
	Shards int // as in the log
	// Cut is called for each device that has come onto a list since Load, after
	// Has reports it: whoever is served already must go. From Run's goroutine.
	Cut     func(device string)
	Look    time.Duration // how often the log is asked without any news, jittered; 0 means 30 s
	Metrics *Metrics
	Logger  *slog.Logger
}

// A Set is the lists of all shards. Safe for concurrent use.
type Set struct {
	// Set at construction.
	source eventlog.Controller
	opts   Options
	news   chan struct{} // capacity one

	lists []list
}

// A list is one shard's.
type list struct {
	mu      sync.RWMutex
	version eventlog.ListVersion
	devices map[string]eventlog.Revocation
}

// Each read of the lists is followed by a pause: orders may come by the
// thousand, and each round reads a whole list for one of them. It is at least
// restLeast and restShare times as long as the round took, so that all this
// costs the log a tenth of its time at most; an order is obeyed within 2 s.
const (
	restLeast = 50 * time.Millisecond
	restShare = 9
	restMost  = time.Second
)

const defaultLook = 30 * time.Second

// New makes the sets of a log. They are empty before Load.
func New(source eventlog.Controller, o Options) *Set {
	if o.Look == 0 {
		o.Look = defaultLook
	}
	return &Set{source: source, opts: o, news: make(chan struct{}, 1), lists: make([]list, o.Shards)}
}

// Load reads all lists, so that no device is served before they are known. The
// error is the log's.
func (s *Set) Load(ctx context.Context) error {
	if err := s.round(ctx, func(string) {}); err != nil {
		return fmt.Errorf("reading the lists of revoked devices: %w", err)
	}
	return nil
}

// Has reports whether a device is revoked.
func (s *Set) Has(device string) bool {
	_, revoked := s.Find(device)
	return revoked
}

// Find is what keeps a device out; revoked is false if nothing does.
func (s *Set) Find(device string) (r eventlog.Revocation, revoked bool) {
	l := &s.lists[event.Shard(device, len(s.lists))]
	l.mu.RLock()
	defer l.mu.RUnlock()
	r, revoked = l.devices[device]
	return r, revoked
}

// Changed says that a list has changed, or may have: the log is asked as soon
// as possible. It doesn't block.
func (s *Set) Changed() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// Run keeps up with the log until ctx ends. While the log can't be reached, the
// lists stay as they are.
func (s *Set) Run(ctx context.Context) error {
	retry := backoff.Backoff{Base: 100 * time.Millisecond, Max: time.Second}
	look := time.NewTimer(backoff.Jitter(s.opts.Look, 0.3))
	defer look.Stop()
	for failures := 0; ; {
		rest := restLeast
		select {
		case <-ctx.Done():
			return nil
		case <-s.news:
		case <-look.C:
		}
		began := time.Now()
		err := s.round(ctx, s.opts.Cut)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			s.failed(err, failures == 0)
			rest = retry.Delay(failures)
			failures++
			s.Changed() // again
		default:
			if failures > 0 {
				s.opts.Logger.Warn("the lists of revoked devices can be read again")
			}
			failures = 0
			rest = min(max(rest, restShare*time.Since(began)), restMost)
		}
		look.Reset(backoff.Jitter(s.opts.Look, 0.3))
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(rest):
		}
	}
}

func (s *Set) failed(err error, first bool) {
	s.opts.Metrics.failures.Inc()
	if first {
		s.opts.Logger.Warn("the lists of revoked devices can't be read; what is known of them counts", "error", err)
	}
}

// round reads the lists that differ from what is known.
func (s *Set) round(ctx context.Context, cut func(string)) error {
	versions, err := s.source.RevokedVersions(ctx)
	if err != nil {
		return err
	}
	if len(versions) != len(s.lists) {
		return fmt.Errorf("the log has %d lists of revoked devices, this gateway is set to %d shards", len(versions), len(s.lists))
	}
	var errs []error
	for i := range s.lists {
		if versions[i] != s.lists[i].known() {
			errs = append(errs, s.read(ctx, i, cut))
		}
	}
	return errors.Join(errs...)
}

func (l *list) known() eventlog.ListVersion {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.version
}

// read takes over a list. Only one goroutine at a time may.
func (s *Set) read(ctx context.Context, shard int, cut func(string)) error {
	found, err := s.source.Revoked(ctx, shard)
	if err != nil {
		return err
	}
	l := &s.lists[shard]
	if was := l.known(); was.Lost(found.Version) {
		return s.giveAgain(ctx, shard, found)
	}
	for _, device := range l.replace(found) {
		cut(device)
	}
	s.count()
	return nil
}

// giveAgain orders anew what the log has forgotten: Redis came back without its
// data, or a failover lost the newest. Until that has succeeded, nobody is let
// in again.
func (s *Set) giveAgain(ctx context.Context, shard int, found eventlog.Revoked) error {
	listed := make(map[string]bool, len(found.List))
	for _, r := range found.List {
		listed[r.Device] = true
	}
	given := 0
	for _, r := range s.lists[shard].missing(listed) {
		order := eventlog.Control{Kind: eventlog.Revoke, Device: r.Device, Reason: r.Reason}
		if _, err := s.source.Control(ctx, shard, order); err != nil {
			return err
		}
		given++
	}
	s.opts.Metrics.again.Add(float64(given))
	if given > 0 {
		s.opts.Logger.Warn("the log had lost revocations that this gateway knew; they were given again", "shard", shard, "devices", given)
	}
	// What was known is on the list now: whatever it says from here on counts.
	s.lists[shard].forget()
	s.Changed()
	return nil
}

// missing are the devices that are known and not listed.
func (l *list) missing(listed map[string]bool) (out []eventlog.Revocation) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for device, r := range l.devices {
		if !listed[device] {
			out = append(out, r)
		}
	}
	return out
}

// forget forgets the version, so that the list is read anew; not the devices.
func (l *list) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.version = eventlog.ListVersion{}
}

// replace takes over a list, and returns who is new on it.
func (l *list) replace(with eventlog.Revoked) (added []string) {
	devices := make(map[string]eventlog.Revocation, len(with.List))
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range with.List {
		devices[r.Device] = r
		if _, known := l.devices[r.Device]; !known {
			added = append(added, r.Device)
		}
	}
	l.version, l.devices = with.Version, devices
	return added
}

// count sets the gauge.
func (s *Set) count() {
	n := 0
	for i := range s.lists {
		s.lists[i].mu.RLock()
		n += len(s.lists[i].devices)
		s.lists[i].mu.RUnlock()
	}
	s.opts.Metrics.devices.Set(float64(n))
}
