package gateway

import (
	"downlink/internal/access"
	"github.com/prometheus/client_golang/prometheus"

	"downlink/internal/auth"
	"downlink/internal/certs"
	"downlink/internal/control"
	"downlink/internal/cors"
	"downlink/internal/door"
	"downlink/internal/drain"
	"downlink/internal/eventlog"
	"downlink/internal/eventlog/filelog"
	"downlink/internal/eventlog/redislog"
	"downlink/internal/governor"
	"downlink/internal/jwt"
	"downlink/internal/lobby"
	"downlink/internal/metrics"
	"downlink/internal/poll"
	"downlink/internal/publish"
	"downlink/internal/rebalance"
	"downlink/internal/reload"
	"downlink/internal/revoked"
	"downlink/internal/shard"
	"downlink/internal/sse"
	"downlink/internal/sweep"
	"downlink/internal/tail"
	"downlink/internal/ticket"
	"downlink/internal/trail"
)

// instruments are the parts' metrics. They exist from the start, before the
// log has been reached, so that a graph has no holes.
type instruments struct {
	redis   *redislog.Metrics
	file    *filelog.Metrics
	publish *publish.Metrics
	control *control.Metrics
	revoked *revoked.Metrics
	tail    *tail.Metrics
	shard   *shard.Metrics
	sweep   *sweep.Metrics
	door    *door.Metrics
	sse     *sse.Metrics
	poll    *poll.Metrics
	trail   *trail.Metrics
	lobby   *lobby.Metrics
	auth    *auth.Metrics
	jwt     *jwt.Metrics
	certs   *certs.Metrics
	reload  *reload.Metrics
	access  *access.Metrics
	ticket  *ticket.Metrics
	drain   *drain.Metrics

	rebalance    *rebalance.Metrics
	backendCerts *certs.Metrics
	cors         *cors.Metrics
	governor     *governor.Metrics
}

func newInstruments(reg prometheus.Registerer) instruments {
	return instruments{
		redis:   redislog.NewMetrics(reg),
		file:    filelog.NewMetrics(reg),
		publish: publish.NewMetrics(reg),
		control: control.NewMetrics(reg),
		revoked: revoked.NewMetrics(reg),
		tail:    tail.NewMetrics(reg),
		shard:   shard.NewMetrics(reg),
		sweep:   sweep.NewMetrics(reg),
		door:    door.NewMetrics(reg),
		sse:     sse.NewMetrics(reg),
		poll:    poll.NewMetrics(reg),
		trail:   trail.NewMetrics(reg),
		lobby:   lobby.NewMetrics(reg, deviceListener, backendListener),
		auth:    auth.NewMetrics(reg),
		jwt:     jwt.NewMetrics(reg),
		certs:   certs.NewMetrics(reg),
		reload:  reload.NewMetrics(reg, tlsSource, jwtSource, tokensSource, clientSource, configSource, publishersSource, backendJWTSource, backendTLSSource, ticketSource, dialledSource, governorSource),
		access:  access.NewMetrics(reg),
		ticket:  ticket.NewMetrics(reg),
		drain:   drain.NewMetrics(reg),

		rebalance:    rebalance.NewMetrics(reg),
		cors:         cors.NewMetrics(reg),
		governor:     governor.NewMetrics(reg),
		backendCerts: certs.NewBackendMetrics(reg),
	}
}

// Metrics is a registry with every metric that a gateway or a dialler has, none of
// them moving: the source of the reference.
func Metrics(o Options) prometheus.Gatherer {
	reg := metrics.NewRegistry(metrics.ReadBuild(""))
	g := &Gateway{levers: newLevers(o.Limits, nil), base: base{opts: o, registry: reg, metrics: newInstruments(reg)}}
	newDialInstruments(reg) // of a dialler alone
	g.bindLimits(share{}, share{})
	shard.NewSet(eventlog.Store(nil), shard.Options{Shards: 1}).Register(reg)
	signals := Signals()
	levers := []governor.Lever{{Name: governor.Admission}, {Name: governor.Publish}}
	if _, err := governor.New(governor.Options{Signals: signals, Levers: levers, Settings: governor.Defaults(signals), Metrics: g.metrics.governor}); err != nil {
		panic(err) // the defaults aren't allowed: every gateway would fail
	}
	return reg
}
