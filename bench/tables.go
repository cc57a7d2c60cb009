package main

import (
	"slices"
	"time"
)

// tables are all comparisons, in the order of the page.
func tables(s scale, at site) []table {
	return []table{
		memoryTable(s, at), connectTable(s, at), broadcastTable(s, at),
		targetedTable(s, at), targetedMemoryTable(s, at),
		flatoutTable(s, at), flatoutMemoryTable(s, at), floorTable(s, at), batchTable(s, at),
		stormTable(s, at), slowTable(s, at), misbehaveTable(s, at),
		tailingTable(s, at), churnTable(s, at),
	}
}

// all makes the members of one group: each contender that is given, under the
// same load, with a suffix to its name.
func all(group, suffix string, load []string, starts map[string]func(*lab) (*target, error)) []member {
	var members []member
	for _, name := range []string{ours, "Nchan", "Centrifugo", "Pushpin"} {
		if start := starts[name]; start != nil {
			members = append(members, member{entry{name + suffix, start, load}, group})
		}
	}
	return members
}

type starts = map[string]func(*lab) (*target, error)

func memoryTable(s scale, at site) table {
	t := table{
		name:  "memory",
		title: "Memory of idle connections",
		about: "Devices connect and are left alone for five seconds. User memory is the growth of PSS (proportional set size) of all of a contender's processes; kernel memory is the growth of the machine's TCP buffers and slab (the sockets themselves), with the generator's ends. Downlink checks a token of each device and holds a live session; the peers ask for none.",
		columns: append(memoryColumns(),
			column{"connects/s", neither, value("connect.per_second")}),
		plots: []string{userMemory},
	}
	idle := func(n int) []string {
		return []string{"idle", "--devices", s.devices(n), "--settle", s.lasting(5 * time.Second), "--duration", s.lasting(3 * time.Second)}
	}
	for _, n := range []int{10_000, 18_000} {
		suffix, load := " "+figure(float64(n)), idle(n)
		everyone := starts{ours: at.downlink(duty{jwt: true}), "Nchan": nchan(duty{}), "Centrifugo": at.centrifugo(duty{})}
		if n == 10_000 {
			everyone["Pushpin"] = pushpin(duty{}) // it takes minutes to connect more
		}
		t.entries = append(t.entries, all(suffix, suffix, load, everyone)...)
		t.goals = append(t.goals, within(userMemory, ours+suffix, 3))
	}
	tls, ordinary := ours+" 10,000, TLS", ours+" 10,000, ordinary driver"
	t.entries = append(t.entries,
		member{entry{tls, at.downlink(duty{jwt: true, tls: true}), idle(10_000)}, ""},
		member{entry{ordinary, at.downlink(duty{jwt: true}, "--driver", "ordinary"), idle(10_000)}, ""})
	t.goals = append(t.goals, within(userMemory, tls, 20))
	return t
}

func connectTable(s scale, at site) table {
	// One loop can't begin more than about 28,000 connections a second, and was
	// the limit of everybody who came near.
	load := []string{"idle", "--devices", s.devices(10_000), "--loops", "2", "--settle", "1s", "--duration", "1s"}
	t := table{
		name:    "connect",
		title:   "Connecting 10,000 devices",
		about:   "As fast as the server takes them, at most 256 at once, until each has got its first bytes: once without credentials, once with a JWT (HS256) that the server checks.",
		columns: connectColumns(),
		plots:   []string{"connects/s", "CPU s per 10,000 connects"},
		goals: []goal{
			atLeastBest("connects/s", "without a token", 1),
			atLeastBest("connects/s", "with a JWT", 3),
		},
	}
	t.entries = slices.Concat(
		all("without a token", "", load, starts{ours: at.downlink(duty{}), "Nchan": nchan(duty{}), "Centrifugo": at.centrifugo(duty{}), "Pushpin": pushpin(duty{})}),
		all("with a JWT", ", JWT", load, starts{ours: at.downlink(duty{jwt: true}), "Centrifugo": at.centrifugo(duty{jwt: true})}),
	)
	return t
}

func broadcastTable(s scale, at site) table {
	load := []string{"broadcast", "--devices", s.devices(10_000), "--payload", "300", "--rate", "1", "--publishers", "1",
		"--duration", s.lasting(15 * time.Second), "--warmup", s.lasting(3 * time.Second)}
	d := duty{broadcast: true}
	return table{
		name:    "broadcast",
		title:   "Broadcast of 300 B to 10,000 devices",
		about:   "One a second for 15 s. The peers' devices listen to one common channel and to nothing else; Downlink's each have an address of their own as always, and a broadcast goes through all 64 shards.",
		entries: all(everybody, "", load, starts{ours: at.downlink(d), "Nchan": nchan(d), "Centrifugo": at.centrifugo(d), "Pushpin": pushpin(d)}),
		columns: slices.Concat(latencyColumns(), []column{cpuPer(cpuMillion, 1e6, "receive.received"), {"deliveries", neither, value("receive.received")}}, ledgerColumns()),
		plots:   []string{p99, cpuMillion},
		goals:   []goal{againstBest(p99, everybody, 0.6), againstBest(cpuMillion, everybody, 0.6), clean()},
	}
}

