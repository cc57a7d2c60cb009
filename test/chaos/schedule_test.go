package chaos

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// A kind is one kind of fault.
type kind struct {
	name   string
	weight int
	on     part
	long   bool // it lasts longer than the window
	alone  bool // nothing else may be broken meanwhile: it checks what follows from it
	strike func(r *run, rng *rand.Rand) (lasts time.Duration, mend func())
}

// A part is what a fault strikes; each has one fault at a time.
type part string

const (
	onLog     part = "log"
	onGateway part = "gateway"
	onDevices part = "devices"
)

// A schedule is the row of faults that follows from a seed: which, when, how
// long and against whom. How the processes interleave doesn't follow from it.
type schedule struct {
	run    *run
	kinds  []kind
	active []*running
}

// running is a fault that isn't mended yet.
type running struct {
	kind kind
	ends time.Time
	mend func()
}

func newSchedule(r *run) *schedule {
	s := &schedule{run: r}
	for _, k := range slices.Concat(r.store.faults, gatewayFaults(), deviceFaults()) {
		if !(k.long && r.brief) && (r.fleet.members[0].link != nil || k.on != onGateway || !k.link()) {
			s.kinds = append(s.kinds, k)
		}
	}
	return s
}

// link reports whether the fault needs a link to the log that can be held up.
func (k kind) link() bool { return len(k.name) > 4 && k.name[:4] == "link" }

// play injects faults for the run's length, and mends them all.
func (s *schedule) play() {
	over := time.Now().Add(s.run.length)
	for step := uint64(0); time.Now().Before(over); step++ {
		rng := rand.New(rand.NewPCG(s.run.seed, 1<<40+step)) // a step draws nothing from another's
		s.pass(time.Duration(200+rng.IntN(2500)) * time.Millisecond)
		k := s.draw(rng)
		for s.busy(k) {
			s.mendNext()
		}
		s.strike(k, rng)
		s.look()
	}
	for len(s.active) > 0 {
		s.mendNext()
	}
	s.look()
}

func (s *schedule) draw(rng *rand.Rand) kind {
	total := 0
	for _, k := range s.kinds {
		total += k.weight
	}
	at := rng.IntN(total)
	for _, k := range s.kinds {
		if at -= k.weight; at < 0 {
			return k
		}
	}
	panic("the weights don't add up")
}

func (s *schedule) busy(k kind) bool {
	return slices.ContainsFunc(s.active, func(a *running) bool { return k.alone || a.kind.on == k.on })
}

func (s *schedule) strike(k kind, rng *rand.Rand) {
	s.run.tb.Logf("%7.2fs %s", s.run.now().Seconds(), k.name)
	s.run.done[k.name]++
	lasts, mend := k.strike(s.run, rng)
	if mend == nil {
		mend = func() {}
	}
	s.active = append(s.active, &running{k, time.Now().Add(lasts), mend})
}

// pass lets time go by, and mends what is due.
func (s *schedule) pass(d time.Duration) {
	until := time.Now().Add(d)
	for {
		next := s.next()
		if next == nil || next.ends.After(until) {
			wait(context.Background(), time.Until(until))
			return
		}
		s.mendNext()
	}
}

// next is the fault that is to be mended first.
func (s *schedule) next() (first *running) {
	for _, a := range s.active {
		if first == nil || a.ends.Before(first.ends) {
			first = a
		}
	}
	return first
}

func (s *schedule) mendNext() {
	a := s.next()
	wait(context.Background(), time.Until(a.ends))
	a.mend()
	s.active = slices.DeleteFunc(s.active, func(one *running) bool { return one == a })
}

// look notes gateways that have ended by themselves.
func (s *schedule) look() {
	for _, i := range s.run.fleet.exits() {
		s.run.tb.Fatalf("gateway %d has ended by itself:\n%s", i, s.run.fleet.members[i].process.Log())
	}
	if found := s.run.chronicle.found(); len(found) > 0 {
		for _, text := range found {
			s.run.tb.Log(text)
		}
		s.run.autopsy(found)
		s.run.tb.Fatalf("%d faults of the product after %v", len(found), s.run.now())
	}
}

// autopsy shows what the log knows of the shards of devices that a fault names.
func (r *run) autopsy(found []string) {
	if r.store.server == nil {
		return
	}
	for _, text := range found[:min(len(found), 5)] {
		name, _, _ := strings.Cut(text, ":")
		for _, d := range r.devices {
			if server := r.store.server(d.shard); d.device == name && server != nil {
				key := r.store.key(d.shard)
				record, _ := server.Try("HGETALL", key+":sweep")
				first, _ := server.Try("XRANGE", key, "-", "+", "COUNT", "1")
				last, _ := server.Try("XREVRANGE", key, "+", "-", "COUNT", "1")
				r.tb.Logf("%s, a %s device, shard %d: %v; from %v to %v", name, d.manner, d.shard, record, first, last)
			}
		}
	}
}
