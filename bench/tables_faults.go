package main

import (
	"math"
	"slices"
	"time"
)

// The tables of what goes wrong in the field: everybody comes back at once,
// devices stop reading, clients misbehave, fleets grow.

func stormTable(s scale, at site) table {
	load := []string{"storm", "--devices", s.devices(5000), "--missed", "20", "--payload", "300", "--publishers", "32", "--rate", "0"}
	d := duty{store: onRedis, resume: true}
	far := ours + ", far behind the hot window"
	entries := all(everybody, "", load, starts{ours: at.downlink(d), "Nchan": nchan(d), "Centrifugo": at.centrifugo(d)})
	// A hot window of 1 MiB holds the last few of the 100,000 events: every
	// device that comes back is served from Redis.
	entries = append(entries, member{entry{far, at.downlink(d, "--hot-window-bytes", "1MiB"), load}, ""})
	scans := column{"pages read", neither, ofGateway(func(v values) float64 { return v.grown("downlink_catchup_pages_total") })}
	laps := column{"laps", neither, ofGateway(func(v values) float64 { return v.grown("downlink_catchup_laps_total") })}
	return table{
		name:    "storm",
		title:   "5,000 devices come back at once, 20 events missed by each, on Redis",
		about:   "All connect, get one event, disconnect, miss 20, and come back as fast as they are let. The time counts until the last device has its last event. Nchan and Centrifugo keep 100 messages a channel.",
		entries: entries,
		columns: slices.Concat([]column{
			{stormTime, lower, value("storm.seconds")},
			{stormCPU, lower, func(v values) float64 { return cpu(v, "storm") }},
			laps, scans,
		}, ledgerColumns()),
		plots: []string{stormTime, stormCPU},
		goals: []goal{
			againstBest(stormTime, everybody, 0.5), againstBest(stormCPU, everybody, 0.5),
			pairs(stormTime, far, ours, 3), clean(),
		},
	}
}

// ofGateway leaves out runs without a gateway of ours.
func ofGateway(get func(values) float64) func(values) float64 {
	return func(v values) float64 {
		if v["after.go_goroutines"] == 0 {
			return math.NaN()
		}
		return get(v)
	}
}

func slowTable(s scale, at site) table {
	// The readers are the same 100 in both runs of a pair.
	load := func(devices int, stalled string) []string {
		return []string{"slow", "--devices", s.devices(devices), "--stalled", stalled, "--payload", "3000", "--rate", s.rate(200), "--publishers", "4",
			"--duration", s.lasting(30 * time.Second), "--warmup", s.lasting(2 * time.Second)}
	}
	d := duty{broadcast: true}
	with := ours + ", 100 stalled"
	starts := starts{ours: at.downlink(d, "--write-timeout", "10s"), "Nchan": nchan(d), "Centrifugo": at.centrifugo(d)}
	perReader := func(get func(values) float64) func(values) float64 {
		return func(v values) float64 { return per(get(v), v["receive.received"]) * 1e6 }
	}
	cpuEach := column{cpuMillion, lower, perReader(func(v values) float64 { return cpu(v, "run") })}
	return table{
		name:    "slow",
		title:   "Devices that stop reading",
		about:   "100 devices, 3 KB to all of them 200 times a second for 30 s. In the paired runs there are 100 more that read nothing after they have connected. Downlink's `write_timeout` is 10 s here; the others' limits are their own. Downlink's memory grows in both runs: its hot window fills (64 MiB), and its embedded store takes in 38 MB a second, since a broadcast goes through all 64 shards.",
		entries: append(all("", "", load(100, "0"), map[string]func(*lab) (*target, error){ours: starts[ours]}), all("stalled", ", 100 stalled", load(200, s.devices(100)), starts)...),
		columns: slices.Concat(latencyColumns(), []column{
			cpuEach,
			{memoryTotal, lower, func(v values) float64 {
				users := v.watched(".pss_bytes.after") - v.watched(".pss_bytes.before")
				return (users + tcpGrowth(v, "after")) / kib / kib
			}},
			{"closed by the server", neither, value("closed.by_server")},
		}, ledgerColumns()),
		plots: []string{memoryTotal, p99},
		goals: []goal{
			atLeast("closed by the server", with, 100),
			apart(memoryTotal, with, ours, 30),
			pairs(cpuMillion, with, ours, 1.2), pairs(p99, with, ours, 1.2),
			clean(),
		},
	}
}

