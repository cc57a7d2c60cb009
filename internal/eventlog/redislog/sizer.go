package redislog

import "sync"

// Replies are bounded by a number of entries, while memory is bytes. A sizer
// remembers how large entries have been lately and turns one into the other.
// Safe for concurrent use.
type sizer struct {
	mu      sync.Mutex
	average float64
	largest float64
}

const (
	// worstFold is by how much a reply may exceed its budget if every entry
	// in it is as large as the largest seen lately.
	worstFold = 8
	maxCount  = 1000
	// smoothing is the weight of the newest entry in the average.
	smoothing = 1.0 / 64
	// forgetting is by how much an entry lowers the memory of the largest one.
	forgetting = 1 - 1.0/1024
)

// newSizer starts with small replies: nothing is known yet.
func newSizer() *sizer { return &sizer{average: 4 << 10, largest: 256 << 10} }

func (s *sizer) add(size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.average += (float64(size) - s.average) * smoothing
	s.largest = max(float64(size), s.largest*forgetting)
}

// count is how many entries to ask of each of n streams, so that the reply
// stays near budget bytes: at least 1, at most maxCount.
func (s *sizer) count(budget, n int) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	perStream := float64(budget) / float64(max(n, 1))
	fit := min(perStream/max(s.average, 1), worstFold*perStream/max(s.largest, 1))
	return int64(min(max(fit, 1), maxCount))
}

// surely reports whether one entry of each of n streams stays below budget
// bytes even if each is as large as the largest of late.
func (s *sizer) surely(budget, n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.largest*float64(n) <= float64(budget)
}

// fits reports whether one entry of each of n streams is likely to stay below
// budget bytes.
func (s *sizer) fits(budget, n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.average*float64(n) <= float64(budget)
}
