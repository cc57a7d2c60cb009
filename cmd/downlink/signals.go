package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// signals are those that a gateway heeds.
type signals struct {
	end    chan os.Signal // SIGTERM and SIGINT, of which the second counts too
	hangup chan os.Signal
}

// takeSignals takes them over from now on. main does it for serve before anything
// else: a signal that comes while the settings are read or the log is opened would
// kill the process, also SIGHUP, which asks for no end.
func takeSignals() *signals {
	s := &signals{end: make(chan os.Signal, 2), hangup: make(chan os.Signal, 1)}
	signal.Notify(s.end, syscall.SIGTERM, os.Interrupt)
	signal.Notify(s.hangup, syscall.SIGHUP)
	return s
}

// stop gives the signals back. Nothing reads them any more.
func (s *signals) stop() {
	signal.Stop(s.end)
	signal.Stop(s.hangup)
	close(s.end)
}

// until is a context that the first SIGTERM or SIGINT ends. hurry is closed by the
// second, and by the first if it is SIGINT: somebody sits at a terminal, and no load
// balancer has to notice anything. The caller calls stop in the end.
func (s *signals) until() (ctx context.Context, hurry <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	hasty := make(chan struct{})
	go func() {
		first, ok := <-s.end
		if !ok {
			return
		}
		cancel(fmt.Errorf("%s signal received", first))
		if first != os.Interrupt {
			if _, ok := <-s.end; !ok {
				return
			}
		}
		close(hasty)
	}()
	return ctx, hasty, func() {
		s.stop()
		cancel(nil)
	}
}
