package chaos

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"downlink/internal/event"
)

// A script plays what one device sees, at second at of a run with a window of
// twenty.
type script struct {
	*witness
	own *lane
	at  time.Duration
}

func newScript() *script {
	own := &lane{name: "own", target: "pos", shard: 3}
	s := &script{own: own, at: time.Second}
	s.witness = newWitness("pos", 3, newChronicle(20*time.Second), func(event.ID) time.Duration { return s.at }, own)
	s.tell(event.NoCursor, 1)
	return s
}

// publish sends and acknowledges the next n events.
func (s *script) publish(n int) {
	for range n {
		s.own.ack(s.own.begin(s.at), s.at)
	}
}

// get handles events, whose entries have the IDs 10-0, 20-0 … of the first branch.
func (s *script) get(numbers ...int) {
	for _, n := range numbers {
		s.event("own", n, event.ID{Ms: uint64(10 * n)}, s.at, true)
	}
}

func (s *script) tell(reason event.Reason, id uint64) { s.resync(reason, event.ID{Ms: id}, s.at) }

func (s *script) pass(seconds int) { s.at += time.Duration(seconds) * time.Second }

// strike is a fault that begins and ends now.
func (s *script) strike(loses bool, reasons ...event.Reason) *incident {
	i := s.chronicle.open(&incident{kind: "fault", shard: -1, loses: loses, reasons: reasons}, s.at)
	s.chronicle.close(i, s.at)
	return i
}

// TestChecker: each rule of the checker finds what it is there for, and lets
// what is justified pass.
func TestChecker(t *testing.T) {
	for name, c := range map[string]struct {
		play func(s *script)
		want string // the start of the only fault after the device's name; empty: none
	}{
		"all is well":                 {func(s *script) { s.publish(3); s.get(1, 2, 3) }, ""},
		"the last event doesn't come": {func(s *script) { s.publish(3); s.get(1, 2) }, "loss, own 3 to 3 didn't come"},
		"an event is skipped":         {func(s *script) { s.publish(3); s.get(1, 3) }, "loss, own 3 came"},
		"an event comes twice":        {func(s *script) { s.publish(1); s.get(1); s.event("own", 1, event.ID{Ms: 11}, s.at, true) }, "repeat, own 1"},
		"an entry comes twice":        {func(s *script) { s.publish(2); s.get(1, 2); s.get(2) }, "disorder, own 2"},
		"two events are swapped":      {func(s *script) { s.publish(2); s.get(2, 1) }, "loss, own 2 came"},
		"nobody published it":         {func(s *script) { s.get(1) }, "own 1 (10-0) was never published"},
		"a second no-cursor":          {func(s *script) { s.tell(event.NoCursor, 5) }, "unjustified resync no-cursor"},
		"a resync without a fault":    {func(s *script) { s.publish(1); s.get(1); s.tell(event.LogRewound, 15) }, "unjustified resync log-rewound"},
		"told after a loss": {func(s *script) {
			s.publish(1)
			s.get(1)
			s.publish(1)
			s.strike(true, event.LogRewound)
			s.tell(event.LogRewound, 25)
			s.publish(1)
			s.get(3)
		}, ""},
		"told another reason":   {func(s *script) { s.strike(true, event.LogRewound); s.tell(event.LogUncertain, 25) }, "unjustified resync log-uncertain"},
		"not told after a loss": {func(s *script) { s.publish(1); s.strike(true, event.LogRewound) }, "loss, own 1 to 1 didn't come"},
		"a gap after a loss, and told": {func(s *script) {
			s.publish(2)
			s.strike(true, event.LogRewound)
			s.get(2)
			s.pass(2)
			s.tell(event.LogRewound, 25)
		}, ""},
		"a gap after a loss, never told": {func(s *script) {
			s.publish(2)
			s.strike(true, event.LogRewound)
			s.get(2)
		}, "silent loss, own 1 is missing since"},
		"a gap after a loss, filled later": {func(s *script) {
			s.publish(2)
			s.strike(true, event.LogRewound)
			s.get(2)
			s.event("own", 1, event.ID{Ms: 25}, s.at, true)
		}, "order, own 1 (25-0) came after 2"},
		"a gap after a loss, told too late": {func(s *script) {
			s.publish(2)
			s.strike(true, event.LogRewound)
			s.get(2)
			s.pass(40)
			s.publish(1)
			s.get(3)
		}, "silent loss, own 1 is missing for"},
		"a gap of what two replicas had": {func(s *script) {
			s.publish(2)
			s.strike(true, event.LogRewound).keeps = true
			s.get(2)
		}, "loss, own 2 came"},
		"told twice of one fault": {func(s *script) {
			s.strike(true, event.LogRewound)
			s.tell(event.LogRewound, 5)
			s.pass(60)
			s.publish(1)
			s.get(1)
			s.tell(event.LogRewound, 15)
		}, "unjustified resync log-rewound"},
		"told long after a fault, with a cursor from before": {func(s *script) {
			s.publish(1)
			s.get(1)
			s.pass(5)
			s.strike(true, event.LogRewound)
			s.pass(300)
			s.tell(event.LogRewound, 15)
		}, ""},
		"told late by a gateway that was frozen": {func(s *script) {
			s.strike(true, event.LogRewound)
			s.tell(event.LogRewound, 5)
			s.pass(30)
			s.publish(1)
			s.get(1)
			s.chronicle.blind(0, s.at)
			s.tell(event.LogRewound, 15)
		}, ""},
		"told although its shard lost nothing": {func(s *script) {
			i := s.strike(true, event.LogRewound)
			s.tell(event.LogRewound, 5)
			s.chronicle.spare(i, func(shard int) bool { return shard == 3 })
		}, "unjustified resync log-rewound: fault lost nothing in shard 3"},
		"stored anew after a loss": {func(s *script) {
			s.publish(1)
			s.get(1)
			s.strike(true, event.LogRewound)
			s.event("own", 1, event.ID{Ms: 15}, s.at, true)
		}, ""},
		"away for longer than the window": {func(s *script) { s.publish(1); s.pass(21); s.tell(event.WindowExpired, 15) }, ""},
		"away for less":                   {func(s *script) { s.publish(1); s.pass(19); s.tell(event.WindowExpired, 15) }, "unjustified resync window-expired"},
		"away, and nothing was sent":      {func(s *script) { s.pass(300); s.tell(event.WindowExpired, 15) }, "unjustified resync window-expired"},
		"the state had it already":        {func(s *script) { s.publish(1); s.pass(21); s.tell(event.WindowExpired, 5); s.get(1) }, ""},
		"expired, and known by a resync before": {func(s *script) {
			s.publish(1)
			s.pass(21)
			s.tell(event.WindowExpired, 5)
			s.pass(5)
			s.tell(event.WindowExpired, 15)
		}, "unjustified resync window-expired"},
		"expired, and stored after a resync": {func(s *script) {
			n := s.own.begin(s.at)
			s.strike(true, event.LogRewound)
			s.tell(event.LogRewound, 5)
			s.pass(1)
			s.own.ack(n, s.at)
			s.pass(21)
			s.tell(event.WindowExpired, 15)
		}, ""},
		"skipped after a resync": {func(s *script) {
			s.publish(1)
			s.pass(21)
			s.tell(event.WindowExpired, 15)
			s.publish(2)
			s.get(3)
		}, "loss, own 3 came"},
		"a newer event of the key":           {func(s *script) { s.own.key = "k"; s.publish(3); s.get(1, 3) }, ""},
		"the newest of the key doesn't come": {func(s *script) { s.own.key = "k"; s.publish(3); s.get(2) }, "loss, own 3 to 3 didn't come"},
		"an older one of the key comes behind": {func(s *script) {
			s.own.key = "k"
			s.publish(2)
			s.get(2)
			s.event("own", 1, event.ID{Ms: 25}, s.at, true)
		}, "repeat, own 1"},
		"its publisher doesn't know": {func(s *script) { s.own.abandon(s.own.begin(s.at)); s.publish(1); s.get(2) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript()
			c.play(s)
			found := s.chronicle.found()
			if text := s.missing(); text != "" && len(found) == 0 {
				found = append(found, text)
			}
			got := strings.TrimPrefix(strings.Join(found, "\n"), "pos: ")
			if (c.want == "") != (got == "") || !strings.HasPrefix(got, c.want) {
				t.Errorf("found %q, want %q", got, c.want)
			}
		})
	}
}

