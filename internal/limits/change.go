package limits

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A File is what became of the configuration file since the start.
type File struct {
	Path string `json:"path"`
	// Read is when it was last taken over.
	Read time.Time `json:"read"`
	// Error is why the file as it stands now isn't used; empty if it is.
	Error string `json:"error,omitempty"`
	// Restart names settings, no limits, that have changed in it and count
	// after a restart.
	Restart []string `json:"restart,omitempty"`
}

// A Changed limit has another effective value than before.
type Changed struct {
	Name          string
	Before, After int64
}

// Load takes over what the configuration says now. A value of the API stands
// until the configuration's own value for that limit changes. What was changed
// by it is returned.
func (r *Registry) Load(settings []Setting) []Changed {
	r.mu.Lock()
	defer r.mu.Unlock()
	var changes []Changed
	for _, s := range settings {
		l := r.byName[s.Name]
		switch {
		case l == nil:
		case l.Change != Running:
			l.next = nil
			if s.Value != l.base.Value {
				l.next = &s
			}
		default:
			if s.Value != l.base.Value {
				l.override = nil
			}
			l.base = s
			if c, changed := l.change(); changed {
				changes = append(changes, c)
			}
		}
	}
	return changes
}

// change settles a limit and says what that did.
func (l *limit) change() (c Changed, changed bool) {
	before := l.effective.Load()
	l.settle()
	c = Changed{l.Name, before, l.effective.Load()}
	return c, c.Before != c.After
}

// ReadFile notes what became of the configuration file.
func (r *Registry) ReadFile(f File) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.file = f
}

// File is what was noted last; its Path is empty if there is no file.
func (r *Registry) File() File {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.file
	f.Restart = slices.Clone(f.Restart)
	return f
}

// A Fault is one value that a limit doesn't take.
type Fault struct {
	Name   string
	Reason string // completes the sentence
}

// Faults are all that is wrong with a change, as one error.
type Faults []Fault

func (fs Faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.Name + " " + f.Reason
	}
	return strings.Join(lines, "; ")
}

// A Wish is a value for a limit; nil takes the API's word back.
type Wish struct {
	Name  string
	Value *int64
}

// Patch changes limits while the gateway runs: all of them, or, with Faults,
// none. It returns how they stand now.
func (r *Registry) Patch(wishes []Wish) ([]State, []Changed, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var faults Faults
	for _, w := range wishes {
		if reason := r.fault(w); reason != "" {
			faults = append(faults, Fault{w.Name, reason})
		}
	}
	if len(faults) > 0 {
		return nil, nil, faults
	}
	states := make([]State, 0, len(wishes))
	var changes []Changed
	for _, w := range wishes {
		l := r.byName[w.Name]
		l.override = w.Value
		if c, changed := l.change(); changed {
			changes = append(changes, c)
		}
		states = append(states, l.state())
	}
	return states, changes, nil
}

// fault says why a wish can't be granted; empty if it can.
func (r *Registry) fault(w Wish) string {
	l := r.byName[w.Name]
	switch {
	case l == nil:
		return "is not a limit; GET /v1/limits lists them"
	case l.Change == Restart:
		return "can't be changed while the gateway runs: " + l.how()
	case l.Change != Running:
		return "can't be changed here: " + l.how()
	case w.Value != nil && !l.allows(*w.Value):
		return fmt.Sprintf("can't be %d; allowed: %s", *w.Value, l.allowed())
	}
	return ""
}
