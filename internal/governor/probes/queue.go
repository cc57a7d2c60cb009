package probes

import (
	"context"
	"errors"
	"fmt"

	"downlink/internal/governor"
	"downlink/internal/server"
)

// AcceptQueueName is the name of what is read of the devices' listener.
const AcceptQueueName = "accept_queue"

// A Listener tells how many connections the kernel holds that it hasn't accepted
// yet, and how many it may hold. The error may wrap server.ErrNoBacklog: this
// system doesn't tell.
type Listener interface {
	Backlog() (server.Backlog, error)
}

// AcceptQueue is how full the queue of the devices' listener is.
func AcceptQueue(l Listener) governor.Signal {
	var dropped dropCount
	s := own(AcceptQueueName, func(context.Context) (governor.Reading, error) {
		b, err := l.Backlog()
		switch {
		case errors.Is(err, server.ErrNoBacklog):
			return governor.Reading{None: err.Error()}, nil
		case err != nil:
			return governor.Reading{}, err
		case b.Most == 0:
			return governor.Reading{}, errors.New("the kernel says that the listener may hold no connection, which can't be")
		}
		return governor.Reading{
			Value:  float64(b.Waiting) / float64(b.Most),
			Detail: fmt.Sprintf("%d of %d", b.Waiting, b.Most) + dropped.since("/proc/net/netstat"),
		}, nil
	})
	s.Unit = "ratio"
	s.Help = "Connections that the kernel holds for the devices' port and the gateway hasn't accepted yet, as a part of what it may hold. " +
		"When it is full, connections are dropped and come back seconds later. " +
		"The gateway is short of processor time; or raise net.core.somaxconn, which is what the queue holds."
	s.Threshold, s.Wall, s.Levers = 0.5, 0.9, []string{governor.Admission}
	return s
}
