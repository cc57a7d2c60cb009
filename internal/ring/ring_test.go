package ring_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"downlink/internal/ring"
)

// A fleet is members and what they hold; settle makes the proposal come true.
type fleet struct {
	members    []string
	shards     []ring.Shard
	generation uint64
}

// settle lets everybody hold what is proposed to him, and says how many shards
// have another owner now.
func (f *fleet) settle() int {
	moved := 0
	for i, owner := range ring.Owners(f.members, f.shards) {
		if f.shards[i].Owner == owner {
			continue
		}
		moved++
		if owner == "" {
			f.shards[i].Owner = ""
			continue
		}
		f.take(i, owner)
	}
	return moved
}

func (f *fleet) take(shard int, member string) {
	f.generation++
	f.shards[shard] = f.shards[shard].Taken(member, f.generation)
}

func (f *fleet) join(name string) { f.members = append(f.members, name) }

// leave also frees what the member holds.
func (f *fleet) leave(name string) {
	f.members = slices.DeleteFunc(f.members, func(m string) bool { return m == name })
	for i := range f.shards {
		if f.shards[i].Owner == name {
			f.shards[i].Owner = ""
		}
	}
}

// counts says how many shards each member holds.
func (f *fleet) counts() map[string]int {
	counts := make(map[string]int)
	for _, m := range f.members {
		counts[m] = 0
	}
	for _, s := range f.shards {
		counts[s.Owner]++
	}
	return counts
}

func (f *fleet) owners() []string {
	owners := make([]string, len(f.shards))
	for i, s := range f.shards {
		owners[i] = s.Owner
	}
	return owners
}

// settled is a fleet whose members came one after the other.
func settled(members []string, shards int) *fleet {
	f := &fleet{shards: make([]ring.Shard, shards)}
	for _, m := range members {
		f.join(m)
		f.settle()
	}
	return f
}

