package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"

	"downlink/internal/control"
	"downlink/internal/dial"
	"downlink/internal/explain"
	"downlink/internal/inventory"
	"downlink/internal/limits"
	"downlink/internal/metrics"
	"downlink/internal/openapi"
	"downlink/internal/publish"
	"downlink/internal/push"
	"downlink/internal/ring"
	"downlink/internal/server"
)

// DialPath is where the back end's port of a dialler says who owns what.
const DialPath = "/v1/dial"

// routes are what the back end's port of a dialler serves.
func (g *Dialler) routes() []server.Route {
	routes := []server.Route{
		{Method: http.MethodGet, Path: DialPath, Handler: g.admin(http.HandlerFunc(g.show))},
		{Method: http.MethodGet, Path: openapi.Path, Handler: openapi.Handler()},
		{Method: http.MethodGet, Path: limits.Path, Handler: g.admin(limits.Show(g.opts.Limits))},
		{Method: http.MethodPatch, Path: limits.Path, Handler: g.admin(limits.Apply(g.opts.Limits, g.opts.Logger.With("part", "limits")))},
		{Method: http.MethodGet, Path: "/metrics", Handler: metrics.Handler(g.registry, g.opts.Logger)},
	}
	if g.dial.Owner == Nobody {
		return append(routes, server.Route{Path: push.Path, Handler: g.push})
	}
	return append(append(routes, g.governorRoutes()...),
		server.Route{Path: publish.Path, Handler: http.HandlerFunc(g.publish)},
		server.Route{Method: http.MethodGet, Path: explain.Path, Handler: g.admin(http.HandlerFunc(g.explain))},
		g.order(http.MethodPost, control.DisconnectPath, (*control.Handler).Disconnect),
		g.order(http.MethodPost, control.RevokePath, (*control.Handler).Revoke),
		g.order(http.MethodDelete, control.RevokePath, (*control.Handler).Restore),
		g.order(http.MethodGet, control.RevokedPath, (*control.Handler).Revoked),
	)
}

// A DialStatus is what GET /v1/dial answers.
type DialStatus struct {
	Owner     Owner            `json:"owner"`
	Transport dial.Transport   `json:"transport"`
	Member    string           `json:"member,omitempty"`
	Ready     bool             `json:"ready"`
	Why       string           `json:"why,omitempty"` // it isn't ready
	Leaving   bool             `json:"leaving,omitempty"`
	Inventory inventory.Status `json:"inventory"`
	Devices   dial.Counts      `json:"devices"` // of this member's shards
	Members   []DialMember     `json:"members,omitempty"`
	Moving    int              `json:"moving"` // shards whose owner isn't the proposed one
	Shards    []DialledShard   `json:"shards,omitempty"`
}

// A DialMember is one member of a ring.
type DialMember struct {
	Name    string `json:"name"`
	Leaving bool   `json:"leaving,omitempty"`
	Shards  int    `json:"shards"` // that it owns
}

// A DialledShard is one shard: who should have it, who has, and how its devices
// are if that is this member.
type DialledShard struct {
	Shard      int          `json:"shard"`
	Proposed   string       `json:"proposed,omitempty"`
	Owner      string       `json:"owner,omitempty"`
	Generation uint64       `json:"generation,omitempty"`
	Held       bool         `json:"held"` // by this member
	Live       bool         `json:"live"` // and it may write
	Letting    bool         `json:"letting,omitempty"`
	Devices    *dial.Counts `json:"devices,omitempty"`
}

// show answers GET /v1/dial.
func (g *Dialler) show(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(g.Status()) // the client may be gone; there is nobody to tell of that
}

// Status is who owns what, as this member knows it.
func (g *Dialler) Status() DialStatus {
	s := DialStatus{Owner: g.dial.Owner, Transport: g.dial.Transport, Leaving: g.leaves.Load(), Inventory: g.inventory.Status()}
	s.Ready, s.Why = g.Ready()
	counts := make(map[int]dial.Counts)
	if e := g.engine.Load(); e != nil {
		for _, h := range e.Status() {
			counts[h.Shard] = h.Counts
			s.Devices.Add(h.Counts)
		}
	}
	if m := g.member.Load(); m != nil {
		g.ringStatus(&s, counts)
		return s
	}
	if f := g.flow.Load(); f != nil {
		for i := range f.log.Shards() {
			if n, held := counts[i]; held {
				s.Shards = append(s.Shards, DialledShard{Shard: i, Held: true, Live: true, Devices: &n})
			}
		}
	}
	return s
}

// ringStatus adds what members and leases say.
func (g *Dialler) ringStatus(s *DialStatus, counts map[int]dial.Counts) {
	l := g.member.Load().Status()
	s.Member, s.Moving = l.Name, l.Moving
	owned := make(map[string]int)
	for _, shard := range l.Shards {
		d := DialledShard{
			Shard: shard.Shard, Proposed: shard.Proposed, Owner: shard.Owner, Generation: shard.Generation,
			Held: shard.Held, Live: shard.Live, Letting: shard.Letting,
		}
		if n, ok := counts[shard.Shard]; ok {
			d.Devices = &n
		}
		owned[shard.Owner]++
		s.Shards = append(s.Shards, d)
	}
	for _, m := range l.Members {
		s.Members = append(s.Members, DialMember{Name: m.Name, Leaving: m.Leaving, Shards: owned[m.Name]})
	}
}

// whoDials says which member is to dial a device.
func (g *Dialler) whoDials(device string, shard int) string {
	if _, listed := g.inventory.Lookup(device); !listed {
		return "it isn't in this member's inventory, or its entry there is wrong: nobody dials it"
	}
	const ours = "this member dials it"
	m := g.member.Load()
	if m == nil {
		if ring.Static(shard, g.dial.Index, g.dial.Members, g.dial.Replication) {
			return ours
		}
		return fmt.Sprintf("its shard is %d: member %d of %d dials it", shard, shard%g.dial.Members, g.dial.Members)
	}
	at := m.Status()
	switch owner := at.Shards[shard].Owner; owner {
	case at.Name:
		return ours
	case "":
		return fmt.Sprintf("nobody has its shard, %d, just now", shard)
	default:
		return fmt.Sprintf("its shard is %d: member %s dials it", shard, owner)
	}
}
