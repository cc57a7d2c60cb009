package main

import (
	"os"
	"path/filepath"
	"time"
)

// loopCommand is how this program is started as a bare loop; see runLoop.
const loopCommand = "bare-loop"

// bareLoop is the floor under a gateway on Redis, or on a file of its own.
func bareLoop(d duty) func(*lab) (*target, error) {
	return func(l *lab) (*target, error) { return startLoop(l, d) }
}

func startLoop(l *lab, d duty) (*target, error) {
	t := &target{watch: map[string][]int{}}
	log := "file:" + filepath.Join(l.dir, "bare-log")
	if d.store == onRedis {
		redis, err := withRedis(l, d, t)
		if err != nil {
			return nil, err
		}
		log = redis
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
	p, err := l.start(loopCommand, self, loopCommand, devices, backend, log)
	if err != nil {
		return nil, err
	}
	t.watch["server"] = []int{p.pid}
	t.args = []string{"--backend", "http://" + backend, "--url", "http://" + devices + "/events?device={device}"}
	return t, l.ready(p, answers("http://"+backend+"/readyz"))
}

// floorTable is what rows of others cost a loop that does nothing besides.
func floorTable(s scale, at site) table {
	t := table{
		name:    "floor",
		title:   "The least that an event costs",
		about:   "The loads of tables above, on Downlink and on a bare loop (`bench/loop_linux.go`): one thread, one epoll set, no check of anything, no name of a device kept but in a map. On Redis each event is a request read, an append pipelined with a read of what was appended, an answer, and a write to the device. Without Redis it is a request read, a line behind the last one in a file, an fdatasync(2) by a second thread for all that came meanwhile, an answer, and a write to the device; nothing of it can be looked up, swept or read again. What it costs is the kernel's part, and Redis's.",
		columns: append(targetedColumns(), column{"p99 of a publish, ms", neither, value("publish.latency_ms.p99")}),
		goals:   []goal{clean()},
	}
	for _, c := range []struct {
		suffix string
		store  store
		load   []string
	}{
		{", Redis, 2,000/s", onRedis, targetedLoad(s, 2000, 12*time.Second)},
		{", Redis, flat out", onRedis, targetedLoad(s, 0, 10*time.Second)},
		{", disk, 2,000/s", inMemory, targetedLoad(s, 2000, 12*time.Second)},
		{", disk, flat out", inMemory, targetedLoad(s, 0, 10*time.Second)},
	} {
		d := duty{store: c.store}
		t.entries = append(t.entries,
			member{entry{ours + c.suffix, at.downlink(d), c.load}, ""},
			member{entry{"Bare loop" + c.suffix, bareLoop(d), c.load}, ""})
	}
	return t
}
