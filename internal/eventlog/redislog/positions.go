package redislog

import (
	"context"
	"maps"
	"slices"
	"strconv"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

const (
	// keepAtOnce is how many positions one script keeps: under a millisecond.
	keepAtOnce = 500
	// readAtOnce is how many positions one command reads.
	readAtOnce = 1000
)

// Positions reads what is kept for devices of a shard.
func (l *Log) Positions(ctx context.Context, shard int, devices []string) (map[string]event.ID, error) {
	s, err := l.shard(shard)
	if err != nil {
		return nil, err
	}
	// The field without a name is no device's.
	devices = slices.DeleteFunc(slices.Clone(devices), func(d string) bool { return d == "" })
	found := make(map[string]event.ID, len(devices))
	for len(devices) > 0 {
		some := devices[:min(len(devices), readAtOnce)]
		devices = devices[len(some):]
		reply, err := s.home.do(ctx, callPositions, s.home.b().Hmget().Key(s.positions).Field(some...).Build())
		if err != nil {
			return nil, err
		}
		values, err := reply.ToArray()
		if err != nil || len(values) != len(some) {
			return nil, oddReply(err)
		}
		for i := range values {
			if values[i].IsNil() {
				continue
			}
			text, err := values[i].ToString()
			if err != nil {
				return nil, oddReply(err)
			}
			// What somebody else has put there is no position.
			if id, err := event.ParseID(text); err == nil {
				found[some[i]] = id
			}
		}
	}
	return found, nil
}

// KeepPositions keeps positions of a shard, some hundred in one script. It
// doesn't wait for replicas: a position that a failover sets back repeats events.
func (l *Log) KeepPositions(ctx context.Context, shard int, generation uint64, positions map[string]event.ID) error {
	s, err := l.shard(shard)
	if err == nil {
		err = l.refused()
	}
	if err != nil {
		return err
	}
	devices := slices.Collect(maps.Keys(positions))
	for _, d := range devices {
		if err := event.ValidateDevice(d); err != nil {
			return err
		}
	}
	for first := true; first || len(devices) > 0; first = false {
		args := []string{strconv.FormatUint(generation, 10)}
		n := min(len(devices), keepAtOnce)
		for _, d := range devices[:n] {
			args = append(args, d, positions[d].String())
		}
		devices = devices[n:]
		if err := keep(ctx, s, args); err != nil {
			return err
		}
	}
	return nil
}

func keep(ctx context.Context, s *shard, args []string) error {
	reply, err := s.home.eval(ctx, callPositions, positionsScript, []string{s.stream, s.positions}, args)
	if err != nil {
		return err
	}
	kept, err := reply.AsInt64()
	if err != nil {
		return oddReply(err)
	}
	if kept == 0 {
		return eventlog.ErrFenced
	}
	return nil
}
