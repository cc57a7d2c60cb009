package logtest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

func positionCases() []testCase {
	return []testCase{
		{name: "kept and read", run: positionsKept},
		{name: "never back, but from ahead of the head", run: positionsBack},
		{name: "an older owner is refused", run: positionsFenced},
		{name: "of writers at once the highest stands", run: positionsConcurrent},
		{name: "every interleaving keeps what it should", run: positionsModel},
		{name: "they outlive the window", opts: Options{Window: shortWindow}, run: positionsSwept},
		{name: "they survive a restart", run: positionsReopen},
	}
}

type positions = map[string]event.ID

func (r *rig) keep(shard int, generation uint64, p positions) {
	r.Helper()
	if err := r.Log.KeepPositions(r.ctx, shard, generation, p); err != nil {
		r.Fatalf("KeepPositions of %d devices: %v", len(p), err)
	}
}

func (r *rig) wantPositions(what string, shard int, want positions, devices ...string) {
	r.Helper()
	if devices == nil {
		devices = slices.Collect(maps.Keys(want))
	}
	got, err := r.Log.Positions(r.ctx, shard, devices)
	if err != nil {
		r.Fatalf("Positions: %v", err)
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		r.Errorf("%s: positions of shard %d (-want +got):\n%s", what, shard, diff)
	}
}

// positionsKept: more at once than one step of any log takes.
func positionsKept(r *rig) {
	ids := r.appendN(0, 2)
	many := positions{}
	for i := range 1500 {
		many[fmt.Sprintf("dev-%d", i)] = ids[i%2]
	}
	r.keep(0, 5, many)
	r.wantPositions("all of them", 0, many)
	r.wantPositions("some, and one that is unknown", 0, positions{"dev-3": ids[1]}, "dev-3", "nobody", "")
	r.wantPositions("of another shard", 1, positions{}, "dev-3")
	r.wantPositions("none asked for", 0, positions{}, []string{}...)
	for _, device := range []string{"", "*", "@group", "a\nb"} {
		if err := r.Log.KeepPositions(r.ctx, 0, 0, positions{device: ids[0], "good": ids[0]}); err == nil {
			r.Errorf("the position of %q was taken", device)
		}
	}
	r.wantPositions("beside a bad one", 0, positions{}, "good")
	if err := r.Log.KeepPositions(r.ctx, r.opts.Shards, 0, many); err == nil {
		r.Error("positions in a shard that isn't there were taken")
	}
	if _, err := r.Log.Positions(r.ctx, -1, []string{"a"}); err == nil {
		r.Error("positions in a shard that isn't there were read")
	}
}

func positionsBack(r *rig) {
	ids := r.appendN(0, 3)
	r.keep(0, 0, positions{"a": ids[1]})
	r.keep(0, 0, positions{"a": ids[0], "b": ids[0]})
	r.wantPositions("after a lower one", 0, positions{"a": ids[1], "b": ids[0]})
	r.keep(0, 0, positions{"a": ids[2]})
	r.wantPositions("after a higher one", 0, positions{"a": ids[2]})

	lost := event.ID{Ms: ids[2].Ms + 1<<40, Seq: 7} // as of a branch that is gone
	r.keep(0, 0, positions{"a": lost})
	r.wantPositions("ahead of the head", 0, positions{"a": lost})
	r.keep(0, 0, positions{"a": ids[1]})
	r.wantPositions("back into the log", 0, positions{"a": ids[1]})
	huge := event.MaxID
	r.keep(0, 0, positions{"b": huge})
	r.wantPositions("the highest there is", 0, positions{"b": huge})
	r.keep(0, 0, positions{"b": ids[2]})
	r.wantPositions("back from it", 0, positions{"b": ids[2]})
}

