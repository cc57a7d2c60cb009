package ring

// Static reports whether the member with this index, counted from 0, is one of
// the replication members of that many that hold the shard, without asking
// anybody: shard % members and those who follow. All three must be at least 1,
// and replication at most members.
func Static(shard, index, members, replication int) bool {
	return (index-shard%members+members)%members < replication
}
