package lobby

import (
	"net/netip"
	"slices"

	"pgregory.net/rapid"
)

// A world is what TestNothingIsLost believes to be so.
type world struct {
	lobby  *Lobby
	keep   bool
	guests []*someone
}

type someone struct {
	client
	world  *world
	visits []*Visit // that haven't ended
	done   func()   // what Take returned
	gone   bool
}

func (w *world) arrive(t *rapid.T, from, bound int) {
	defer func() {
		cuttable := 0
		for _, s := range w.guests {
			if s.guest.queued {
				cuttable++
			}
		}
		if waiting, _, _ := w.lobby.Count(); waiting > bound && cuttable > 1 {
			t.Fatalf("%d wait where %d may, and %d could be cut", waiting, bound, cuttable)
		}
	}()
	g := w.lobby.Arrive(netip.AddrFrom4([4]byte{192, 0, 2, byte(from)}))
	if g == nil {
		return
	}
	s := &someone{world: w, client: client{guest: g}}
	g.Sit(s)
	w.guests = append(w.guests, s)
}

func (w *world) one(t *rapid.T) *someone {
	if len(w.guests) == 0 {
		t.Skip("nobody is here")
	}
	return rapid.SampledFrom(w.guests).Draw(t, "who")
}

// Close implements io.Closer: a connection is closed by itself or by the lobby.
func (s *someone) Close() error {
	s.gone = true
	return s.client.Close()
}

func (s *someone) leave() {
	switch {
	case s.done != nil:
		s.done()
		s.gone, s.visits = true, nil
	default:
		_ = s.Close() // never fails
		if s.world.keep {
			s.visits = nil
		}
	}
}

func (s *someone) visit(t *rapid.T) {
	if s.gone || s.done != nil {
		t.Skip("makes no visits any more")
	}
	v := s.guest.Visit(netip.Addr{})
	if rapid.Bool().Draw(t, "admit") {
		v.Admit(false)
	}
	if !slices.Contains(s.visits, v) {
		s.visits = append(s.visits, v)
	}
}

func (s *someone) end(t *rapid.T) {
	if len(s.visits) == 0 {
		t.Skip("makes no visit")
	}
	i := rapid.IntRange(0, len(s.visits)-1).Draw(t, "visit")
	s.visits[i].End()
	if s.done == nil && (!s.world.keep || s.gone) { // what was taken ends otherwise
		s.visits = append(s.visits[:i], s.visits[i+1:]...)
	}
}

// take happens to connections with one request at most.
func (s *someone) take() {
	if s.gone || s.done != nil || len(s.visits) > 1 || s.world.keep {
		return
	}
	if len(s.visits) == 1 && s.visits[0] != &s.guest.own {
		return
	}
	s.done = s.guest.Take()
}

// check compares the counts with what the visits say.
func (w *world) check(t *rapid.T) {
	waiting, streams := 0, 0
	for _, s := range w.guests {
		admitted := 0
		for _, v := range s.visits {
			if v.admitted.Load() {
				admitted++
			}
		}
		streams += admitted
		if admitted > 0 && s.closed && s.guest.cut {
			t.Fatal("one with a stream was cut")
		}
		if admitted == 0 && !s.gone {
			waiting++
		}
	}
	w2, s2, _ := w.lobby.Count()
	if w2 != waiting || s2 != streams {
		t.Fatalf("%d wait and there are %d streams, the lobby says %d and %d", waiting, streams, w2, s2)
	}
}
