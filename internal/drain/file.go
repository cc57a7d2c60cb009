package drain

import (
	"context"
	"os"
	"time"
)

// look is how often it is looked whether the file is there.
const look = 500 * time.Millisecond

// Watch begins a drain when the file at path appears, or is touched anew, until
// ctx ends. One that was there before counts as a leftover: on a volume that
// outlives the process it would end each process at its beginning.
func (d *Drain) Watch(ctx context.Context, path string) {
	before, _ := touched(path)
	if !before.IsZero() {
		d.opts.Logger.Warn("the shutdown file is there already, and doesn't count until it is touched or made anew", "file", path)
	}
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now, known := touched(path)
		if known && !now.Equal(before) {
			before = now
			if !now.IsZero() {
				d.Begin(ByFile)
			}
		}
	}
}

// touched is when a file was changed last; zero if there is none. It isn't known
// if the file can't be asked for.
func touched(path string) (at time.Time, known bool) {
	info, err := os.Stat(path)
	switch {
	case err == nil:
		return info.ModTime(), true
	case os.IsNotExist(err):
		return time.Time{}, true
	default:
		return time.Time{}, false
	}
}
