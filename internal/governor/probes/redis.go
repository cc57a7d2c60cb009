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

// Servers are those of a log on Redis that serve a part of it now. Loads asks
// all of them, answers within ctx, and may be called concurrently.
type Servers interface {
	Loads(ctx context.Context) []redislog.Load
}

// The rhythm of what a server is asked. A time limit that is shorter than the
// period leaves room for the next; fresh is three missed answers.
const (
	serverPeriod  = 5 * time.Second
	serverTimeout = 2 * time.Second
	serverFresh   = 20 * time.Second
	// serverAnswers is how long a server is waited for: less than the limit, so that
	// those count that have answered when one is frozen.
	serverAnswers = serverTimeout * 3 / 4
)

// The names of what is read of Redis.
const (
	RedisMemoryName   = "redis_memory"
	RedisOutputName   = "redis_output"
	RedisCommandsName = "redis_commands"
)

// RedisMemory is how full the fullest server is. Window is how long the log
// keeps an event: a step of the publish rate is in memory in full only after it.
// Sweep is how often what has left the window is removed.
func RedisMemory(servers Servers, window, sweep time.Duration) governor.Signal {
	return governor.Signal{
		Probe: probe{RedisMemoryName, func(ctx context.Context) (governor.Reading, error) {
			return readMemory(loads(ctx, servers))
		}},
		Unit: "ratio",
		Help: "Memory of Redis that is in use, as a part of maxmemory, of the fullest server that holds a part of the log. " +
			"At 100 % Redis refuses events (noeviction), or deletes some. " +
			"It is what is published in a window: publish less or smaller, shorten the window, or raise maxmemory.",
		// What a short window holds is soon there in full.
		Period: min(max(window/100, time.Second), serverPeriod), Timeout: serverTimeout, Fresh: serverFresh,
		Settles: func() time.Duration { return window }, Ripple: sweep,
		Threshold: 0.80, Wall: 0.92, Levers: []string{governor.Publish},
	}
}

func loads(ctx context.Context, servers Servers) []redislog.Load {
	ctx, cancel := context.WithTimeout(ctx, serverAnswers)
	defer cancel()
	return servers.Loads(ctx)
}

func readMemory(loads []redislog.Load) (governor.Reading, error) {
	known, missing, err := answered(loads)
	if err != nil {
		return governor.Reading{}, err
	}
	var worst governor.Reading
	var free []string // servers without a maximum
	for _, l := range known {
		if l.Most == 0 {
			free = append(free, l.Server)
			continue
		}
		if part := float64(l.Used) / float64(l.Most); part > worst.Value {
			worst = governor.Reading{Value: part, Of: l.Server, Detail: size(l.Used) + " of " + size(l.Most) + "; " + atMost(l.Policy)}
		}
	}
	switch {
	case worst.Of != "" && len(free) > 0:
		worst.Detail += "; " + strings.Join(free, " and ") + " has no maximum, and isn't judged"
	case worst.Of == "" && len(missing) > 0:
		return governor.Reading{}, fmt.Errorf("%s has no maximum, and %s", strings.Join(free, " and "), strings.Join(missing, "; "))
	case worst.Of == "":
		worst.None = noMaximum(known)
	}
	worst.Partial = strings.Join(missing, "; ")
	return worst, nil
}

// noMaximum says what it means that no server has one.
func noMaximum(all []redislog.Load) string {
	fullest := all[0]
	for _, l := range all {
		if l.Used > fullest.Used {
			fullest = l
		}
	}
	return fmt.Sprintf("maxmemory isn't set: nothing holds Redis back before its machine kills it. %s has %s in use, of %s that the machine has",
		fullest.Server, size(fullest.Used), size(fullest.System))
}

// atMost says what a server does at its maximum.
func atMost(policy string) string {
	if policy == "noeviction" {
		return "at the maximum it refuses events"
	}
	return "at the maximum it deletes keys (maxmemory-policy " + policy + "), and with them events"
}

// answered parts servers by whether they have answered; missing has a sentence
// for each that hasn't. The error says that none has.
func answered(loads []redislog.Load) (known []redislog.Load, missing []string, err error) {
	for _, l := range loads {
		if l.Err == nil {
			known = append(known, l)
		} else {
			missing = append(missing, complaint(&l))
		}
	}
	switch {
	case len(known) > 0:
		return known, missing, nil
	case len(missing) > 0:
		return nil, nil, errors.New(strings.Join(missing, "; "))
	}
	return nil, nil, errors.New("no server is known that holds a part of the log")
}

// complaint names the server that hasn't answered: of several, somebody has to look
// after that one.
func complaint(l *redislog.Load) string {
	if text := l.Err.Error(); !strings.Contains(text, l.Server) {
		return l.Server + ": " + text
	}
	return l.Err.Error()
}
