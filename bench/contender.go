package main

import (
	"fmt"
	"slices"
	"strings"
)

// A target is a contender that runs: how the load generator reaches it, and
// what is read from it besides.
type target struct {
	args  []string         // flags of downlink load: where devices connect and producers publish
	watch map[string][]int // name → processes whose CPU time and memory are its cost, children included
	// before and after are called around the load, if set; what they return is
	// added to the round's values.
	before, after func() (values, error)
}

// watching are the flags of downlink load for what is watched.
func (t *target) watching() []string {
	var flags []string
	for _, name := range sortedKeys(t.watch) {
		pids := make([]string, 0, len(t.watch[name]))
		for _, pid := range t.watch[name] {
			pids = append(pids, fmt.Sprint(pid))
		}
		flags = append(flags, "--watch", name+"="+strings.Join(pids, ",")+"+")
	}
	return flags
}

// An entry is one line of a table: a contender as it is configured there, and
// the load on it.
type entry struct {
	name  string
	start func(*lab) (*target, error)
	load  []string // scenario and flags of downlink load
}

// Stores that contenders keep events in.
type store string

const (
	inMemory store = "memory" // the peers' own; Downlink's embedded log, which is on disk
	onRedis  store = "redis"
)

// ours is the name by which rules find Downlink among the entries.
const ours = "Downlink"

// A duty says what a table asks of a contender beyond its defaults.
type duty struct {
	store     store
	broadcast bool // devices listen to one common channel
	jwt       bool // devices prove who they are (HS256)
	resume    bool // devices come back for what they missed
	tls       bool // devices speak TLS (Downlink only)
}

// secret signs the devices' tokens. It guards nothing: every server that knows
// it is a loopback one of this run.
const secret = "a secret of the benchmark, 32 bytes or more"

// tokens are the flags by which the generator makes a token for each device.
func tokens(l *lab, claims string) ([]string, error) {
	file, err := l.write("secret", secret)
	return []string{"--token-secret-file", file, "--token-claims", claims}, err
}

// withRedis starts a Redis if the duty needs one and adds it to what is watched.
func withRedis(l *lab, d duty, t *target) (addr string, err error) {
	if d.store != onRedis {
		return "", nil
	}
	addr, p, err := startRedis(l)
	if err != nil {
		return "", err
	}
	t.watch["redis"] = []int{p.pid}
	return addr, nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