// positionsFenced: generations are compared as numbers, beyond what a double
// can tell apart, too.
func positionsFenced(r *rig) {
	ids := r.appendN(0, 3)
	refused := func(generation uint64) {
		r.Helper()
		err := r.Log.KeepPositions(r.ctx, 0, generation, positions{"a": ids[2], "late": ids[2]})
		if !errors.Is(err, eventlog.ErrFenced) {
			r.Errorf("generation %d: %v, want ErrFenced", generation, err)
		}
	}
	r.keep(0, 0, positions{"a": ids[0]})
	r.keep(0, 9, positions{"a": ids[0]})
	r.keep(0, 10, positions{"a": ids[1]})
	r.keep(0, 10, positions{"a": ids[1]})
	refused(9)
	r.keep(0, 1<<53+1, nil) // only fences
	refused(1 << 53)
	refused(10)
	r.wantPositions("after refused ones", 0, positions{"a": ids[1]}, "a", "late")
	r.keep(1, 3, nil)
	r.keep(0, 0, positions{"a": ids[2]})
	refused(1)
	r.keep(0, 1<<64-1, positions{"b": ids[2]})
	refused(1<<64 - 2)
	r.wantPositions("at the end", 0, positions{"a": ids[2], "b": ids[2]}, "a", "b", "late")
}

func positionsConcurrent(r *rig) {
	ids := r.appendN(0, 24)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			if err := r.Log.KeepPositions(r.ctx, 0, 4, positions{"a": ids[i], fmt.Sprint("dev-", i): ids[i]}); err != nil {
				r.Errorf("KeepPositions: %v", err)
			}
		})
	}
	wg.Wait()
	r.wantPositions("of all writers", 0, positions{"a": ids[23], "dev-7": ids[7]})
}

func positionsModel(r *rig) {
	ids := r.appendN(0, 4)
	head := ids[3]
	ids = append(ids, head.Next(), event.ID{Ms: head.Ms + 1}, event.ID{Ms: head.Ms * 10})
	var model positions
	var highest uint64 = 1
	rapid.Check(r.T, func(t *rapid.T) {
		name := func() string {
			return fmt.Sprint("model-", highest, "-", rapid.IntRange(0, 2).Draw(t, "device"))
		}
		highest++ // of this run
		model = positions{}
		devices := []string{}
		for range rapid.IntRange(1, 8).Draw(t, "calls") {
			generation := rapid.SampledFrom([]uint64{0, highest - 1, highest}).Draw(t, "generation")
			p := positions{}
			for range rapid.IntRange(0, 3).Draw(t, "positions") {
				p[name()] = rapid.SampledFrom(ids).Draw(t, "id")
			}
			fenced := generation == highest-1 && model[""] == (event.ID{Ms: highest})
			err := r.Log.KeepPositions(r.ctx, 0, generation, p)
			if fenced != errors.Is(err, eventlog.ErrFenced) || !fenced && err != nil {
				t.Fatalf("generation %d of %d: %v", generation, highest, err)
			}
			if fenced {
				continue
			}
			if generation == highest {
				model[""] = event.ID{Ms: highest}
			}
			for d, id := range p {
				devices = append(devices, d)
				if old := model[d]; old.Less(id) || head.Less(old) {
					model[d] = id
				}
			}
		}
		got, err := r.Log.Positions(r.ctx, 0, devices)
		delete(model, "")
		if err != nil || !maps.Equal(got, model) {
			t.Fatalf("positions %v, %v; want %v", got, err, model)
		}
	})
}

// positionsSwept: a position is no entry, and nothing that is swept misses it.
func positionsSwept(r *rig) {
	ids := r.appendN(0, 3)
	r.keep(0, 1, positions{"a": ids[1]})
	r.sweepTo(0, ids[2])
	r.wantPositions("after the sweep", 0, positions{"a": ids[1]})
	r.wantJudge("a position that left the window, nothing missed", "", 0, ids[1], "a")
	r.wantJudge("a position that left the window, something missed", event.WindowExpired, 0, ids[1], r.device(0, 0))
}

func positionsReopen(r *rig) {
	if r.Reopen == nil {
		r.Skip("this log can't be reopened by the harness")
	}
	ids := r.appendN(0, 2)
	r.keep(0, 6, positions{"a": ids[1]})
	r.Log = r.Reopen()
	r.wantPositions("after a restart", 0, positions{"a": ids[1]})
	if err := r.Log.KeepPositions(r.ctx, 0, 5, positions{"a": ids[1]}); !errors.Is(err, eventlog.ErrFenced) {
		r.Errorf("an older owner after a restart: %v, want ErrFenced", err)
	}
}
