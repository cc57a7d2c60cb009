// Package inventory owns the list of devices that can be dialled: where each is
// reached, its groups, and which credential it is shown; and how that list is
// read from a file, an address or a table, again and again. It dials nobody, and
// doesn't know what a credential is. Its invariant: a reading that fails, is
// broken, or takes away more than was allowed changes nothing.
package inventory

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"downlink/internal/reload"
)

// A Source is where the list stands. Fetch isn't called concurrently.
type Source interface {
	// Name is what the source is called in logs; no secret is in it.
	Name() string
	// Fetch reads the list. It is nil, without an error, if the list is still
	// the one that was used last. No secret is in an error.
	Fetch(ctx context.Context) (*List, error)
}

// A Change is what a reading did. Devices that stayed as they were aren't named.
type Change struct {
	Added, Removed []Device
	Changed        []Device // as they are now
}

func (c *Change) empty() bool { return len(c.Added)+len(c.Removed)+len(c.Changed) == 0 }

// Options for an Inventory. Source, Metrics and Logger are required.
type Options struct {
	Source   Source
	Shards   int              // as in the log; 0 means 1
	Interval time.Duration    // between readings; 0 means 10 s
	Hangup   <-chan os.Signal // has it read at once; nil: nothing does
	// Permit says why a URL may not be dialled. Nil: every URL may.
	Permit func(url string) error
	// Most is how many devices there may be; more, and the reading is refused.
	// Nil: any number.
	Most func() int
	// MaxDrop is how many percent of the devices one reading may take away; see
	// ErrDrop. 0 means none; nil, or 100, all of them.
	MaxDrop func() int
	// Changed is told each change, after the inventory shows it, by one
	// goroutine at a time. The first reading adds everything. It is not told
	// less than everything for being slow: the next reading waits for it.
	Changed func(Change)
	Metrics *Metrics
	Logger  *slog.Logger
}

// An Inventory is the list as it was last read. Safe for concurrent use.
type Inventory struct {
	opts Options
	now  atomic.Pointer[state] // nil until a reading succeeded

	mu     sync.Mutex // one reading at a time; guards status
	status Status
}

// A Status says how the inventory stands, for people.
type Status struct {
	Source   string    `json:"source"`
	Devices  int       `json:"devices"`
	Invalid  int       `json:"invalid"`            // entries that were passed over by the last reading that counts
	Examples []string  `json:"examples,omitempty"` // of what is wrong with them
	Changed  time.Time `json:"changed,omitzero"`   // when a reading changed something
	Read     time.Time `json:"read,omitzero"`      // when a reading last succeeded
	Error    string    `json:"error,omitempty"`    // of the last reading, if it failed
}

// New makes an inventory, which is empty until it was loaded.
func New(o Options) *Inventory {
	if o.Interval <= 0 {
		o.Interval = 10 * time.Second
	}
	o.Shards = max(o.Shards, 1)
	if o.Permit == nil {
		o.Permit = func(string) error { return nil }
	}
	if o.Most == nil {
		o.Most = func() int { return int(^uint(0) >> 1) }
	}
	if o.MaxDrop == nil {
		o.MaxDrop = func() int { return 100 }
	}
	if o.Changed == nil {
		o.Changed = func(Change) {}
	}
	return &Inventory{opts: o, status: Status{Source: o.Source.Name()}}
}

// Run reads the list at each interval until ctx ends; then it returns nil. A
// failure is logged once, and again when it is another one.
func (v *Inventory) Run(ctx context.Context) error {
	if !v.Ready() {
		if _, err := v.Load(ctx); err != nil && ctx.Err() == nil {
			v.opts.Logger.Error("the inventory can't be read; no device is known until it can", "source", v.opts.Source.Name(), "error", err)
		}
	}
	return reload.New(reload.Options{
		Sources:  []reload.Source{{Name: "inventory", Load: func() (bool, error) { return v.Load(ctx) }}},
		Interval: v.opts.Interval, Hangup: v.opts.Hangup, Metrics: reload.NewMetrics(nil, "inventory"), Logger: v.opts.Logger,
	}).Run(ctx)
}