func names(t *rapid.T, least, most int) []string {
	return rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,3}(-[0-9]{1,2})?`), least, most, rapid.ID).Draw(t, "members")
}

// anyShards draws any state, sensible or not: owners that left, owners with too
// many shards, histories that nobody could have written.
func anyShards(t *rapid.T, members []string) []ring.Shard {
	name := rapid.SampledFrom(append([]string{"", "gone", "stranger"}, members...))
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) ring.Shard {
		return ring.Shard{Owner: name.Draw(t, "owner"), Last: name.Draw(t, "last"), Was: name.Draw(t, "was"), Since: rapid.Uint64().Draw(t, "since")}
	}), 1, 128).Draw(t, "shards")
}

// TestBalance: from any state, all members hold equally many, to within one; and
// that state is left as it is.
func TestBalance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := names(t, 1, 24)
		f := &fleet{members: members, shards: anyShards(t, members)}
		f.settle()
		for m, n := range f.counts() {
			if low := len(f.shards) / len(members); n != low && n != low+1 {
				t.Fatalf("%q holds %d of %d shards among %d members", m, n, len(f.shards), len(members))
			}
		}
		if again := f.settle(); again != 0 {
			t.Fatalf("%d shards move though nothing has happened", again)
		}
	})
}

// TestFewestMoves: from any state, what moves is what nobody holds, and from who
// holds more than his share what he holds too many of; nothing else.
func TestFewestMoves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := names(t, 1, 24)
		before := &fleet{members: members, shards: anyShards(t, members)}
		after := &fleet{members: members, shards: slices.Clone(before.shards)}
		moved := after.settle()

		want, held, hold := 0, before.counts(), after.counts()
		for _, m := range members {
			want += max(0, hold[m]-held[m]) // who gets n shards more than he has gets n: none is exchanged
		}
		if moved != want {
			t.Fatalf("%d shards move, %d would do", moved, want)
		}
	})
}

// TestJoinMovesTheNewcomersShareOnly, to him and from the others in proportion.
func TestJoinMovesTheNewcomersShareOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := names(t, 2, 24)
		shards := rapid.IntRange(1, 128).Draw(t, "shards")
		newcomer, members := members[0], members[1:]
		f := settled(members, shards)
		before := f.owners()
		f.join(newcomer)
		moved := f.settle()
		if share := shards / len(f.members); moved != share && moved != share+1 {
			t.Fatalf("%d of %d shards move when member %d joins", moved, shards, len(f.members))
		}
		for i, owner := range f.owners() {
			if owner != before[i] && owner != newcomer {
				t.Fatalf("shard %d moves from %q to %q though %q has joined", i, before[i], owner, newcomer)
			}
		}
	})
}

// TestLeaveMovesTheLeaversShardsOnly, and all is as before when he returns:
// nothing moves twice in the rollout of a fleet but what its owner had to leave.
func TestLeaveMovesTheLeaversShardsOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := names(t, 2, 24)
		f := settled(members, rapid.IntRange(1, 128).Draw(t, "shards"))
		before := f.owners()
		for _, leaver := range rapid.Permutation(members).Draw(t, "rollout") {
			f.leave(leaver)
			f.settle()
			for i, owner := range f.owners() {
				if owner != before[i] && before[i] != leaver {
					t.Fatalf("shard %d moves from %q to %q though %q has left", i, before[i], owner, leaver)
				}
			}
			f.join(leaver)
			f.settle()
			if d := cmp.Diff(before, f.owners()); d != "" {
				t.Fatalf("after %q came back: %s", leaver, d)
			}
		}
	})
}

// TestExchangeMovesAShardTwiceAtMost: members by new names take the place of
// three, one after the other, each before its predecessor leaves; and that again
// and again.
func TestExchangeMovesAShardTwiceAtMost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rollouts := rapid.IntRange(1, 3).Draw(t, "rollouts")
		all := names(t, 3+3*rollouts, 3+3*rollouts)
		f := settled(all[:3], 64)
		for next := 3; next < len(all); {
			moves := make([]int, 64)
			watch := func() {
				before := f.owners()
				f.settle()
				for i, owner := range f.owners() {
					if owner != before[i] {
						moves[i]++
					}
				}
			}
			for _, leaver := range rapid.Permutation(f.members).Draw(t, "order") {
				f.join(all[next])
				next++
				watch()
				f.leave(leaver)
				watch()
			}
			if most := slices.Max(moves); most > 2 {
				t.Fatalf("a shard moved %d times", most)
			}
		}
	})
}

// TestStaysTheSameWhileItComesTrue: whoever looks in the middle of a movement,
// with some shards released and some taken, proposes what was proposed before.
func TestStaysTheSameWhileItComesTrue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := names(t, 1, 24)
		f := &fleet{members: members, shards: anyShards(t, members)}
		want := ring.Owners(f.members, f.shards)
		for range rapid.IntRange(1, 32).Draw(t, "steps") {
			i := rapid.IntRange(0, len(want)-1).Draw(t, "shard")
			switch {
			case f.shards[i].Owner == want[i]:
			case f.shards[i].Owner != "":
				f.shards[i].Owner = "" // released
			default:
				f.take(i, want[i])
			}
			if d := cmp.Diff(want, ring.Owners(f.members, f.shards)); d != "" {
				t.Fatal(d)
			}
		}
	})
}

// TestGuestLeavesNoTrace: a member that came and went again has changed nothing.
func TestGuestLeavesNoTrace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := names(t, 2, 24)
		guest, members := members[0], members[1:]
		f := settled(members, rapid.IntRange(1, 128).Draw(t, "shards"))
		before := f.owners()
		f.join(guest)
		f.settle()
		f.leave(guest)
		f.settle()
		if d := cmp.Diff(before, f.owners()); d != "" {
			t.Fatal(d)
		}
	})
}

// TestAgreement: neither the order of members nor repetitions and empty names
// change anything.
func TestAgreement(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := names(t, 0, 24)
		shards := anyShards(t, members)
		other := append(rapid.Permutation(members).Draw(t, "order"), members...)
		other = append(other, "")
		if d := cmp.Diff(ring.Owners(members, shards), ring.Owners(other, shards)); d != "" {
			t.Fatal(d)
		}
	})
}

// TestSameInEveryVersion pins a proposal: members of two versions must agree.
func TestSameInEveryVersion(t *testing.T) {
	got := ring.Owners([]string{"a", "b", "c"}, make([]ring.Shard, 16))
	want := strings.Split("accbaabacbcbcbaa", "")
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestNobodyAndNothing(t *testing.T) {
	held := []ring.Shard{{Owner: "a", Last: "a"}, {}}
	if got := ring.Owners(nil, held); !slices.Equal(got, []string{"", ""}) {
		t.Errorf("without members: %q", got)
	}
	if got := ring.Owners([]string{"a"}, nil); len(got) != 0 {
		t.Errorf("without shards: %q", got)
	}
	if got := ring.Owners([]string{"a", "b", "c"}, held); got[0] != "a" || got[1] == "a" || got[1] == "" {
		t.Errorf("with fewer shards than members: %q", got)
	}
}

// TestFlushed: where Redis has lost all leases, a member that still counts what
// itself holds proposes itself at most one shard of the others.
func TestFlushed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := names(t, 1, 24)
		f := settled(members, 64)
		me := members[0]
		lost := make([]ring.Shard, len(f.shards))
		for i, s := range f.shards {
			if s.Owner == me {
				lost[i].Owner = me
			}
		}
		more := 0
		for i, owner := range ring.Owners(members, lost) {
			if owner == me && lost[i].Owner != me {
				more++
			}
		}
		if more > 0 {
			t.Fatalf("%q is proposed %d shards that others hold", me, more)
		}
	})
}

func TestStatic(t *testing.T) {
	for members := 1; members <= 7; members++ {
		for replication := 1; replication <= members; replication++ {
			for shard := range 64 {
				var who []int
				for index := range members {
					if ring.Static(shard, index, members, replication) {
						who = append(who, index)
					}
				}
				if len(who) != replication || !slices.Contains(who, shard%members) {
					t.Fatalf("shard %d among %d members, %d times: %v", shard, members, replication, who)
				}
			}
		}
	}
}

func BenchmarkOwners(b *testing.B) {
	for _, n := range []int{3, 20, 100} {
		var members []string
		for i := range n {
			members = append(members, fmt.Sprintf("dial-%d", i))
		}
		still := settled(members, 64)
		b.Run(fmt.Sprintf("still-%d", n), func(b *testing.B) {
			for b.Loop() {
				ring.Owners(members, still.shards)
			}
		})
		b.Run(fmt.Sprintf("new-%d", n), func(b *testing.B) {
			for b.Loop() {
				ring.Owners(members, make([]ring.Shard, 64))
			}
		})
	}
}
