package main

import "math"

// The figures that tables have in common. All processor times are sums over
// the servers of an entry, its Redis included, in the phase of the load.

const kib = 1024.0

func value(name string) func(values) float64 {
	return func(v values) float64 { return v[name] }
}

// per divides, and knows nothing of what there was none of.
func per(a, b float64) float64 {
	if b == 0 {
		return math.NaN()
	}
	return a / b
}

func cpu(v values, phase string) float64 { return v.watched(".cpu_seconds." + phase) }

// growth is what the memory of the servers has grown by while devices connected.
func growth(v values, kind string) float64 {
	return v.watched(kind+".connected") - v.watched(kind+".before")
}

func tcpGrowth(v values, until string) float64 {
	return v["kernel.tcp_mem_bytes."+until] - v["kernel.tcp_mem_bytes.before"]
}

func connectColumns() []column {
	return []column{
		{"connects/s", higher, value("connect.per_second")},
		{"p99 of a connect, ms", lower, value("connect.latency_ms.p99")},
		{"CPU s per 10,000 connects", lower, func(v values) float64 {
			return per(cpu(v, "connect")*10_000, v["connect.connected"])
		}},
		{"not connected", neither, func(v values) float64 { return v["connect.asked"] - v["connect.connected"] }},
	}
}

func memoryColumns() []column {
	perConnection := func(bytes float64, v values) float64 { return per(bytes/kib, v["connect.connected"]) }
	return []column{
		{userMemory, lower, func(v values) float64 { return perConnection(growth(v, ".pss_bytes"), v) }},
		{"kernel memory, KiB a connection (both ends)", neither, func(v values) float64 {
			return perConnection(tcpGrowth(v, "connected")+v["kernel.slab_bytes.connected"]-v["kernel.slab_bytes.before"], v)
		}},
		{"servers before, MiB", neither, func(v values) float64 { return v.watched(".pss_bytes.before") / kib / kib }},
		{"CPU s, idle", neither, func(v values) float64 { return cpu(v, "idle") }},
		{"not connected", neither, func(v values) float64 { return v["connect.asked"] - v["connect.connected"] }},
	}
}

// latencyColumns are the times from sending a publish request to the receipt.
func latencyColumns() []column {
	ofReceipts := func(name string) func(values) float64 {
		return func(v values) float64 {
			if v["receive.received"] == 0 {
				return math.NaN()
			}
			return v["receive.latency_ms."+name]
		}
	}
	return []column{{p50, lower, ofReceipts("p50")}, {p99, lower, ofReceipts("p99")}}
}

func ledgerColumns() []column {
	return []column{
		{"lost", neither, value("receive.lost")},
		{"repeated", neither, value("receive.repeated")},
	}
}

// cpuPer is the servers' processor time per so many of a count.
func cpuPer(label string, n float64, count string) column {
	return column{label, lower, func(v values) float64 { return per(cpu(v, "run")*n, v[count]) }}
}

// ofWhichRedis is the share of Redis in the same.
func ofWhichRedis(n float64, count string) column {
	return column{"of which Redis", neither, func(v values) float64 {
		if v["watched.redis.pss_bytes.before"] == 0 {
			return math.NaN()
		}
		return per(v["watched.redis.cpu_seconds.run"]*n, v[count])
	}}
}

func publishColumns() []column {
	return []column{
		{accepted, higher, value("publish.per_second")},
		{"received/s", higher, value("receive.per_second")},
		{"p99 of a publish, ms", lower, value("publish.latency_ms.p99")},
	}
}

// Labels that goals and plots name.
const (
	userMemory  = "user memory, KiB a connection"
	p50         = "p50, ms"
	p99         = "p99, ms"
	accepted    = "accepted/s"
	cpuMillion  = "CPU s per million deliveries"
	cpu100k     = "CPU s per 100,000 events"
	stormTime   = "until everybody has everything, s"
	stormCPU    = "CPU s of the storm"
	redisCPU    = "Redis CPU, % of a core"
	redisCalls  = "Redis commands/s"
	memoryTotal = "growth, processes and kernel, MiB"
)
