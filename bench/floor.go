package main

import (
	"os"
	"time"
)

// loopCommand is how this program is started as a bare loop; see runLoop.
const loopCommand = "bare-loop"

// bareLoop is the floor under a gateway on Redis.
func bareLoop(l *lab) (*target, error) {
	t := &target{watch: map[string][]int{}}
	redis, err := withRedis(l, duty{store: onRedis}, t)
	if err != nil {
		return nil, err
	}
	devices, err := freeAddr()
	if err != nil {
		return nil, err
	}
	backend, err := freeAddr()
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p, err := l.start(loopCommand, self, loopCommand, devices, backend, redis)
	if err != nil {
		return nil, err
	}
	t.watch["server"] = []int{p.pid}
	t.args = []string{"--backend", "http://" + backend, "--url", "http://" + devices + "/events?device={device}"}
	return t, l.ready(p, answers("http://"+backend+"/readyz"))
}

// floorTable is what two rows of others cost a loop that does nothing besides.
func floorTable(s scale, at site) table {
	t := table{
		name:    "floor",
		title:   "The least that an event on Redis costs",
		about:   "The loads of the tables on Redis above, on Downlink and on a bare loop (`bench/loop_linux.go`): one thread, one epoll set, no check of anything, no name of a device kept but in a map; each event is a request read, an append pipelined with a read of what was appended, an answer, and a write to the device. What it costs is the kernel's part, and Redis's.",
		columns: append(targetedColumns(), column{"p99 of a publish, ms", neither, value("publish.latency_ms.p99")}),
		goals:   []goal{clean()},
	}
	for _, c := range []struct {
		suffix string
		load   []string
	}{
		{", 2,000/s", targetedLoad(s, 2000, 12*time.Second)},
		{", flat out", targetedLoad(s, 0, 10*time.Second)},
	} {
		t.entries = append(t.entries,
			member{entry{ours + c.suffix, at.downlink(duty{store: onRedis}), c.load}, ""},
			member{entry{"Bare loop" + c.suffix, bareLoop, c.load}, ""})
	}
	return t
}
