package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"downlink/internal/backoff"
	"downlink/internal/eventlog"
	"downlink/internal/governor/api"
	"downlink/internal/governor/kafkalag"
	"downlink/internal/governor/settingsfile"
	"downlink/internal/metrics"
	"downlink/internal/problem"
	"downlink/internal/revoked"
	"downlink/internal/server"
)

// base is what all programs have in common: the back end's port, its governor, and
// (but for a Sidecar) the flow from the log.
type base struct {
	// Set at construction.
	opts     Options
	registry *prometheus.Registry
	metrics  instruments
	identity *credentials
	instance string // random
	ready    server.Ready
	address  func() string                         // by which people know it
	dials    func(device string, shard int) string // who is to dial it; nil: devices connect
	backend  *server.Server

	governing *api.Handlers      // show and change the governor
	settings  *settingsfile.File // of that governor
	kafka     *kafkalag.Slot     // a signal of it

	flow   atomic.Pointer[flow] // nil until the log has been reached
	failed chan error           // what a part of the flow can't go on from
}

// prepare makes what needs neither files nor sockets.
func (g *base) prepare(o Options) {
	g.opts, g.instance, g.failed = o, rand.Text(), make(chan error, 1)
	g.registry = metrics.NewRegistry(metrics.ReadBuild(o.Version))
	g.metrics = newInstruments(g.registry)
	g.governing = g.showGovernor()
}

func (g *base) listen(o server.Options) (*server.Server, error) {
	o.Logger = g.opts.Logger
	o.MaxHeaderBytes = g.opts.Limits.Value(headerBytes)()
	o.MaxConcurrentStreams = g.opts.Limits.Value(http2Streams)()
	o.ReadHeaderTimeout, o.WriteTimeout = g.opts.ReadHeaderTimeout, g.opts.WriteTimeout
	return server.Listen(o)
}

// BackendAddr is the bound address of the back end's port.
func (g *base) BackendAddr() net.Addr { return g.backend.Addr() }

// open reaches the log, however long it takes, and starts the flow. Meanwhile
// the listeners answer "starting".
func (g *base) open(ctx context.Context, start func(eventlog.Log, *revoked.Set) (*flow, error)) error {
	retry := backoff.Backoff{Base: 200 * time.Millisecond, Max: 5 * time.Second}
	said := ""
	for attempt := 0; ; attempt++ {
		log, lists, err := g.openLog(ctx)
		switch {
		case err == nil:
			if said != "" {
				g.opts.Logger.Warn("the log has been reached")
			}
			f, err := start(log, lists)
			if err != nil {
				return errors.Join(err, log.Close())
			}
			g.flow.Store(f)
			if g.opts.Started != nil {
				g.opts.Started()
			}
			return nil
		case ctx.Err() != nil:
			return nil
		case !errors.Is(err, eventlog.ErrUnavailable):
			return fmt.Errorf("the log can't be used: %w", err)
		case said != err.Error(): // once for each obstacle: there may be several in turn
			said = err.Error()
			g.opts.Logger.Warn("the log can't be reached yet; trying on", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retry.Delay(attempt)):
		}
	}
}

// publish serves POST /v1/events.
func (g *base) publish(w http.ResponseWriter, r *http.Request) {
	if f := g.flow.Load(); f != nil {
		f.publish.ServeHTTP(w, r)
		return
	}
	problem.Write(w, problem.New(problem.LogUnavailable, "the gateway has not reached its log since it started"))
}