// ErrDrop is wrapped by the error of a reading that would take away more devices
// than allowed: a source that answers with half a list, or none, must not cut
// everybody off. Few devices may always go, as long as one is left.
var ErrDrop = errors.New("too many devices would go")

// alwaysMay is how many devices may go whatever MaxDrop says, so that a small
// inventory can be changed.
const alwaysMay = 10

// Load reads the list once and reports whether something has changed. After an
// error what was read before counts.
func (v *Inventory) Load(ctx context.Context) (changed bool, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	changed, err = v.load(ctx)
	if ctx.Err() != nil {
		return false, nil // it wasn't the source that failed
	}
	if v.status.Error = ""; err != nil {
		v.status.Error = err.Error()
	} else {
		v.status.Read = time.Now()
	}
	v.opts.Metrics.loaded(changed, err)
	return changed, err
}

func (v *Inventory) load(ctx context.Context) (changed bool, err error) {
	list, err := v.opts.Source.Fetch(ctx)
	if err != nil || list == nil {
		return false, err
	}
	before := v.now.Load()
	after, faults, err := v.build(list.Entries, before)
	if err != nil {
		return false, fmt.Errorf("the inventory from %s: %w", v.opts.Source.Name(), err)
	}
	change := diff(before, after)
	if err := v.permit(before, after, len(change.Removed)); err != nil {
		return false, fmt.Errorf("the inventory from %s: %w", v.opts.Source.Name(), err)
	}
	v.take(list, after, faults)
	if before != nil && change.empty() {
		return false, nil
	}
	v.status.Changed = time.Now()
	v.opts.Changed(change)
	return true, nil
}

// take makes a list count.
func (v *Inventory) take(list *List, s *state, faults []error) {
	v.now.Store(s)
	if list.Used != nil {
		list.Used()
	}
	v.status.Devices, v.status.Invalid, v.status.Examples = len(s.devices), len(faults), nil
	for _, f := range faults[:min(len(faults), maxExamples)] {
		v.status.Examples = append(v.status.Examples, f.Error())
	}
	v.opts.Metrics.devices.Set(float64(len(s.devices)))
	v.opts.Metrics.invalid.Set(float64(len(faults)))
	if len(faults) > 0 {
		v.opts.Logger.Warn("entries of the inventory are passed over; for devices that it had before, the earlier entry stays",
			"source", v.opts.Source.Name(), "entries", len(faults), "examples", v.status.Examples)
	}
}

// maxExamples is how many wrong entries are named.
const maxExamples = 5

// permit refuses a list that is too long, or that lacks too many.
func (v *Inventory) permit(before, after *state, removed int) error {
	if most := v.opts.Most(); len(after.devices) > most {
		return fmt.Errorf("it has %d devices, and inventory_devices allows %d", len(after.devices), most)
	}
	percent := v.opts.MaxDrop()
	if before == nil || removed == 0 || percent >= 100 {
		return nil
	}
	had := len(before.devices)
	if removed*100 <= had*percent || percent > 0 && removed <= alwaysMay && len(after.devices) > 0 {
		return nil
	}
	return fmt.Errorf("%w: %d of %d, and inventory_max_drop allows %d %%; if it is meant, raise that to 100 for a moment", ErrDrop, removed, had, percent)
}

// Lookup finds a device by its ID.
func (v *Inventory) Lookup(id string) (Device, bool) {
	if s := v.now.Load(); s != nil {
		return s.find(id)
	}
	return Device{}, false
}

// Of are the devices of a shard, in the order of their IDs.
func (v *Inventory) Of(shard int) iter.Seq[Device] {
	return func(yield func(Device) bool) {
		s := v.now.Load()
		if s == nil || shard < 0 || shard >= v.opts.Shards {
			return
		}
		for _, d := range s.of(shard) {
			if !yield(d) {
				return
			}
		}
	}
}

// Len is how many devices there are.
func (v *Inventory) Len() int {
	if s := v.now.Load(); s != nil {
		return len(s.devices)
	}
	return 0
}

// Ready reports whether the list has been read at least once.
func (v *Inventory) Ready() bool { return v.now.Load() != nil }

// Status says how the inventory stands.
func (v *Inventory) Status() Status {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.status
}
