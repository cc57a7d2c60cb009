package gateway

import (
	"context"
	"errors"
	"sync"
	"time"

	"downlink/internal/backoff"
	"downlink/internal/dial"
	"downlink/internal/eventlog"
	"downlink/internal/lease"
	"downlink/internal/ring"
	"downlink/internal/session"
	"downlink/internal/trail"
)

// own dials the devices of our shards until ctx ends, and lets go of them in order.
func (g *Dialler) own(ctx context.Context, f *flow) error {
	owning, err := g.owning(f)
	if err != nil {
		return err
	}
	engine := dial.New(g.engineOptions(f, owning.lease))
	owning.engine = engine
	g.engine.Store(engine)
	running, cancel := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	parts.Go(func() { _ = engine.Run(running) }) // ends with running, without an error
	defer parts.Wait()
	defer cancel()
	if !g.awaitInventory(ctx) {
		return nil
	}
	return owning.run(ctx)
}

// awaitInventory waits until it is known which devices there are: nobody should
// own devices that it doesn't know.
func (g *Dialler) awaitInventory(ctx context.Context) bool {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !g.inventory.Ready() {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return ctx.Err() == nil
}

// An owning is how a dialler knows its shards, and tells the engine.
type owning struct {
	lease  func(shard int) (lease.Lease, bool)
	run    func(ctx context.Context) error // until ctx ends, and all was let go of
	engine *dial.Engine
}

func (g *Dialler) owning(f *flow) (*owning, error) {
	if g.dial.Owner == Static {
		return g.fixed(f), nil
	}
	return g.inRing(f)
}

// fixed owns what arithmetic says, for ever.
func (g *Dialler) fixed(f *flow) *owning {
	leases := make([]*lease.Lease, f.log.Shards())
	for i := range leases {
		if ring.Static(i, g.dial.Index, g.dial.Members, g.dial.Replication) {
			leases[i] = &lease.Lease{Shard: i}
		}
	}
	own := &owning{lease: func(shard int) (lease.Lease, bool) {
		if l := leases[shard]; l != nil {
			return *l, true
		}
		return lease.Lease{}, false
	}}
	own.run = func(ctx context.Context) error {
		for _, l := range leases {
			if l != nil {
				own.engine.Took(*l)
			}
		}
		<-ctx.Done()
		g.leaves.Store(true)
		soon, cancel := context.WithTimeout(context.Background(), g.leaveTime())
		defer cancel()
		soon, cancel = g.inHaste(soon)
		defer cancel()
		var letting sync.WaitGroup
		for i, l := range leases {
			if l != nil {
				letting.Go(func() { own.engine.Let(soon, i, lease.LossLeaving) })
			}
		}
		letting.Wait()
		return nil
	}
	return own
}

// inHaste is ctx, which ends as soon as whoever asked for the end asks once more.
func (g *Dialler) inHaste(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(g.haste, cancel)
	return ctx, func() { stop(); cancel() }
}

// leaveTime is how long letting go of all shards may take.
func (g *Dialler) leaveTime() time.Duration {
	return max(g.dial.Deadline-g.opts.ShutdownTimeout, time.Second)
}

// inRing owns what the ring proposes and a lease confirms.
func (g *Dialler) inRing(f *flow) (*owning, error) {
	keeper, ok := f.log.(eventlog.LeaseKeeper)
	if !ok {
		return nil, errors.New("owner ring needs a log on Redis, which holds the leases")
	}
	own := new(owning)
	member, err := lease.New(lease.Options{
		Keeper: keeper, Name: g.dial.Member, Shards: f.log.Shards(), TTL: g.dial.LeaseTTL, Leave: g.leaveTime(), Haste: g.haste.Done(),
		Owners: ring.Owners,
		Took:   func(l lease.Lease) { own.engine.Took(l) },
		Let: func(ctx context.Context, shard int, why lease.Loss) {
			ctx, cancel := g.inHaste(ctx)
			defer cancel()
			own.engine.Let(ctx, shard, why)
		},
		Metrics: g.dials.lease, Logger: g.opts.Logger.With("part", "lease"),
	})
	if err != nil {
		return nil, err
	}
	g.member.Store(member)
	own.lease = member.Lease
	own.run = func(ctx context.Context) error {
		leaving := context.AfterFunc(ctx, func() { g.leaves.Store(true) })
		defer leaving()
		return member.Run(ctx)
	}
	return own, nil
}

func (g *Dialler) engineOptions(f *flow, leases func(int) (lease.Lease, bool)) dial.Options {
	value := g.opts.Limits.Value
	o := dial.Options{
		Transport: g.dial.Transport, Shards: f.log.Shards(),
		Devices: g.inventory, Log: f.shards, Positions: f.log, Lease: leases, Revoked: f.revoked.Has,
		Client: g.egress.Client, Poster: g.poster,
		Session:  session.Options{MaxPending: value(pendingEvents), MaxBytes: value(pendingBytes)},
		Rate:     value(dialRate),
		Sockets:  value(maxConnections),
		InFlight: value(postsInFlight),
		Window:   g.opts.Log.Window, Keepalive: g.opts.Keepalive,
		WriteTimeout: g.opts.WriteTimeout, DialTimeout: g.dial.DialTimeout,
		Backoff: backoff.Backoff{Base: g.opts.Retry, Max: g.dial.BackoffMax},
		Note: func(device, word, detail string) {
			f.trail.Note(device, false, trail.Entry{Kind: trail.Ended, Word: word, Detail: detail})
		},
		Metrics: g.dials.dial, Logger: g.opts.Logger.With("part", "dial"),
	}
	if m := g.member.Load(); m != nil {
		o.Member, o.Outranked = g.dial.Member, m.Outranked
	}
	return o
}
