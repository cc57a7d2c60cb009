package limits

import (
	"fmt"
	"strings"
)

// A State is one limit as anybody may see it. Its JSON form is a contract.
type State struct {
	Name       string `json:"name"`
	Unit       string `json:"unit"`
	Configured int64  `json:"configured"`
	Effective  int64  `json:"effective"`
	Default    int64  `json:"default"`
	// Used is the present use, where it is known without asking around.
	Used *float64 `json:"used,omitempty"`
	// Zero says what 0 means; empty: an ordinary value.
	Zero    string `json:"zero,omitempty"`
	Allowed string `json:"allowed"`
	Origin  Origin `json:"origin"`
	Where   string `json:"where,omitempty"`
	// Why says why what counts isn't what some place asks for.
	Why string `json:"why,omitempty"`
	// AfterRestart is the value that the configuration asks for by now, if it
	// counts only after a restart.
	AfterRestart *int64 `json:"after_restart,omitempty"`
	Change       Change `json:"change"`
	How          string `json:"how"`
	Help         string `json:"help"`
	Price        string `json:"price,omitempty"`
	Reached      string `json:"reached"`
}

// States lists every limit, those that can be changed first.
func (r *Registry) States() []State {
	r.mu.Lock()
	defer r.mu.Unlock()
	states := make([]State, len(r.limits))
	for i, l := range r.limits {
		states[i] = l.state()
	}
	return states
}

func (l *limit) state() State {
	s := State{
		Name: l.Name, Unit: l.Unit, Configured: l.configured(), Effective: l.effective.Load(), Default: l.Default,
		Zero: l.Zero, Allowed: l.allowed(), Origin: l.base.Origin, Where: l.base.Where, Change: l.Change,
		Help: l.Help, Price: l.Price, Reached: l.Reached, How: l.how(),
	}
	if l.override != nil {
		s.Origin, s.Where = FromAPI, ""
	}
	if l.used != nil {
		used := l.used()
		s.Used = &used
	}
	if l.next != nil {
		s.AfterRestart = &l.next.Value
	}
	s.Why = l.reasons()
	return s
}

// reasons says, in sentences, why what counts isn't what some place asks for.
func (l *limit) reasons() string {
	var all []string
	if l.why != "" {
		all = append(all, l.why)
	}
	if l.override != nil && *l.override != l.base.Value {
		all = append(all, fmt.Sprintf("PATCH /v1/limits asked for %d; the configuration says %d (%s), which counts again after a restart, or as soon as it changes there", *l.override, l.base.Value, l.base.origin()))
	}
	if l.next != nil {
		all = append(all, fmt.Sprintf("the configuration now says %d (%s), which counts after a restart", l.next.Value, l.next.origin()))
	}
	if l.base.Beside != "" {
		all = append(all, l.base.Beside)
	}
	return strings.Join(all, "; ")
}

func (s Setting) origin() string {
	if s.Where == "" {
		return string(s.Origin)
	}
	return s.Where
}

// how says how to change a limit, to whoever has just run into it.
func (l *limit) how() string {
	switch l.Change {
	case Running:
		patch := fmt.Sprintf(`PATCH /v1/limits {"%s": N}, or downlink limits --set %s=N`, l.Name, l.Name)
		if l.base.Origin == "flag" || l.base.Origin == "environment" {
			return fmt.Sprintf("while running: %s; %s is given by %s, which wins over the configuration file", patch, l.Name, l.base.origin())
		}
		return fmt.Sprintf("while running: write %s: N into the configuration file (read again within 5 s, at once after SIGHUP); or %s", l.Name, patch)
	case Restart:
		return fmt.Sprintf("write %s: N into the configuration file, and restart the gateway", l.Name)
	case System:
		return "raise the limit of open files for the process (ulimit -n, LimitNOFILE= in systemd), and restart the gateway"
	default:
		return "fixed in this version"
	}
}
