package ticket

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Results of a request with a ticket that aren't failures.
const (
	redeemed    = "redeemed"
	byCookie    = "cookie"
	unavailable = "unavailable"
)

// Metrics of tickets.
type Metrics struct {
	issued   prometheus.Counter
	requests map[string]prometheus.Counter // by result
}

// NewMetrics registers the metrics; reg may be nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	with := promauto.With(reg)
	requests := with.NewCounterVec(prometheus.CounterOpts{
		Name: "downlink_ticket_requests_total", Help: "Requests of devices with a ticket, by result: redeemed (or let in by a cookie instead, if another had redeemed it), cookie (used before, by the browser that comes back), unavailable (the log can't say whether it was used), ticket_ambiguous, ticket_invalid, ticket_expired, ticket_used.",
	}, []string{"result"})
	m := &Metrics{
		issued: with.NewCounter(prometheus.CounterOpts{
			Name: "downlink_tickets_issued_total", Help: "Tickets that back ends got.",
		}),
		requests: make(map[string]prometheus.Counter),
	}
	for _, result := range []string{redeemed, byCookie, unavailable} {
		m.requests[result] = requests.WithLabelValues(result)
	}
	for _, f := range Failures() {
		m.requests[string(f)] = requests.WithLabelValues(string(f))
	}
	return m
}

// count counts what became of a ticket.
func (m *Metrics) count(err error) {
	failure, ok := errors.AsType[*Error](err)
	switch {
	case ok:
		m.requests[string(failure.Failure)].Inc()
	case err != nil:
		m.requests[unavailable].Inc()
	default:
		m.requests[redeemed].Inc()
	}
}
