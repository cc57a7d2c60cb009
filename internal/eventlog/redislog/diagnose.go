package redislog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"downlink/internal/eventlog"
	"downlink/internal/eventlog/redisurl"
)

// A Finding is something about a Redis that is wrong, or likely to be regretted.
type Finding struct {
	Code    string `json:"code"`              // fixed: for scripts
	Server  string `json:"server"`            // host:port, or what else it is about
	Problem bool   `json:"problem"`           // false: the gateway works, and this is a warning
	What    string `json:"what"`              // what is so
	Do      string `json:"do"`                // what to do about it
	Detail  string `json:"details,omitempty"` // what the server said
}

// Codes of findings.
const (
	FoundAway        = "unreachable"
	FoundVersion     = "version"
	FoundForm        = "topology"
	FoundReplica     = "is-a-replica"
	FoundEviction    = "eviction"
	FoundPersistence = "persistence"
	FoundNoReplica   = "no-replica"
	FoundLag         = "replica-lag"
	FoundClock       = "clock"
	FoundPermission  = "permission"
	FoundLayout      = "layout"
	FoundNoMaximum   = "no-maxmemory"
	FoundFull        = "memory"
	FoundTimeout     = "timeout"
	FoundOutput      = "output-limit"
	FoundCoverage    = "cluster-coverage"
	FoundSentinels   = "sentinels"
	FoundHidden      = "config-hidden"
)

// Bounds of what is found.
const (
	mostLag    = 5 * time.Second
	mostBehind = 32 << 20 // bytes of replication
	mostSkew   = time.Second
	fullWarns  = 0.8  // of maxmemory
	fullFails  = 0.95 // likewise
	leastReply = 64 << 20
)

// usersPage says which permissions are needed.
const usersPage = "docs/operate/redis.md#users"

// Diagnose looks at every server that holds part of the log, without writing
// anything, and says what is wrong with it. The servers that it looked at come
// first; there may be none, if nobody can be reached.
func Diagnose(ctx context.Context, opts Options) (servers []string, found []Finding, err error) {
	l, err := find(opts)
	if err != nil {
		return nil, nil, err
	}
	defer l.Close() //nolint:errcheck // it never fails
	d := &diagnosis{log: l}
	if err := l.arrange(ctx); err != nil {
		d.problem(FoundAway, l.place.servers[0].addr, "who serves the log can't be found out", "start the servers, or correct the URL", err.Error())
		d.sentinels(ctx)
		return nil, d.found, nil
	}
	for _, h := range l.atlas.homes {
		if n := h.node(); !slices.Contains(servers, n.addr) {
			servers = append(servers, n.addr)
			d.server(ctx, n)
		}
	}
	for _, g := range l.guards {
		d.layout(ctx, g)
	}
	d.sentinels(ctx)
	d.compareClocks()
	return servers, d.found, nil
}

// A diagnosis gathers findings.
type diagnosis struct {
	log    *Log
	found  []Finding
	clocks []clock
}

// A clock is that of a server.
type clock struct {
	addr  string
	ahead time.Duration // this machine's is of it,
	give  time.Duration // give or take this
}

func (d *diagnosis) problem(code, server, what, do, detail string) {
	d.found = append(d.found, Finding{code, server, true, what, do, detail})
}

func (d *diagnosis) warn(code, server, what, do, detail string) {
	d.found = append(d.found, Finding{code, server, false, what, do, detail})
}

// server looks at one server.
func (d *diagnosis) server(ctx context.Context, n *node) {
	text, err := d.info(ctx, n)
	if err != nil {
		code, do := FoundAway, "start it, or correct its address, user, password or certificates"
		if strings.Contains(err.Error(), "NOPERM") {
			code, do = FoundPermission, "give the user the permissions that "+usersPage+" lists"
		}
		d.problem(code, n.addr, "it doesn't answer as it should", do, err.Error())
		return
	}
	info := parseInfo(text)
	d.identity(n, info)
	d.memory(n, info)
	d.replicas(n, info)
	d.settings(ctx, n, info)
	d.permissions(ctx, n)
	d.clock(ctx, n)
	if d.log.place.form == redisurl.Cluster {
		d.coverage(ctx, n)
	}
}

func (d *diagnosis) info(ctx context.Context, n *node) (string, error) {
	reply, err := n.do(ctx, n.client.B().Info().Build())
	if err != nil {
		return "", err
	}
	return reply.ToString()
}

// layout compares what the guard says, if there is one.
func (d *diagnosis) layout(ctx context.Context, g *guard) {
	n := g.home.node()
	names := make([]string, 0, len(g.want))
	for _, s := range g.want {
		names = append(names, s.field)
	}
	key := d.log.opts.Prefix + ":meta"
	reply, err := g.home.do(ctx, callCheck, g.home.b().Hmget().Key(key).Field(names...).Build())
	if err != nil {
		if !errors.Is(err, eventlog.ErrUnavailable) {
			d.problem(FoundLayout, n.addr, key+" can't be read", "delete it if it is none of a log, or use another prefix", err.Error())
		}
		return // an unreachable one is found already, and so is a missing permission
	}
	stored, err := texts(reply, len(names))
	if err != nil || !slices.ContainsFunc(stored, func(v string) bool { return v != "" }) {
		return // no log is there yet
	}
	for i, s := range g.want {
		if i == 0 && readable(stored[0], d.log.opts.format) {
			continue
		}
		if stored[i] != s.value {
			d.problem(FoundLayout, n.addr,
				fmt.Sprintf("the log there was created with %s %s, and this configuration says %s", s.name, orNone(stored[i]), orNone(s.value)),
				"use the stored value, or another prefix for another log", "")
		}
	}
}

// sentinels compares what each of them says.
func (d *diagnosis) sentinels(ctx context.Context) {
	all, ok := d.log.atlas.locator.(*sentinels)
	if !ok {
		return
	}
	votes := make(map[string][]string)
	for _, n := range all.nodes {
		c, err := all.ask(ctx, n)
		if err != nil {
			d.warn(FoundSentinels, n.addr, "this Sentinel doesn't say who the primary is", "start it, or take it out of the URL", err.Error())
			continue
		}
		votes[c.at(0)] = append(votes[c.at(0)], n.addr)
	}
	if len(votes) < 2 {
		return
	}
	var said []string
	for primary, who := range votes {
		said = append(said, primary+" by "+strings.Join(who, " and "))
	}
	slices.Sort(said)
	d.problem(FoundSentinels, all.master, "the Sentinels name different primaries: "+strings.Join(said, "; "),
		"see which of them is cut off, and reset it (SENTINEL RESET)", "")
}