func misbehaveTable(s scale, at site) table {
	load := func(percent string) []string {
		return append(targetedLoad(s, 2000, 10*time.Second), "--misbehave", percent)
	}
	d := duty{store: onRedis}
	proper, tenth := ours, ours+", a tenth misbehaves"
	return table{
		name:    "misbehave",
		title:   "A misbehaving tenth",
		about:   "2,000 events a second to 10,000 devices on Redis. In the paired runs a tenth of the devices sleeps, reads 1 KB/s, resets, closes its half of the connection or sends rubbish; the figures are of the others.",
		rounds:  5,
		entries: []member{{entry{proper, at.downlink(d), load("0")}, ""}, {entry{tenth, at.downlink(d), load("10")}, ""}},
		columns: targetedColumns(),
		plots:   []string{p99, cpu100k},
		goals:   []goal{pairs(p50, tenth, proper, 1.2), pairs(p99, tenth, proper, 1.2), pairs(cpu100k, tenth, proper, 1.2), clean()},
	}
}

func tailingTable(s scale, at site) table {
	const gateways = 20
	load := []string{"targeted", "--devices", s.devices(1000), "--payload", "300", "--publishers", "8", "--rate", s.rate(2000),
		"--duration", s.lasting(12 * time.Second), "--warmup", s.lasting(3 * time.Second)}
	fleet, one := "Downlink, 20 gateways", "Downlink, 1 gateway"
	bare, rested := "20 readers, one read an event", "20 readers that rest 5 ms"
	busy := func(v values) float64 { return per(v["watched.redis.cpu_seconds.run"]*100, v["publish.seconds"]) }
	calls := func(v values) float64 { return per(v.grown("redis.total_commands_processed"), v["load.seconds"]) }
	reads := func(v values) float64 { return per(v.grown("redis.xread.calls"), v["load.seconds"]) }
	cost := func(v values) float64 { return per(v.grown("redis.xread.usec"), v.grown("redis.xread.calls")) }
	return table{
		name:  "tailing",
		title: "20 gateways read one Redis, 2,000 events a second",
		about: "The events are written straight into Redis. Beside the 20 gateways stands one gateway with 19 bare readers, which cost as little as they can, as if each had a machine of its own: such as ask again as soon as they are answered, and such as rest 5 ms in between, the longest that a tail does. And one gateway alone, for the latency. Everything runs on these same two cores. XREADs and the time of one are Redis's own count (`INFO commandstats`).",
		entries: []member{
			{entry{fleet, at.fleet(gateways), load}, ""},
			{entry{bare, at.among(gateways-1, 0), load}, ""},
			{entry{rested, at.among(gateways-1, 5*time.Millisecond), load}, ""},
			{entry{one, at.fleet(1), load}, ""},
		},
		columns: slices.Concat([]column{{redisCPU, lower, busy}, {redisCalls, lower, calls}, {"XREADs/s", lower, reads}, {"µs in Redis of an XREAD", neither, cost}}, latencyColumns(), ledgerColumns()),
		plots:   []string{redisCPU, redisCalls},
		goals:   []goal{pairs(redisCPU, fleet, bare, 0.5), pairs(redisCPU, rested, bare, 0.5), apart(p50, fleet, one, 10), apart(p99, fleet, one, 10), clean()},
	}
}

func churnTable(s scale, at site) table {
	cycles := "24"
	if s.quick {
		cycles = "3"
	}
	load := []string{"soak", "--cycles", cycles, "--devices", s.devices(10_000)}
	left := func(name string) func(values) float64 {
		return ofGateway(func(v values) float64 { return v.grown(name) })
	}
	return table{
		name:    "churn",
		title:   "24 × 10,000 connects and disconnects",
		about:   "What has stayed when all are gone, against before the first came; heap after a garbage collection. The trail of what happened to each device (`trail_entries`) is kept short: 10,000 entries are 3 MiB that stay on purpose, once.",
		entries: []member{{entry{ours, at.downlink(duty{}, "--trail-entries", "100"), load}, ""}},
		columns: []column{
			{"connects", neither, value("connect.connected")},
			{"open descriptors, growth", lower, left("process_open_fds")},
			{"goroutines, growth", lower, left("go_goroutines")},
			{"heap, growth in MiB", lower, ofGateway(func(v values) float64 { return v.grown("go_memstats_heap_alloc_bytes") / kib / kib })},
			{"sse_active_connections", lower, left("sse_active_connections")},
		},
		goals: []goal{
			within("open descriptors, growth", ours, 8), within("goroutines, growth", ours, 8),
			within("heap, growth in MiB", ours, 4), within("sse_active_connections", ours, 0),
		},
	}
}
