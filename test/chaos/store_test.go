package chaos

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"downlink/internal/event"
	"downlink/internal/testkit"
)

// A store is the log of a run.
type store struct {
	gateways int
	door     func() (url string, link *testkit.Proxy) // of the next gateway
	faults   []kind
	raw      bool // programs may add entries past the gateways

	// Which servers take writes now, and what replacing one may cost; nil where
	// none is ever replaced.
	masters func() string
	lossy   lossy

	// What an operator's commands go to; nil for the embedded log.
	server func(shard int) *testkit.Redis // nil while nobody knows
	key    func(shard int) string
}

// topologies are the logs that runs are made on.
func topologies() []string { return []string{"embedded", "single", "list", "sentinel", "cluster"} }

// newStore starts the servers of a topology, and says which settings of the
// gateways the seed chose.
func newStore(r *run) (*store, []string) {
	rng := rand.New(rand.NewPCG(r.seed, 1<<48))
	mode := []string{"evidence", "cautious"}[rng.IntN(2)]
	more := []string{"--failover", mode}
	replicated := r.topology == "sentinel" || r.topology == "cluster"
	if replicated && rng.IntN(3) == 0 {
		more = append(more, "--durability", "replicas:1")
	}
	if replicated && rng.IntN(3) == 0 {
		more = append(more, "--read-from", "replica")
	}
	switch r.topology {
	case "embedded":
		return embedded(r), nil
	case "single":
		return single(r), more
	case "list":
		return list(r), more
	case "sentinel":
		return sentinel(r, more), more
	case "cluster":
		return cluster(r, more), more
	}
	r.tb.Fatalf("no topology %q; there are %v", r.topology, topologies())
	return nil, nil
}

func embedded(r *run) *store {
	url := "file:" + r.tb.TempDir()
	return &store{gateways: 1, door: func() (string, *testkit.Proxy) { return url, nil }}
}

// safely makes a server whose restart loses nothing that it has acknowledged.
func safely() testkit.RedisOption {
	return testkit.RedisConfig("appendonly yes", "appendfsync always")
}

func single(r *run) *store {
	redis := testkit.StartRedis(r.tb, safely())
	one := func() []*testkit.Redis { return []*testkit.Redis{redis} }
	return &store{
		gateways: 3, raw: true,
		door: func() (string, *testkit.Proxy) {
			link := testkit.StartProxy(r.tb, redis.Addr())
			return "redis://" + link.Addr(), link
		},
		faults: slices.Concat(serverFaults(one), handFaults()),
		server: func(int) *testkit.Redis { return redis },
		key:    plainKey,
	}
}

func plainKey(shard int) string { return "pos-ev:" + itoa(shard) }

// list is three servers. Their addresses are part of the log, so all gateways
// share the links to them.
func list(r *run) *store {
	var servers []*testkit.Redis
	var links []*testkit.Proxy
	var urls []string
	for range 3 {
		s := testkit.StartRedis(r.tb, safely())
		l := testkit.StartProxy(r.tb, s.Addr())
		servers, links, urls = append(servers, s), append(links, l), append(urls, "redis://"+l.Addr())
	}
	return &store{
		gateways: 3, raw: true,
		door:   func() (string, *testkit.Proxy) { return strings.Join(urls, ","), nil },
		faults: slices.Concat(serverFaults(func() []*testkit.Redis { return servers }), sharedLinkFaults(links), handFaults()),
		server: func(shard int) *testkit.Redis { return servers[shard%len(servers)] },
		key:    plainKey,
	}
}

func sentinel(r *run, args []string) *store {
	pair := testkit.StartPair(r.tb, testkit.RedisConfig("appendonly yes"))
	pair.DownAfter = 2500 * time.Millisecond
	p := &pairFaults{pair: pair, lossy: lossy{args}}
	return &store{
		masters: func() string { return named(pair) }, lossy: p.lossy,
		gateways: 3, raw: slices.Contains(args, "cautious") && !slices.Contains(args, "replicas:1"),
		door:   func() (string, *testkit.Proxy) { return pair.URL(), nil },
		faults: slices.Concat(p.kinds(), handFaults()),
		server: func(int) *testkit.Redis { return primaryOf(pair.Servers[:]) },
		key:    plainKey,
	}
}

// primaryOf is the server that takes writes; nil if there is none, or two.
func primaryOf(servers []*testkit.Redis) (primary *testkit.Redis) {
	for _, s := range servers {
		if s.Role() == "master" {
			if primary != nil {
				return nil
			}
			primary = s
		}
	}
	return primary
}

// clusterTags are the hash tags of 16 groups (docs/operate/topologies.md).
func clusterTags() []int { return []int{18, 3, 61, 58, 19, 2, 60, 59, 102, 1, 63, 49, 103, 0, 62, 48} }

func cluster(r *run, args []string) *store {
	c := testkit.StartCluster(r.tb, 3, 1)
	c.NodeTimeout = 3 * time.Second
	f := &clusterFaults{cluster: c, lossy: lossy{args}}
	return &store{
		masters: func() string { return mastersOf(c) }, lossy: f.lossy,
		gateways: 3,
		door:     func() (string, *testkit.Proxy) { return c.URL(), nil },
		faults:   slices.Concat(f.kinds(), handFaults()),
		server:   func(shard int) *testkit.Redis { return c.MasterOf(f.slot(shard)) },
		key: func(shard int) string {
			tags := clusterTags()
			return fmt.Sprintf("pos-ev:{%d}:%d", tags[shard%len(tags)], shard)
		},
	}
}

// add adds an entry as a program would that knows Redis only.
func (s *store) add(shard int, fields ...string) (event.ID, error) {
	server := s.server(shard)
	if server == nil {
		return event.ID{}, errors.New("no server takes writes")
	}
	reply, err := server.Try(append([]string{"XADD", s.key(shard), "*"}, fields...)...)
	if err != nil {
		return event.ID{}, err
	}
	return event.ParseID(fmt.Sprint(reply))
}
