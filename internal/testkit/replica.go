package testkit

import (
	"fmt"
	"strings"
)

// Info is a field of INFO; empty if there is none, or no answer.
func (r *Redis) Info(section, field string) string {
	reply, err := r.Try("INFO", section)
	if err != nil {
		return ""
	}
	for line := range strings.SplitSeq(fmt.Sprint(reply), "\r\n") {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return value
		}
	}
	return ""
}

// Role is "master" or "slave"; empty if the server doesn't answer.
func (r *Redis) Role() string { return r.Info("replication", "role") }

// Follow makes the server a replica and waits until it has everything.
func (r *Redis) Follow(primary *Redis) {
	r.tb.Helper()
	r.Do("REPLICAOF", "127.0.0.1", primary.peerPort())
	r.AwaitLink("up")
}

// AwaitLink waits until a replica's link to its primary is "up" or "down".
func (r *Redis) AwaitLink(status string) {
	r.tb.Helper()
	Eventually(r.tb, "the replica's link is "+status, func() bool {
		return r.Info("replication", "master_link_status") == status
	})
}

// CutReplicas ends the replication to every replica and lets none resume it,
// so that what is written from now on is lost in a failover. To freeze or kill
// is not enough for that: a replica applies what its socket still holds.
func (r *Redis) CutReplicas(replicas ...*Redis) {
	r.tb.Helper()
	r.Do("ACL", "SETUSER", "default", "-psync", "-sync")
	r.Do("CLIENT", "KILL", "TYPE", "replica")
	for _, one := range replicas {
		one.AwaitLink("down")
	}
}

// AwaitReplica waits until the only replica has everything. WAIT is of no use
// for that: it is about what its own connection has written.
func (r *Redis) AwaitReplica() {
	r.tb.Helper()
	Eventually(r.tb, "the replica has everything", func() bool {
		offset := r.Info("replication", "master_repl_offset")
		return offset != "" && strings.Contains(r.Info("replication", "slave0"), "offset="+offset+",")
	})
}

// Isolate puts the server on the small side of a partition: replicas and
// Sentinels, who come as the default user, reach it no more, while clients with
// a user of their own (RedisUser) notice nothing. Do and Try may do little
// meanwhile, either.
func (r *Redis) Isolate() {
	r.tb.Helper()
	r.expectToBeMissed()
	r.Do("ACL", "SETUSER", "default", "-@all", "+acl|setuser", "+client|kill", "+config|set", "+xrange")
	r.Do("CLIENT", "KILL", "USER", "default")
}

// Rejoin takes Isolate back.
func (r *Redis) Rejoin() {
	r.tb.Helper()
	r.Do("ACL", "SETUSER", "default", "+@all")
}

// Holds reports whether the stream at key holds an entry.
func (r *Redis) Holds(key, id string) bool {
	r.tb.Helper()
	replies := r.Pipe([]string{"READONLY"}, []string{"XRANGE", key, id, id}) // it may be a replica in a cluster
	entries, ok := replies[1].([]any)
	if !ok {
		r.tb.Fatalf("reading %s at %s: %v", key, r.Addr(), replies[1])
	}
	return len(entries) > 0
}

// AllowReplicas takes CutReplicas back, but for SYNC: a replica that was denied
// PSYNC a moment ago would go on with that, as those before Redis 2.8 did, and
// would never confirm anything.
func (r *Redis) AllowReplicas() {
	r.tb.Helper()
	r.Do("ACL", "SETUSER", "default", "+psync")
}
