package rpc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	"downlink/internal/governor"
	"downlink/internal/governor/rpc/governorv1"
)

// visitKey finds a request's visit in its context.
type visitKey struct{}

// A visit is what connect doesn't show of a request.
type visit struct {
	*http.ResponseController
	request *http.Request
}

// Watch implements governorv1.GovernorHandler.
func (s *Service) Watch(ctx context.Context, _ *governorv1.WatchRequest, out *connect.ServerStream[governorv1.WatchResponse]) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	v, _ := ctx.Value(visitKey{}).(*visit) // ServeHTTP has put it there
	if s.opts.Stay != nil {
		if err := s.opts.Stay(v.request); err != nil {
			return connect.NewError(connect.CodeResourceExhausted, err)
		}
	}
	// The request has been read. net/http may go on reading, and would take its deadline
	// for the end of the client.
	if err := v.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	changes, more := s.opts.Governor.Changes(0)
	last := latest(changes, 0)
	changes = nil // with the first message there are none
	again := time.NewTicker(s.every)
	defer again.Stop()
	for {
		if err := s.tell(v, out, changes); err != nil {
			return err
		}
		changes = nil
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.end:
			return connect.NewError(connect.CodeUnavailable, errors.New("this governor stops; its last ratio stands until another answers"))
		case <-again.C:
		case <-more:
			changes, more = s.opts.Governor.Changes(last)
			last = latest(changes, last)
		}
	}
}

// latest is the number of the last of changes, or that of before.
func latest(changes []governor.Change, before uint64) uint64 {
	if n := len(changes); n > 0 {
		return changes[n-1].Number
	}
	return before
}

// tell sends a message.
func (s *Service) tell(v *visit, out *connect.ServerStream[governorv1.WatchResponse], changes []governor.Change) error {
	next := new(governorv1.WatchResponse)
	if err := translate(map[string]any{"changes": changes}, next); err != nil {
		return err
	}
	var err error
	if next.State, err = s.state(); err != nil {
		return err
	}
	if err := v.SetWriteDeadline(time.Now().Add(s.limit)); err != nil {
		return err
	}
	if err := out.Send(next); err != nil {
		return err
	}
	// One that passes while nothing is sent would end an HTTP/2 stream.
	return v.SetWriteDeadline(time.Time{})
}

func (s *Service) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return connect.NewError(connect.CodeUnavailable, errors.New("this governor stops"))
	case s.watching >= maxWatchers:
		return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("%d programs watch already; ask for the state from time to time instead", maxWatchers))
	}
	s.watching++
	return nil
}

func (s *Service) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watching--
}

// Watching is how many watches are open.
func (s *Service) Watching() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watching
}

// healthWatch is the health's stream: a message when it changes, and else nothing.
const healthWatch = HealthPath + "Watch"

// farewell is how long the last message of a stream may take.
const farewell = 300 * time.Millisecond

// watchHealth serves it. It may be silent for days, so no deadline applies; and it
// would go on for as long as its client likes, so it ends with the service, once it
// has had the time to say that.
func (s *Service) watchHealth(w http.ResponseWriter, r *http.Request) {
	if !s.enterHealth() {
		http.Error(w, "as many watch the health as may; ask for it from time to time instead", http.StatusServiceUnavailable)
		return
	}
	defer s.leaveHealth()
	if s.opts.Stay != nil {
		if err := s.opts.Stay(r); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
	}
	rc := http.NewResponseController(w)
	_ = errors.Join(rc.SetReadDeadline(time.Time{}), rc.SetWriteDeadline(time.Time{}))
	ctx, cancel := context.WithCancel(r.Context())
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel()
	waiting.Go(func() {
		select {
		case <-s.end:
			select {
			case <-time.After(farewell):
			case <-ctx.Done():
			}
			cancel()
		case <-ctx.Done():
		}
	})
	s.mux.ServeHTTP(w, r.WithContext(ctx))
}

// enterHealth reports whether one more may watch the health; leaveHealth gives the
// place back.
func (s *Service) enterHealth() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.watchingHealth >= maxHealthWatchers {
		return false
	}
	s.watchingHealth++
	return true
}

func (s *Service) leaveHealth() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchingHealth--
}

// WatchingHealth is how many watch the health.
func (s *Service) WatchingHealth() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watchingHealth
}