// targetedLoad is events for one device each, one event a request.
func targetedLoad(s scale, rate int, d time.Duration) []string {
	pace, publishers := s.rate(rate), "32"
	if rate == 0 {
		pace, publishers = "0", "64" // flat out: enough for everybody to be busy
	}
	return []string{"targeted", "--devices", s.devices(10_000), "--payload", "300", "--publishers", publishers,
		"--duration", s.lasting(d), "--warmup", s.lasting(3 * time.Second), "--rate", pace}
}

func targetedColumns() []column {
	return slices.Concat(latencyColumns(),
		[]column{cpuPer(cpu100k, 1e5, "publish.accepted"), ofWhichRedis(1e5, "publish.accepted"), {accepted, neither, value("publish.per_second")}},
		ledgerColumns())
}

func targetedTable(s scale, at site) table {
	d := duty{store: onRedis}
	return table{
		name:    "targeted",
		title:   "2,000 events a second to 10,000 devices, on Redis",
		about:   "One event of 300 B a request, each for one of 10,000 connected devices. Everything goes through one Redis. Downlink and Nchan keep the events there for those who come back; Centrifugo only passes them on (no history).",
		entries: all(everybody, "", targetedLoad(s, 2000, 12*time.Second), starts{ours: at.downlink(d), "Nchan": nchan(d), "Centrifugo": at.centrifugo(d)}),
		columns: targetedColumns(),
		plots:   []string{p99, cpu100k},
		goals:   []goal{againstBest(p99, everybody, 0.5), againstBest(cpu100k, everybody, 0.5), clean()},
	}
}

func targetedMemoryTable(s scale, at site) table {
	return table{
		name:    "targeted-memory",
		title:   "The same without Redis",
		about:   "Downlink's embedded log answers a publisher only when the event is on the disk (fsync); the peers keep theirs in memory and lose them with the process. What an fsync of 4 KiB takes on this disk is measured before each run.",
		entries: all(everybody, "", targetedLoad(s, 2000, 12*time.Second), starts{ours: at.downlink(duty{}), "Nchan": nchan(duty{}), "Centrifugo": at.centrifugo(duty{})}),
		columns: append(targetedColumns(), column{"fsync of the disk, p99 ms", neither, value("disk.fsync_ms.p99")}, column{"p99 beyond the fsync, ms", neither, func(v values) float64 {
			return v["receive.latency_ms.p99"] - v["disk.fsync_ms.p99"]
		}}),
		plots: []string{p99, cpu100k},
		goals: []goal{againstBest(cpu100k, everybody, 1), within("p99 beyond the fsync, ms", ours, 10), clean()},
	}
}

func flatoutTable(s scale, at site) table {
	d := duty{store: onRedis}
	return table{
		name:    "flatout",
		title:   "As many events as it takes, on Redis",
		about:   "As before, but each of 64 publishers sends its next event as soon as the last one is answered.",
		entries: all(everybody, "", targetedLoad(s, 0, 10*time.Second), starts{ours: at.downlink(d), "Nchan": nchan(d), "Centrifugo": at.centrifugo(d)}),
		columns: flatoutColumns(),
		plots:   []string{accepted, cpu100k},
		goals:   []goal{atLeastBest(accepted, everybody, 2), clean()},
	}
}

func flatoutMemoryTable(s scale, at site) table {
	return table{
		name:    "flatout-memory",
		title:   "As many events as it takes, without Redis",
		about:   "Downlink's log on the disk, with an fsync before each answer, against the peers' memory.",
		entries: all(everybody, "", targetedLoad(s, 0, 10*time.Second), starts{ours: at.downlink(duty{}), "Nchan": nchan(duty{}), "Centrifugo": at.centrifugo(duty{})}),
		columns: flatoutColumns(),
		plots:   []string{accepted, cpu100k},
		goals:   []goal{atLeastBest(accepted, everybody, 1), clean()},
	}
}

func flatoutColumns() []column {
	return slices.Concat(publishColumns(),
		[]column{cpuPer(cpu100k, 1e5, "publish.accepted"), ofWhichRedis(1e5, "publish.accepted")}, ledgerColumns())
}

func batchTable(s scale, at site) table {
	load := func(devices, rate int) []string {
		l := []string{"targeted", "--devices", s.devices(devices), "--payload", "100", "--publishers", "4", "--batch", "100",
			"--duration", s.lasting(10 * time.Second), "--warmup", s.lasting(2 * time.Second), "--rate", "0"}
		if rate > 0 {
			l[len(l)-1] = s.rate(rate)
		}
		return l
	}
	d := duty{store: onRedis}
	flat, paced := "Downlink, flat out", "Downlink, 30,000/s to devices"
	return table{
		name:    "batch",
		title:   "Batches of 100 events a request (NDJSON), on Redis",
		about:   "No peer has such a request. Flat out the publishers leave the deliveries no time, so that the row shows what the log takes in; in the second row the pace is given, and all of it has to arrive.",
		entries: []member{{entry{flat, at.downlink(d), load(100, 0)}, ""}, {entry{paced, at.downlink(d), load(10_000, 30_000)}, ""}},
		columns: slices.Concat(publishColumns(), latencyColumns(), []column{cpuPer(cpu100k, 1e5, "publish.accepted")}, ledgerColumns()),
		plots:   []string{accepted, "received/s"},
		goals:   []goal{atLeast(accepted, flat, 100_000), atLeast("received/s", paced, 29_900), clean()},
	}
}
