package gateway

import (
	"context"
	"strings"
	"time"

	"downlink/internal/eventlog"
	"downlink/internal/eventlog/filelog"
	"downlink/internal/eventlog/redislog"
)

// LogOptions say where events are kept.
type LogOptions struct {
	URL           string // file:DIR, redis://… or rediss://…
	Prefix        string
	Shards        int
	Window        time.Duration
	MaxEventBytes int
	AllowEviction bool
	Evidence      bool     // failover: evidence instead of cautious
	TLS           TLSFiles // for rediss://
}

// TLSFiles are the PEM files of a rediss:// log.
type TLSFiles = redislog.TLSFiles

// openLog opens the log that the settings name. The error wraps
// eventlog.ErrUnavailable if it may help to try again later.
func openLog(ctx context.Context, o Options, m instruments) (eventlog.Log, error) {
	dir, isFile := strings.CutPrefix(o.Log.URL, "file:")
	if isFile {
		return filelog.Open(filelog.Options{
			Dir: dir, Shards: o.Log.Shards, Window: o.Log.Window,
			MaxEventBytes: o.Log.MaxEventBytes, Logger: o.Logger.With("part", "log"), Metrics: m.file,
		})
	}
	failover := redislog.Cautious
	if o.Log.Evidence {
		failover = redislog.Evidence
	}
	return redislog.Open(ctx, redislog.Options{
		URL: o.Log.URL, TLS: o.Log.TLS, Prefix: o.Log.Prefix, Shards: o.Log.Shards,
		Window: o.Log.Window, SweepStep: o.SweepInterval, MaxEventBytes: o.Log.MaxEventBytes,
		AllowEviction: o.Log.AllowEviction, Failover: failover,
		Logger: o.Logger.With("part", "log"), Metrics: m.redis,
	})
}
