package probes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"downlink/internal/eventlog/redislog"
	"downlink/internal/governor"
)

// RedisOutput is what the busiest server sends. What is much depends on its
// network, which nobody can ask; so it moves nothing before a threshold is set.
func RedisOutput(servers Servers) governor.Signal {
	return rateOf(servers, governor.Signal{
		Probe: probe{name: RedisOutputName},
		Unit:  "bytes/s",
		Help: "What Redis sends, of the server that sends most: each event once to each gateway and replica, and what devices catch up on. " +
			"Set the threshold to about 70 % of what its network carries. Fewer gateways, smaller events or more servers make it less.",
	}, func(l *redislog.Load) uint64 { return l.Output })
}

// RedisCommands is what the busiest server executes, which is bound by one core
// of it. What that core can do depends on the machine and on what is stored: so
// it moves nothing before a threshold is set.
func RedisCommands(servers Servers) governor.Signal {
	return rateOf(servers, governor.Signal{
		Probe: probe{name: RedisCommandsName},
		Unit:  "commands/s",
		Help: "Commands that Redis executes, of the server that executes most, those in scripts included. " +
			"A server has one core for them. Measure what yours does at 100 % of it, and set the threshold to 80 % of that.",
	}, func(l *redislog.Load) uint64 { return l.Commands })
}

// rateOf makes the signal that counts a counter of each server.
func rateOf(servers Servers, s governor.Signal, count func(*redislog.Load) uint64) governor.Signal {
	r := &rates{count: count, unit: s.Unit, before: make(map[string]counted)}
	s.Probe = probe{s.Probe.Name(), func(ctx context.Context) (governor.Reading, error) { return r.ask(ctx, servers) }}
	s.Period, s.Timeout, s.Fresh = serverPeriod, serverTimeout, serverFresh
	s.Levers = []string{governor.Publish}
	return s
}

// rates turn counters into rates. Not safe for concurrent use.
type rates struct {
	count  func(*redislog.Load) uint64
	unit   string
	before map[string]counted
}

// counted is a counter as it was read.
type counted struct {
	run   string
	at    time.Time
	value uint64
}

// Bounds of the time over which a rate is told: over less it is noise, over more
// it isn't of now.
const (
	shortestRate = 500 * time.Millisecond
	longestRate  = time.Minute
)

// ask reads all servers; the first time twice, so that there is an answer.
func (r *rates) ask(ctx context.Context, servers Servers) (governor.Reading, error) {
	if len(r.before) == 0 {
		_, _ = r.read(loads(ctx, servers)) // it counts from here
		select {
		case <-ctx.Done():
			return governor.Reading{}, fmt.Errorf("a rate takes two readings: %w", ctx.Err())
		case <-time.After(shortestRate + shortestRate/5):
		}
	}
	return r.read(loads(ctx, servers))
}

func (r *rates) read(loads []redislog.Load) (governor.Reading, error) {
	known, missing, err := answered(loads)
	if err != nil {
		return governor.Reading{}, err
	}
	worst := governor.Reading{Value: -1}
	now := make(map[string]counted, len(loads)) // a server that has gone is forgotten
	for _, l := range loads {
		if last, seen := r.before[l.Server]; seen {
			now[l.Server] = last
		}
	}
	for i := range known {
		l := &known[i]
		rate, next, err := r.rate(l)
		now[l.Server] = next
		if err != nil {
			missing = append(missing, err.Error())
		} else if rate > worst.Value {
			worst = governor.Reading{Value: rate, Of: l.Server}
		}
	}
	r.before = now
	if worst.Of == "" {
		return governor.Reading{}, errors.New(strings.Join(missing, "; "))
	}
	worst.Partial = strings.Join(missing, "; ")
	return worst, nil
}

// rate is what a counter has risen by in a second, and from where the next one
// counts.
func (r *rates) rate(l *redislog.Load) (float64, counted, error) {
	next := counted{l.Run, l.Asked, r.count(l)}
	last, seen := r.before[l.Server]
	if !seen {
		return 0, next, fmt.Errorf("the %s of %s take two readings", r.unit, l.Server)
	}
	took := elapsed(last.at, next.at)
	switch {
	case last.run != next.run:
		return 0, next, fmt.Errorf("Redis at %s was started anew or is another one; its counters count from there", l.Server)
	case next.value < last.value:
		return 0, next, fmt.Errorf("a counter of Redis at %s went back (CONFIG RESETSTAT?); it counts from there", l.Server)
	case took > longestRate:
		return 0, next, fmt.Errorf("the last reading of %s is %v old; it counts from now", l.Server, took.Round(time.Second))
	case took < shortestRate:
		return 0, last, fmt.Errorf("the last reading of %s was only %v ago", l.Server, took.Round(time.Millisecond))
	}
	return float64(next.value-last.value) / took.Seconds(), next, nil
}
