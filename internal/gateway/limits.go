package gateway

import (
	"fmt"
	"syscall"

	"downlink/internal/limits"
)

// Names of the limits that parts of the gateway are given; each is a setting.
const (
	maxConnections = "max_connections"
	deviceStreams  = "streams_per_device"
	eventBytes     = "max_event_bytes"
	pendingEvents  = "pending_events"
	pendingBytes   = "pending_bytes"
	hotBytes       = "hot_window_bytes"
	publisherRate  = "publish_rate_per_token"
	targetRate     = "publish_rate_per_device"
	headerBytes    = "max_header_bytes"
)

// bindLimits joins the limits with what the process was given: so many
// connections of either port fit into its descriptors. It registers their
// gauges.
func (g *Gateway) bindLimits(devices, backends int) {
	all, files := g.opts.Limits, openFiles()
	all.Found(limits.Descriptors, files)
	all.Found(limits.BackendConnections, int64(backends))
	all.Bind(maxConnections, func(configured int64) (int64, string) {
		fit := int64(devices)
		switch {
		case configured == 0:
			return fit, fmt.Sprintf("not configured, so it is what the %d file descriptors of the process (ulimit -n) leave for devices", files)
		case configured > fit:
			return fit, fmt.Sprintf("the process may have %d file descriptors (ulimit -n), of which %d are kept back for the log and %d are the back end's", devices+backends+keptBack, keptBack, backends)
		}
		return configured, ""
	})
	all.Uses(hotBytes, func() float64 {
		if f := g.flow.Load(); f != nil {
			return float64(f.shards.HotBytes())
		}
		return 0
	})
	all.Register(g.registry)
}

// openFiles is how many file descriptors the process may have.
func openFiles() int64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0 // shareDescriptors has said so already
	}
	return int64(min(limit.Cur, 1<<30))
}
