package game

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are what a hunt shows of itself.
type metrics struct {
	players, playing, ratio, room prometheus.Gauge
	outbox, oldest                prometheus.Gauge
	ask                           prometheus.Histogram
	joins, solves, published      *prometheus.CounterVec
	held                          *prometheus.CounterVec
	update                        *prometheus.HistogramVec
	refused                       prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	gauge := func(name, help string) prometheus.Gauge {
		return f.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	counter := func(name, help, label string, values ...string) *prometheus.CounterVec {
		c := f.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
		for _, v := range values {
			c.WithLabelValues(v)
		}
		return c
	}
	m := &metrics{
		players: gauge("hunt_players", "Players who ever joined."),
		playing: gauge("hunt_players_active", "Players who asked for something lately."),
		ratio:   gauge("hunt_governor_ratio", "What the governor said last; 1: everybody may join, as without one."),
		room:    gauge("hunt_room", "How many may play at the moment; +Inf: as many as the gateways take."),
		outbox:  gauge("hunt_outbox_events", "Events for players that Downlink hasn't got yet."),
		oldest:  gauge("hunt_outbox_oldest_seconds", "How long the oldest of them has waited."),
		ask: f.NewHistogram(prometheus.HistogramOpts{
			Name: "hunt_governor_ask_seconds", Help: "How long a join waited for the governor's word.",
			Buckets: []float64{1e-7, 1e-6, 1e-5, 1e-4, 0.001, 0.005, 0.05, 0.5},
		}),
		joins:     counter("hunt_joins_total", "Requests to join.", "result", "admitted", "again", "waiting", "unavailable"),
		solves:    counter("hunt_solves_total", "Answers to challenges.", "result", "right", "wrong", "repeated", "other", "busy", "unavailable"),
		published: counter("hunt_published_total", "Events that Downlink has stored.", "what", whatBoard, whatPlayer),
		held:      counter("hunt_publish_held_total", "How often publishing had to wait: Downlink's rate (429), or Downlink or Redis away.", "why", heldByRate, heldAway),
		update: f.NewHistogramVec(prometheus.HistogramOpts{
			Name: "hunt_update_seconds", Help: "From a solve that counted until Downlink had stored what tells of it; the board includes the least time between two.",
			Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"what"}),
		refused: f.NewCounter(prometheus.CounterOpts{Name: "hunt_refused_total", Help: "Events that Downlink will never take: a fault of the game."}),
	}
	m.ratio.Set(1)
	m.room.Set(math.Inf(1))
	m.update.WithLabelValues(whatBoard)
	m.update.WithLabelValues(whatPlayer)
	return m
}
