package redislog

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"downlink/internal/eventlog/redisurl"
)

// identity looks at what kind of server it is.
func (d *diagnosis) identity(n *node, info map[string]string) {
	major, _, _ := strings.Cut(info["redis_version"], ".")
	if v, err := strconv.Atoi(major); err != nil || v < 7 {
		d.problem(FoundVersion, n.addr, "it is version "+orNone(info["redis_version"]), "upgrade it to 7.0 or newer", "")
	}
	clustered, meant := info["cluster_enabled"] == "1", d.log.place.form == redisurl.Cluster
	switch {
	case clustered && !meant:
		d.problem(FoundForm, n.addr, "it is part of a cluster", "write its URL as redis+cluster://…", "")
	case !clustered && meant:
		d.problem(FoundForm, n.addr, "it is no part of a cluster", "write its URL as redis://… or redis+sentinel://…", "")
	}
	if info["role"] != "master" {
		d.problem(FoundReplica, n.addr, "it is a replica of "+info["master_host"]+":"+info["master_port"],
			"name its primary, or the Sentinels", "")
	}
}

// memory looks at how full it is and what happens then.
func (d *diagnosis) memory(n *node, info map[string]string) {
	if policy := info["maxmemory_policy"]; policy != "noeviction" {
		what, do := "maxmemory-policy is "+policy+": it may delete events and the notes about them", "CONFIG SET maxmemory-policy noeviction"
		if d.log.opts.AllowEviction {
			d.warn(FoundEviction, n.addr, what, do, "")
		} else {
			d.problem(FoundEviction, n.addr, what, do, "")
		}
	}
	used, _ := strconv.ParseFloat(info["used_memory"], 64)
	most, _ := strconv.ParseFloat(info["maxmemory"], 64)
	if most == 0 {
		d.warn(FoundNoMaximum, n.addr, "maxmemory isn't set: the log may grow until the machine kills the server",
			"set maxmemory well below the machine's memory; publishing is refused when it is reached", "")
		return
	}
	part := used / most
	what := fmt.Sprintf("%.0f %% of maxmemory are used", 100*part)
	do := "raise maxmemory, shorten the window, or publish less"
	switch {
	case part >= fullFails:
		d.problem(FoundFull, n.addr, what, do, "")
	case part >= fullWarns:
		d.warn(FoundFull, n.addr, what, do, "")
	}
}

// replicas looks at who follows it, and how far behind.
func (d *diagnosis) replicas(n *node, info map[string]string) {
	online := 0
	written, _ := strconv.ParseInt(info["master_repl_offset"], 10, 64)
	for i := 0; info["slave"+strconv.Itoa(i)] != ""; i++ {
		fields := make(map[string]string)
		for part := range strings.SplitSeq(info["slave"+strconv.Itoa(i)], ",") {
			name, value, _ := strings.Cut(part, "=")
			fields[name] = value
		}
		lag, err := strconv.Atoi(fields["lag"])
		confirmed, _ := strconv.ParseInt(fields["offset"], 10, 64)
		who, do := "its replica "+fields["ip"]+":"+fields["port"], "see whether it runs, and the network to it: what it lacks is lost in a failover"
		switch {
		case fields["state"] != "online":
		case err != nil || time.Duration(lag)*time.Second > mostLag:
			d.warn(FoundLag, n.addr, fmt.Sprintf("%s was last heard of %d s ago", who, lag), do, "")
		case written-confirmed > mostBehind:
			d.warn(FoundLag, n.addr, fmt.Sprintf("%s is %d MiB behind", who, (written-confirmed)>>20), do, "")
			online++
		default:
			online++
		}
	}
	o := &d.log.opts
	form := d.log.place.form
	switch {
	case online < o.Replicas:
		d.problem(FoundNoReplica, n.addr, fmt.Sprintf("%d replicas follow, and durability asks for %d: every event is refused", online, o.Replicas),
			"add replicas, or lower durability", "")
	case online == 0 && (o.ReadReplica || form == redisurl.Sentinel || form == redisurl.Cluster):
		d.warn(FoundNoReplica, n.addr, "no replica follows it: there is nobody to fail over to", "add a replica", "")
	}
}