// TestTap: what a gateway sends twice is found, although the client drops it.
func TestTap(t *testing.T) {
	const resync = "id: 5-0\nevent: resync\ndata: {}\n\n"
	for stream, want := range map[string]string{
		"retry: 1\n: x\n\nid: 11-0\ndata: a\n\nid: 12-0\n\nid: 13-0\ndata: b\n\n": "",
		"id: 10-0\n\nid: 10-0\n\n":                          "", // a position may stay where it is
		"id: 10-0\ndata: a\n\n":                             "sent 10-0 after 10-0",
		"id: 9-0\n\n":                                       "sent 9-0 after 10-0",
		"id: 12-0\ndata: a\n\nid: 11-0\ndata: b\n\n":        "sent 11-0 after 12-0",
		resync + "id: 6-0\ndata: a\n\n":                     "",
		resync + "id: 6-0\ndata: a\n\nid: 6-0\ndata: a\n\n": "sent 6-0 after 6-0",
		"id: 011-0\ndata: a\n\n":                            "sent the ID",
	} {
		for _, size := range []int{1, 7, 1000} {
			var faults []string
			tapped := &tapped{at: event.ID{Ms: 10}, tap: &tap{device: "pos", fault: func(format string, args ...any) {
				faults = append(faults, fmt.Sprintf(format, args...))
			}}}
			tapped.ReadCloser = pieces{strings.NewReader(stream), size}
			buf := make([]byte, 1000)
			for {
				if _, err := tapped.Read(buf); err != nil {
					break
				}
			}
			if got := strings.Join(faults, "\n"); !strings.Contains(got, want) || (want == "") != (got == "") {
				t.Errorf("%q in pieces of %d: found %q, want %q", stream, size, got, want)
			}
		}
	}
}

// pieces gives out few bytes at a time.
type pieces struct {
	*strings.Reader
	size int
}

func (p pieces) Read(b []byte) (int, error) { return p.Reader.Read(b[:min(p.size, len(b))]) }
func (p pieces) Close() error               { return nil }
