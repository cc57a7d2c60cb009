// Package ledger owns the accounts of a run: what was published against what
// arrived, device by device, lane by lane. It owns no time and no connection.
// Its invariant: each accepted event of a lane is, for each device that has to
// get it, either received or lost; whatever else arrives is named.
package ledger

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// A Verdict is what one receipt means.
type Verdict uint8

// The verdicts.
const (
	InOrder    Verdict = iota
	Disordered         // the first receipt, after a later one of its lane
	Repeated           // received before
	Foreign            // of another device, or of no lane
)

// A lane is one device's receipts of one numbered row of events.
type lane struct {
	next    uint32  // all below it were received, but for missing
	missing *[]span // ascending; nil as long as there was no gap
}

// A span is what is missing from first up to, but without, end.
type span struct{ first, end uint32 }

// A Ledger counts for all devices. Receive may be called at the same time for
// different devices; Publish and Excuse by anyone.
type Ledger struct {
	own        []lane // of a device alone
	broadcasts []lane // of device n and publisher p: n*publishers+p
	publishers int
	honest     func(device int) bool

	published  []atomic.Uint32 // events of a device, accepted or not
	publishedB []atomic.Uint32 // broadcasts of a publisher

	mu      sync.Mutex
	excused map[key]struct{} // was published without being accepted
}

type key struct {
	lane int32
	seq  uint32
}

// New makes a ledger for devices 0 to devices-1 and as many broadcast lanes as
// publishers. Of devices that aren't honest no receipt is expected.
func New(devices, publishers int, honest func(device int) bool) *Ledger {
	return &Ledger{
		own:        make([]lane, devices),
		broadcasts: make([]lane, devices*publishers),
		publishers: publishers,
		honest:     honest,
		published:  make([]atomic.Uint32, devices),
		publishedB: make([]atomic.Uint32, publishers),
		excused:    map[key]struct{}{},
	}
}

// Publish numbers the next event of a lane: a device's number, or from -1 down
// a publisher's broadcasts.
func (l *Ledger) Publish(lane int32) (seq uint32) {
	if lane < 0 {
		return l.publishedB[-1-lane].Add(1) - 1
	}
	return l.published[lane].Add(1) - 1
}

// Excuse notes that an event was not accepted, so that nobody has to get it.
func (l *Ledger) Excuse(lane int32, seq uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.excused[key{lane, seq}] = struct{}{}
}

// Receive notes a receipt of a device.
func (l *Ledger) Receive(device int, from int32, seq uint32) Verdict {
	switch {
	case from >= 0 && int(from) == device && seq < l.published[device].Load():
		return l.own[device].receive(seq)
	case from < 0 && int(-1-from) < l.publishers && seq < l.publishedB[-1-from].Load():
		return l.broadcasts[device*l.publishers+int(-1-from)].receive(seq)
	}
	return Foreign
}

func (l *lane) receive(seq uint32) Verdict {
	switch {
	case seq == l.next:
		l.next++
		return InOrder
	case seq > l.next:
		if l.missing == nil {
			l.missing = new([]span)
		}
		*l.missing = append(*l.missing, span{l.next, seq})
		l.next = seq + 1
		return InOrder
	case l.missing != nil && l.fill(seq):
		return Disordered
	}
	return Repeated
}

// fill removes seq from what is missing.
func (l *lane) fill(seq uint32) bool {
	all := *l.missing
	i, _ := slices.BinarySearchFunc(all, seq, func(s span, seq uint32) int {
		if s.end <= seq {
			return -1
		}
		return 1
	})
	if i == len(all) || all[i].first > seq {
		return false
	}
	gap := all[i]
	switch {
	case gap.first == seq && gap.end == seq+1:
		all = slices.Delete(all, i, i+1)
	case gap.first == seq:
		all[i].first++
	case gap.end == seq+1:
		all[i].end--
	default:
		all[i].end = seq
		all = slices.Insert(all, i+1, span{seq + 1, gap.end})
	}
	*l.missing = all
	return true
}

// A Loss is one event that a device should have received.
type Loss struct {
	Device int
	Lane   int32 // the device's own, or from -1 down a publisher's broadcasts
	Seq    uint32
}

// String names the event as it stands in a marker.
func (l Loss) String() string {
	if l.Lane < 0 {
		return fmt.Sprintf("device %d: event b%d:%d", l.Device, -1-l.Lane, l.Seq)
	}
	return fmt.Sprintf("device %d: event %d", l.Device, l.Seq)
}

// Lost counts what was accepted and not received, and names the first few.
// Nothing else may be called meanwhile.
func (l *Ledger) Lost() (count uint64, first []Loss) {
	for device := range l.own {
		if !l.honest(device) {
			continue
		}
		check := func(lane int32, in *lane, published uint32) {
			for seq := range in.absent(published) {
				if _, ok := l.excused[key{lane, seq}]; ok {
					continue
				}
				if count++; len(first) < maxNamed {
					first = append(first, Loss{device, lane, seq})
				}
			}
		}
		check(int32(device), &l.own[device], l.published[device].Load())
		for p := range l.publishers {
			check(int32(-1-p), &l.broadcasts[device*l.publishers+p], l.publishedB[p].Load())
		}
	}
	return count, first
}

// maxNamed is how many losses are named.
const maxNamed = 5

// absent yields what of the first published events was not received.
func (l *lane) absent(published uint32) func(yield func(uint32) bool) {
	return func(yield func(uint32) bool) {
		spans := []span{{l.next, max(l.next, published)}}
		if l.missing != nil {
			spans = append(slices.Clone(*l.missing), spans...)
		}
		for _, s := range spans {
			for seq := s.first; seq < s.end; seq++ {
				if !yield(seq) {
					return
				}
			}
		}
	}
}