// settings looks at what only CONFIG tells.
func (d *diagnosis) settings(ctx context.Context, n *node, info map[string]string) {
	b := n.client.B()
	reply, err := n.do(ctx, b.ConfigGet().Parameter("save", "timeout", "client-output-buffer-limit").Build())
	if err != nil {
		d.warn(FoundHidden, n.addr, "its settings can't be read: snapshots, timeout and output limits weren't looked at",
			"check as a user who has +config|get; the gateway itself doesn't need it", err.Error())
	}
	conf := map[string]string{"save": "unknown"}
	if err == nil {
		if conf, err = reply.AsStrMap(); err != nil {
			return
		}
	}
	if info["aof_enabled"] != "1" {
		what := "no append-only file: a restart loses what came since the last snapshot"
		if conf["save"] == "" {
			what = "it stores nothing on disk: a restart loses everything"
		}
		d.warn(FoundPersistence, n.addr, what, "CONFIG SET appendonly yes, and in redis.conf", "")
	}
	if seconds, _ := strconv.Atoi(conf["timeout"]); seconds > 0 && time.Duration(seconds)*time.Second <= d.log.opts.BlockTime+pingGap {
		d.warn(FoundTimeout, n.addr, fmt.Sprintf("timeout %d ends connections that are quiet for a moment", seconds), "CONFIG SET timeout 0", "")
	}
	words := strings.Fields(conf["client-output-buffer-limit"])
	for i := 0; i+1 < len(words); i += 4 {
		if hard, _ := strconv.ParseInt(words[i+1], 10, 64); words[i] == "normal" && hard > 0 && hard < leastReply {
			d.warn(FoundOutput, n.addr, fmt.Sprintf("client-output-buffer-limit normal %d ends a connection in the middle of a large reply", hard),
				fmt.Sprintf("set it to 0, or to %d at least", leastReply), "")
		}
	}
}

// permissions tries every command that the gateway uses in a form that changes
// nothing: its key doesn't exist, and is never made.
func (d *diagnosis) permissions(ctx context.Context, n *node) {
	key := d.log.opts.Prefix + ":check"
	nosha := strings.Repeat("0", 40)
	tries := [][]string{
		{"PING"}, {"TIME"}, {"EXISTS", key}, {"UNLINK", key}, {"XADD", key, "NOMKSTREAM", "*", "a", "b"},
		{"XREAD", "COUNT", "1", "STREAMS", key, "0-0"}, {"XRANGE", key, "-", "+", "COUNT", "1"}, {"XTRIM", key, "MAXLEN", "0"},
		{"XDEL", key, "1-1"}, {"XINFO", "STREAM", key}, {"HSET", key, "a", "b", "c"}, {"HGET", key, "a"}, {"HGETALL", key},
		{"HLEN", key}, {"HMGET", key, "a"}, {"HSCAN", key, "0"}, {"HDEL", key, "a"}, {"GET", key}, {"SET", key, "a", "XX"},
		{"EVAL", "return 1", "0"}, {"EVALSHA", nosha, "0"}, {"SCRIPT", "LOAD", "return 1"},
	}
	if d.log.opts.Replicas > 0 {
		tries = append(tries, []string{"WAIT", "0", "1"})
	}
	if d.log.opts.ReadReplica {
		tries = append(tries, []string{"READONLY"}) // elsewhere than at a member of a cluster, an error of another kind
	}
	if d.log.place.form == redisurl.Cluster {
		tries = append(tries, []string{"ASKING"}, []string{"CLUSTER", "SLOTS"}, []string{"CLUSTER", "INFO"},
			[]string{"CLUSTER", "NODES"}, []string{"CLUSTER", "MYID"})
	}
	var missing []string
	detail := ""
	for _, t := range tries {
		_, err := n.do(ctx, n.client.B().Arbitrary(t...).Build())
		if err == nil || !strings.Contains(err.Error(), "NOPERM") {
			continue
		}
		name := strings.ToLower(t[0])
		if name == "xinfo" || name == "script" || name == "cluster" {
			name += "|" + strings.ToLower(t[1])
		}
		missing, detail = append(missing, "+"+name), err.Error()
	}
	missing = append(missing, d.transactions(ctx, n)...)
	if len(missing) > 0 {
		d.problem(FoundPermission, n.addr, "the user lacks permissions for commands or for keys that begin with "+d.log.opts.Prefix+":",
			"ACL SETUSER <name> ~"+d.log.opts.Prefix+":* "+strings.Join(missing, " ")+"; "+usersPage+" lists all", detail)
	}
}

