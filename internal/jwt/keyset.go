package jwt

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"downlink/internal/backoff"
)

// JWKSOptions say where a JSON Web Key Set is, and how long it counts.
type JWKSOptions struct {
	URL     string
	Issuer  string        // whose tokens it is for, and no one else's; empty: those of all issuers that have no set of their own
	CAFile  string        // PEM certificates that vouch for the server; empty: the system's
	Refresh time.Duration // how often it is fetched; a key replaced under its kid is noticed within it
	MaxAge  time.Duration // how long the keys count while they can't be fetched again
}

const (
	// coolDown is the least time from one fetch to another that a token asks
	// for: whoever makes up kids can't make us fetch more often. It is also how
	// far an issuer's clock may differ from ours in issuedSince.
	coolDown = 10 * time.Second
	// fetchTimeout bounds one fetch, and so what a token waits for one.
	fetchTimeout = 5 * time.Second
)

// A keySet is the fetched keys. One goroutine fetches (run); a token whose key
// is there never waits for it.
type keySet struct {
	// Set at construction.
	opts    JWKSOptions
	fetch   func(context.Context) (keyring, error)
	close   func()
	metrics setMetrics
	log     *slog.Logger
	wanted  chan struct{} // wakes run for a flight

	now atomic.Pointer[fetched] // nil until the first fetch that worked

	// Guarded by mu.
	mu     sync.Mutex
	began  time.Time     // of the last fetch
	flight chan struct{} // closed when the fetch that is wanted or under way ends; nil if there is none
}

// fetched is a key set and when it was asked for.
type fetched struct {
	keys keyring
	at   time.Time
}

func newKeySet(jwks JWKSOptions, o Options) (*keySet, error) {
	f, err := newFetcher(jwks)
	if err != nil {
		return nil, err
	}
	return &keySet{
		opts: jwks, fetch: f.fetch, close: f.http.CloseIdleConnections,
		metrics: o.Metrics.set(o.Holders, jwks.Issuer), log: o.Logger.With("for", o.Holders), wanted: make(chan struct{}, 1),
	}, nil
}

// current is the keys, nil if there are none that count.
func (s *keySet) current() *fetched {
	if f := s.now.Load(); f != nil && time.Since(f.at) <= s.opts.MaxAge {
		return f
	}
	return nil
}

// find is the keys that may have signed the token: at least one, or why not. A
// kid that isn't known has the set fetched anew, if that wasn't done just now.
func (s *keySet) find(ctx context.Context, t *Token) (keyring, error) {
	f := s.current()
	if f != nil {
		if keys := f.keys.find(t.alg, t.kid); len(keys) > 0 {
			return keys, nil
		}
	}
	if f == nil || t.kid != "" {
		s.await(ctx)
		if f = s.current(); f == nil {
			return nil, ErrKeysUnavailable
		}
		if keys := f.keys.find(t.alg, t.kid); len(keys) > 0 {
			return keys, nil
		}
	}
	if t.kid != "" && t.claims.issuedSince(f.at.Add(-coolDown)) {
		return nil, ErrKeysUnavailable // its key may be younger than the set: the next fetch shows
	}
	return nil, f.keys.whyNone(t)
}

// issuedSince is what the token says of itself, unproven. Who lies gains no
// more than a "come back later".
func (c claims) issuedSince(when time.Time) bool {
	at, ok := numericDate(c.iat)
	return ok && at.After(when)
}

// await waits for a fetch that is under way, or asks for one if the last
// began long enough ago.
func (s *keySet) await(ctx context.Context) {
	s.mu.Lock()
	if s.flight == nil {
		if !s.began.IsZero() && time.Since(s.began) < coolDown {
			s.mu.Unlock()
			return
		}
		s.flight = make(chan struct{})
		s.wanted <- struct{}{} // has room: takeOff empties it before it lets go of a flight
	}
	flight := s.flight
	s.mu.Unlock()
	timeout := time.NewTimer(fetchTimeout)
	defer timeout.Stop()
	select {
	case <-flight:
	case <-timeout.C:
	case <-ctx.Done():
	}
}

// run fetches at once, then at each interval and when a token asks, until ctx
// ends.
func (s *keySet) run(ctx context.Context) {
	defer s.close()
	again := backoff.Backoff{Base: time.Second, Max: min(30*time.Second, s.opts.Refresh)}
	said := ""
	for failures := 0; ; {
		s.takeOff()
		err := s.refresh(ctx)
		s.land()
		if ctx.Err() != nil {
			return
		}
		pause := backoff.Jitter(s.opts.Refresh*9/10, 0.1) // never longer than Refresh
		if err != nil {
			pause = again.Delay(failures)
			failures++
			if said != err.Error() { // once for each obstacle
				said = err.Error()
				s.log.Warn("the keys that tokens are checked with can't be fetched; trying on", "error", err)
			}
		} else {
			if said != "" {
				s.log.Warn("the keys that tokens are checked with have been fetched again")
			}
			failures, said = 0, ""
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-s.wanted:
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// takeOff begins a flight, or goes on with the one that was asked for.
func (s *keySet) takeOff() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flight == nil {
		s.flight = make(chan struct{})
	}
	s.began = time.Now()
	select {
	case <-s.wanted:
	default:
	}
}

func (s *keySet) land() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.flight)
	s.flight = nil
}

// refresh fetches once. After an error the old keys stay.
func (s *keySet) refresh(ctx context.Context) error {
	at := time.Now()
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	keys, err := s.fetch(ctx)
	if err != nil {
		s.metrics.failed.Inc()
		return err
	}
	s.now.Store(&fetched{keys: keys, at: at})
	s.metrics.done.Inc()
	s.metrics.fetched.SetToCurrentTime()
	s.metrics.keys.Set(float64(len(keys)))
	return nil
}
