package redislog

import (
	"strconv"
	"strings"

	"downlink/internal/event"
	"downlink/internal/eventlog"

	"github.com/redis/rueidis"
)

// readState reads what the scripts' state() returns, and counts what the look
// found to have been removed by someone else.
func (l *Log) readState(m rueidis.RedisMessage, s *shard) (eventlog.State, error) {
	const parts = 6
	values, err := m.ToArray()
	if err != nil || len(values) != parts {
		return eventlog.State{}, oddReply(err)
	}
	foreign, err := values[parts-1].AsInt64()
	if err != nil {
		return eventlog.State{}, oddReply(err)
	}
	s.foreign.Add(uint64(foreign))
	var st eventlog.State
	for i, field := range []*event.ID{&st.Head, &st.Swept, &st.Since, &st.Founded} {
		if *field, err = readID(&values[i]); err != nil {
			return eventlog.State{}, err
		}
	}
	text, err := values[4].ToString()
	if err != nil {
		return eventlog.State{}, oddReply(err)
	}
	st.Breaks, err = readBreaks(text, l.opts.Failover)
	return st, err
}

func readID(m *rueidis.RedisMessage) (event.ID, error) {
	text, err := m.ToString()
	if err != nil {
		return event.ID{}, oddReply(err)
	}
	id, err := event.ParseID(text)
	if err != nil {
		return event.ID{}, oddReply(err)
	}
	return id, nil
}

func readCount(m rueidis.RedisMessage) (uint64, error) {
	text, err := m.ToString()
	if err != nil {
		return 0, oddReply(err)
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, oddReply(err)
	}
	return n, nil
}

// readBreaks reads "boundary:reach:why:epoch,…". Every gateway notes every
// break; one that asks for evidence leaves out what is only a suspicion.
func readBreaks(text string, failover Failover) ([]eventlog.Break, error) {
	if text == "" {
		return nil, nil
	}
	var out []eventlog.Break
	for one := range strings.SplitSeq(text, ",") {
		parts := strings.Split(one, ":")
		if len(parts) != 4 {
			return nil, oddReply(nil)
		}
		b := eventlog.Break{Reason: event.LogUncertain}
		switch parts[2] {
		case "w":
			b.Reason = event.LogRewound
		case "d":
			b.Reason = event.WindowExpired
		}
		var err error
		if b.Boundary, err = event.ParseID(parts[0]); err != nil {
			return nil, oddReply(err)
		}
		if b.Reach, err = event.ParseID(parts[1]); err != nil {
			return nil, oddReply(err)
		}
		if b.Reason != event.LogUncertain || failover == Cautious {
			out = append(out, b)
		}
	}
	return out, nil
}