// transactions are tried by an empty one: between the two commands the connection
// must be used by nobody else.
func (d *diagnosis) transactions(ctx context.Context, n *node) (missing []string) {
	b := n.client.B()
	replies, err := n.doMulti(ctx, callCheck, b.Multi().Build(), b.Exec().Build())
	for i := range replies {
		if err == nil && replies[i].Error() != nil && strings.Contains(replies[i].Error().Error(), "NOPERM") {
			missing = append(missing, []string{"+multi", "+exec"}[i])
		}
	}
	return missing
}

// clock compares the server's clock with this machine's, in the middle of a
// round trip.
func (d *diagnosis) clock(ctx context.Context, n *node) {
	began := time.Now()
	reply, err := n.do(ctx, n.client.B().Time().Build())
	took := time.Since(began)
	if err != nil {
		return
	}
	parts, err := reply.AsStrSlice()
	if err != nil || len(parts) != 2 {
		return
	}
	seconds, _ := strconv.ParseInt(parts[0], 10, 64)
	micros, _ := strconv.ParseInt(parts[1], 10, 64)
	ahead := began.Add(took / 2).Sub(time.Unix(seconds, micros*1000))
	d.clocks = append(d.clocks, clock{n.addr, ahead, took / 2})
	if side := "behind"; ahead.Abs() > mostSkew+took {
		if ahead < 0 {
			side = "ahead of"
		}
		d.warn(FoundClock, n.addr, fmt.Sprintf("its clock is %v %s this machine's", ahead.Abs().Round(time.Millisecond), side),
			"let both follow NTP: nothing is lost by it, but latencies and times in logs don't fit together, and tokens may expire early or late", "")
	}
}

// compareClocks compares the servers with each other.
func (d *diagnosis) compareClocks() {
	for i := range d.clocks {
		a, b := d.clocks[0], d.clocks[i]
		if apart := (b.ahead - a.ahead).Abs(); apart > mostSkew+a.give+b.give {
			d.warn(FoundClock, b.addr, fmt.Sprintf("its clock and that of %s are %v apart", a.addr, apart.Round(time.Millisecond)),
				"let all servers follow NTP", "")
		}
	}
}

// coverage looks at whether every slot of the cluster is served.
func (d *diagnosis) coverage(ctx context.Context, n *node) {
	reply, err := n.do(ctx, n.client.B().ClusterInfo().Build())
	if err != nil {
		return // the map of the cluster was read, so this is a matter of permissions
	}
	text, _ := reply.ToString()
	info := parseInfo(strings.TrimPrefix(text, "txt:")) // the mark of a verbatim string
	if info["cluster_state"] != "ok" || info["cluster_slots_assigned"] != strconv.Itoa(slots) {
		d.problem(FoundCoverage, n.addr, fmt.Sprintf("it calls the cluster %q, with %s of %d slots served", info["cluster_state"], info["cluster_slots_assigned"], slots),
			"bring the missing masters back, or assign their slots", "")
	}
}
