package gateway

import (
	"sync/atomic"
	"time"
)

// A meter knows how fast entries are stored, and how fast that would be if nothing
// were held back. Read by one goroutine at a time.
type meter struct {
	at            time.Time
	stored, asked mean
	begun         time.Time     // when anything to speak of was first asked for; zero: it wasn't
	peak          atomic.Uint64 // entries/s, of the last minutes
}

const (
	// A rate is a mean whose parts fade in rateOver, and the peak goes down by as
	// much in peakOver.
	rateOver = 10 * time.Second
	peakOver = 5 * time.Minute
	// learning is for how long what is asked for counts as what is wanted, from when
	// it began. A gateway that starts while Redis is full stores nothing, and one to
	// which publishers come from another that died may be held back already: both would
	// take what they see for all that is ever wanted. Later it doesn't count: whoever
	// is refused asks again.
	learning = 3 * rateOver
	// leastPeak is what is taken for the peak of a gateway through which hardly
	// anything is published, in entries/s. More would leave a lever at its floor above
	// what is published, and hold nothing back: 20 events/s of 40 KiB fill 32 MiB in
	// less than a minute. Less would have whoever publishes one now and then wait.
	leastPeak = 10
)

// read brings the meter up to date, and returns how fast entries are stored. open
// says that nothing is held back, so that what is stored is what is wanted.
func (m *meter) read(stored, asked uint64, now time.Time, open bool) float64 {
	if m.at.IsZero() {
		m.stored.count, m.asked.count, m.at = stored, asked, now
		return 0
	}
	passed := now.Sub(m.at)
	if passed < time.Second/2 {
		return m.stored.rate
	}
	m.stored.read(stored, passed)
	m.asked.read(asked, passed)
	m.at = now
	m.note(now, passed, open)
	return m.stored.rate
}

// note brings the peak up to date.
func (m *meter) note(now time.Time, passed time.Duration, open bool) {
	peak := float64(m.peak.Load())
	if open {
		peak = max(peak*max(1-passed.Seconds()/peakOver.Seconds(), 0), m.stored.rate)
	}
	switch little := m.asked.rate < leastPeak; {
	case m.begun.IsZero() && !little:
		m.begun = now
	case open && little && peak < leastPeak:
		m.begun = time.Time{}
	}
	if !m.begun.IsZero() && now.Sub(m.begun) < learning {
		peak = max(peak, m.asked.rate)
	}
	m.peak.Store(uint64(peak))
}

// reference is what is taken for all, where no rate is configured.
func (m *meter) reference() float64 { return float64(max(m.peak.Load(), leastPeak)) }

// A mean is of what is counted, a second.
type mean struct {
	count uint64
	rate  float64
}

func (m *mean) read(count uint64, passed time.Duration) {
	part := min(passed.Seconds()/rateOver.Seconds(), 1)
	m.rate += part * (float64(count-m.count)/passed.Seconds() - m.rate)
	m.count = count
}
