package gateway

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"downlink/internal/eventlog/redislog"
)

// A Finding is something about a log that is wrong, or likely to be regretted.
type Finding = redislog.Finding

// Unreachable is the code of a finding by which nothing more was looked at.
const Unreachable = redislog.FoundAway

// Diagnose looks at the servers that hold the log and writes nothing. An
// embedded log has none.
func Diagnose(ctx context.Context, o Options) (servers []string, found []Finding, err error) {
	if o.Log.embedded() {
		return nil, nil, nil
	}
	return redislog.Diagnose(ctx, redisOptions(o, redislog.NewMetrics(prometheus.NewRegistry())))
}
