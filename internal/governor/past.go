package governor

import "time"

// A past is how much was let in during the time that a signal remembers: Redis
// holds what was published within the window, so its memory is that of the mean,
// and will be that of the present load once the window has passed.
type past struct {
	loads []sample // as far apart as a hundredth of that time
	sum   float64
}

// pasts is how many loads stand for all.
const pasts = 100

// note adds the present load, if it is time for one.
func (p *past) note(now, settles time.Duration, load float64) {
	if n := len(p.loads); n > 0 && now-p.loads[n-1].at < settles/pasts {
		return
	}
	from := 0
	for from < len(p.loads) && (p.loads[from].at < now-settles || len(p.loads)-from > pasts) {
		p.sum -= p.loads[from].value
		from++
	}
	if from == len(p.loads) {
		p.sum = 0 // what was rounded away goes with the last of them
	}
	p.loads = append(p.loads[from:], sample{now, load})
	p.sum += load
}

// growth is how much more is let in now than on the average of that time; 1 if
// nobody can say.
func (p *past) growth(load float64) float64 {
	if p.sum <= 1e-9 {
		return 1
	}
	return load * float64(len(p.loads)) / p.sum
}

// load is how much a lever lets in.
func (v *lever) load() float64 {
	if use, known := v.use(); known {
		return min(use, v.ratio)
	}
	return v.ratio
}
