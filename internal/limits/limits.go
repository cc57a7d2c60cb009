// Package limits owns the list of everything that the gateway caps: what each
// limit is called, which value was configured and by whom, which one counts,
// why they differ, and how to change it. It enforces nothing; who does gets a
// function that returns the value that counts now. Its invariant: what State
// says is what the enforcing code reads, from the same word of memory.
package limits

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
)

// A Change says how a limit can be changed.
type Change string

// The ways.
const (
	// Running: at any time, by the configuration file or PATCH /v1/limits.
	Running Change = "running"
	// Restart: by the configuration, and it counts after a restart.
	Restart Change = "restart"
	// System: by whoever runs the process, outside of Downlink's settings.
	System Change = "system"
	// Fixed: not in this version.
	Fixed Change = "fixed"
)

// An Origin is where a configured value comes from: "default", "file",
// "environment" or "flag", as in the configuration, or one of these.
type Origin string

// Origins that no setting has.
const (
	FromDefault Origin = "default"
	FromAPI     Origin = "api"    // PATCH /v1/limits
	FromSystem  Origin = "system" // asked of the operating system at start
	FromCode    Origin = "code"   // a constant
)

// A Definition is what a limit is, before it has a value.
type Definition struct {
	Name    string // write_timeout-like, as in the configuration file
	Unit    string // of every value: "bytes", "connections", "entries/s", …
	Default int64
	Least   int64
	Most    int64
	Off     bool   // 0 is allowed too, whatever Least says
	Zero    string // what 0 means; empty: an ordinary value
	Allowed string // Least to Most in other words; may be empty
	Help    string // what it caps
	Price   string // what more or less of it costs; may be empty
	Reached string // what happens at the limit: the refusal, problem or metric
	Change  Change
	// Source is the constant of a Fixed limit, as package.name; it is held to
	// Default by a test.
	Source string
	// Parse reads a value that isn't written as a plain number; nil: there is
	// no other form.
	Parse func(text string) (int64, error)
}

// allowed says which values a limit takes.
func (d *Definition) allowed() string {
	if d.Change == Fixed || d.Change == System {
		return strconv.FormatInt(d.Default, 10)
	}
	text := d.Allowed
	if text == "" {
		text = fmt.Sprintf("%d to %d", d.Least, d.Most)
	}
	if d.Off {
		text = "0, or " + text
	}
	return text
}

func (d *Definition) allows(v int64) bool {
	return d.Off && v == 0 || d.Least <= v && v <= d.Most
}

// A Setting is what was configured for a limit.
type Setting struct {
	Name   string
	Value  int64
	Origin Origin
	Where  string // the flag, the variable, or file:line
	// Beside says what else was configured and doesn't count, in a sentence;
	// empty if there is nothing.
	Beside string
}

// A Bound makes the effective value of a configured one, and says why they
// differ, if they do.
type Bound func(configured int64) (effective int64, why string)

// A Registry is the limits of one gateway. Safe for concurrent use.
type Registry struct {
	// Set at construction.
	limits []*limit
	byName map[string]*limit

	mu   sync.Mutex // guards the limits' mutable parts, and file
	file File
}

// A limit is one row of the registry.
type limit struct {
	Definition

	effective atomic.Int64 // what the enforcing code reads
	highest   atomic.Int64 // that effective has been

	// Guarded by the registry's mutex.
	base     Setting  // configured, without the API's word
	override *int64   // the API's word
	next     *Setting // configured for after a restart, if it differs
	bound    Bound    // nil: effective is configured
	why      string   // effective differs from configured
	used     func() float64
}

// New makes a registry of the given definitions and of the limits that are no
// settings. A limit without a setting has its default.
func New(definitions []Definition, settings ...Setting) *Registry {
	r := &Registry{byName: make(map[string]*limit)}
	for _, d := range slices.Concat(definitions, systemLimits(), fixedLimits()) {
		l := &limit{Definition: d, base: Setting{Name: d.Name, Value: d.Default, Origin: FromDefault}}
		switch d.Change {
		case Fixed:
			l.base.Origin, l.base.Where = FromCode, d.Source
		case System:
			l.base.Origin = FromSystem
		}
		if r.byName[d.Name] != nil {
			panic("limits: there are two limits " + d.Name) // found by the first test
		}
		r.limits = append(r.limits, l)
		r.byName[d.Name] = l
	}
	for _, s := range settings {
		if l := r.byName[s.Name]; l != nil {
			l.base = s
		}
	}
	for _, l := range r.limits {
		l.settle()
	}
	return r
}

// Value is how enforcing code reads a limit: the function returns the value
// that counts at that moment, and costs one load from memory. A name that isn't
// a limit's is a fault of the program, found by the first test that starts it.
func (r *Registry) Value(name string) func() int {
	effective := &r.must(name).effective
	return func() int { return int(effective.Load()) }
}

// Highest is like Value, but the highest value that has counted since the start:
// for code that must go on with what was let in under an earlier one.
func (r *Registry) Highest(name string) func() int {
	highest := &r.must(name).highest
	return func() int { return int(highest.Load()) }
}

// Always is a limit that doesn't change, for code that is used on its own.
func Always(n int) func() int { return func() int { return n } }

// Bind says what else bounds a limit. It counts from now on.
func (r *Registry) Bind(name string, bound Bound) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.must(name)
	l.bound = bound
	l.settle()
}

// Settle has a limit's bound asked again, because what it depends on has changed.
func (r *Registry) Settle(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.must(name).settle()
}

// Found tells the value of a System limit.
func (r *Registry) Found(name string, value int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.must(name)
	l.base.Value = value
	l.settle()
}

// Uses says how the present use of a limit is known.
func (r *Registry) Uses(name string, used func() float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.must(name).used = used
}

func (r *Registry) must(name string) *limit {
	l := r.byName[name]
	if l == nil {
		panic("limits: there is no limit " + name)
	}
	return l
}

// configured is the value that was asked for, by the API or the configuration.
func (l *limit) configured() int64 {
	if l.override != nil {
		return *l.override
	}
	return l.base.Value
}

// settle makes the configured value count, as far as it can.
func (l *limit) settle() {
	value, why := l.configured(), ""
	if l.bound != nil {
		value, why = l.bound(value)
	}
	l.why = why
	l.highest.Store(max(l.highest.Load(), value))
	l.effective.Store(value)
}
