// Package ring owns the arithmetic of ownership: which member should hold which
// shard. It knows no Redis, no time and no connection; who holds a shard in
// fact is decided by leases. Its invariant: every member that is given the same
// members and the same shards, in whatever order, proposes the same owners.
//
// Members get equally many shards, to within one, and a shard moves only where
// that can't be had otherwise. No function of the members alone can do both (see
// docs/decisions/0027), so a proposal starts from who holds what.
package ring

import (
	"cmp"
	"slices"
)

// A Shard is what is known of a shard's ownership. The zero value is a shard
// that nobody has ever held. Names that are not members' are allowed anywhere.
//
// The past is kept beside the leases, for all to see: with it, a member that
// leaves and returns gets back just the shards that it had, however often that
// happens to how many members in turn, as in a rollout.
type Shard struct {
	Owner string // holds its lease now; "" for nobody
	Last  string // held it last: Owner, where there is one
	Was   string // held it before Last
	Since uint64 // the lease's generation when Last took over from Was
}

// Taken is the shard once member has taken its lease, with that generation.
func (s Shard) Taken(member string, generation uint64) Shard {
	if member != s.Last {
		s.Last, s.Was, s.Since = member, s.Last, generation
	}
	s.Owner = member
	return s
}

// Owners proposes an owner for each shard: "" for all if there are no members.
// The order of members is of no account, nor are repetitions and empty names.
//
// Each member is proposed as many shards as its quota says: shards/members, or
// one more. Who holds too many gives up exactly the surplus, and what is free
// goes to those who hold too few; nothing else moves. Of several choices the
// first is a member that had the shard before, then a shard whose holder only
// minds it since another has gone; of these what changed hands last. Then a hash
// decides. While a proposal comes true, shard by shard, it stays the same.
func Owners(members []string, shards []Shard) []string {
	owners := make([]string, len(shards))
	missing := quotas(members, len(shards))
	for i, s := range shards {
		if _, member := missing[s.Owner]; member {
			owners[i] = s.Owner
			missing[s.Owner]--
		}
	}
	for _, m := range moves(missing, shards, owners) {
		from := owners[m.shard]
		if missing[m.to] <= 0 || from != "" && missing[from] >= 0 {
			continue // nobody with too many holds it, or not any more
		}
		if from != "" {
			missing[from]++
		}
		owners[m.shard] = m.to
		missing[m.to]--
	}
	return owners
}

// quotas says how many shards each member should hold. The same members always
// get the same quotas, and a member more never raises another's: a difference
// to the quota is a move that can't be avoided.
func quotas(members []string, shards int) map[string]int {
	names := slices.DeleteFunc(slices.Clone(members), func(m string) bool { return m == "" })
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(hash(a, -1), hash(b, -1)), cmp.Compare(a, b))
	})
	names = slices.Compact(names)
	of := make(map[string]int, len(names))
	for i, name := range names {
		of[name] = shards / len(names)
		if i < shards%len(names) {
			of[name]++
		}
	}
	return of
}

// A move would give a shard to a member. Lower ranks come first.
type move struct {
	shard int
	to    string
	rank  int
	since uint64
	hash  uint64
}

// moves are all that may be made, the best first: from nobody, or from whoever
// holds too many, to whoever holds too few.
func moves(missing map[string]int, shards []Shard, owners []string) []move {
	var all []move
	for i, s := range shards {
		if owners[i] != "" && missing[owners[i]] >= 0 {
			continue
		}
		_, there := missing[s.Was]
		for to, n := range missing {
			if n > 0 {
				rank, since := s.rank(to, s.Was != "" && !there)
				all = append(all, move{i, to, rank, since, hash(to, i)})
			}
		}
	}
	slices.SortFunc(all, func(a, b move) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(b.since, a.since),
			cmp.Compare(a.hash, b.hash), cmp.Compare(a.shard, b.shard), cmp.Compare(a.to, b.to))
	})
	return all
}

// rank says how good it is that the shard goes to a member, 0 best, and since
// when. minded is true if it came from a member that isn't there any more.
func (s Shard) rank(to string, minded bool) (rank int, since uint64) {
	switch {
	case to == s.Last:
		return 0, 0
	case to == s.Was:
		return 1, s.Since
	case minded:
		return 2, s.Since
	}
	return 3, 0
}

// hash is the same in every version and on every machine: FNV-1a of the name,
// mixed with the shard by the finalizer of SplitMix64.
func hash(name string, shard int) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	h += (uint64(int64(shard)) + 1) * 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
