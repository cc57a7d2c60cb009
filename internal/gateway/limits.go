package gateway

import "downlink/internal/limits"

// Names of the limits that parts of the gateway are given; each is a setting.
const (
	deviceStreams = "streams_per_device"
	eventBytes    = "max_event_bytes"
	pendingEvents = "pending_events"
	pendingBytes  = "pending_bytes"
	hotBytes      = "hot_window_bytes"
	publisherRate = "publish_rate_per_token"
	publishRate   = "publish_rate"
	targetRate    = "publish_rate_per_device"
	headerBytes   = "max_header_bytes"
	trailEntries  = "trail_entries"
	drainRate     = "drain_rate"

	governorFloor      = "governor_floor"
	governorFollowers  = "governor_followers"       // fixed
	governorWatchers   = "governor_watchers"        // fixed
	governorHealth     = "governor_health_watchers" // fixed
	governorCallers    = "governor_callers"         // fixed
	governorReserve    = "governor_reserve"
	governorMaximum    = "governor_maximum"
	shedRate           = "governor_shed_rate"
	rebalanceRate      = "rebalance_rate"
	rebalanceThreshold = "rebalance_threshold"
)

// bindLimits joins the limits with what the process was given, and registers
// their gauges.
func (g *Gateway) bindLimits(devices, backend share) {
	all := g.opts.Limits
	all.Found(limits.Descriptors, int64(devices.process))
	g.bindEntrance(devices, backend)
	all.Uses(hotBytes, g.hotBytes)
	all.Register(g.registry)
}

// hotBytes is what the hot window has in memory.
func (g *base) hotBytes() float64 {
	if f := g.flow.Load(); f != nil {
		return float64(f.shards.HotBytes())
	}
	return 0
}

// sayBounds tells at the start which limits can't be what was asked for.
func (g *base) sayBounds() {
	for _, s := range g.opts.Limits.States() {
		if s.Origin != limits.FromDefault && s.Effective != s.Configured {
			g.opts.Logger.Warn("a limit isn't what it was configured to be", "limit", s.Name, "configured", s.Configured, "effective", s.Effective, "why", s.Why)
		}
	}
}
