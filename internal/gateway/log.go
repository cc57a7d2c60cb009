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
	URL           string // file:DIR, or one of redisurl.Forms
	Prefix        string
	Shards        int
	Groups        int // in a Redis Cluster
	Window        time.Duration
	Replicas      int  // that must have an event before it is accepted
	ReadReplica   bool // the tail reads a replica
	AllowEviction bool
	Evidence      bool     // failover: evidence instead of cautious
	TLS           TLSFiles // for rediss
}

// pause is by how much an event may be late so that a read of the log brings
// several when events are frequent. It spares a server that many gateways read;
// the embedded log has one reader, whose reads cost next to nothing.
func (o LogOptions) pause() time.Duration {
	if o.embedded() {
		return 0
	}
	return 5 * time.Millisecond
}

func (o LogOptions) embedded() bool { return strings.HasPrefix(o.URL, "file:") }

// TLSFiles are the PEM files of a rediss log.
type TLSFiles = redislog.TLSFiles

// openLog opens the log that the settings name. The error wraps
// eventlog.ErrUnavailable if it may help to try again later.
func openLog(ctx context.Context, o Options, m instruments) (eventlog.Log, error) {
	if o.Log.embedded() {
		return filelog.Open(filelog.Options{
			Dir: strings.TrimPrefix(o.Log.URL, "file:"), Shards: o.Log.Shards, Window: o.Log.Window,
			MaxEventBytes: o.Limits.Highest(eventBytes), Logger: o.Logger.With("part", "log"), Metrics: m.file,
		})
	}
	redis := redisOptions(o, m.redis)
	redis.MaxEventBytes = o.Limits.Highest(eventBytes)
	return redislog.Open(ctx, redis)
}

func redisOptions(o Options, m *redislog.Metrics) redislog.Options {
	failover := redislog.Cautious
	if o.Log.Evidence {
		failover = redislog.Evidence
	}
	return redislog.Options{
		URL: o.Log.URL, TLS: o.Log.TLS, Prefix: o.Log.Prefix, Shards: o.Log.Shards, Groups: o.Log.Groups,
		Replicas: o.Log.Replicas, ReadReplica: o.Log.ReadReplica,
		Window: o.Log.Window, SweepStep: o.SweepInterval,
		AllowEviction: o.Log.AllowEviction, Failover: failover,
		Logger: o.Logger.With("part", "log"), Metrics: m,
	}
}
