package load

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"downlink/internal/load/results"
	"downlink/internal/load/watch"
)

// A meter looks at the watched processes, at the kernel and at ourselves, and
// tells a person how the run goes.
type meter struct {
	run     *run
	self    watch.Target
	able    bool // this system can be watched
	watched map[string]results.Watched
	kernel  results.Kernel
	own     results.Self

	mu        sync.Mutex
	doing     string
	series    []results.Moment
	peak      map[string]int64 // highest memory seen by name; "" is the kernel's
	peakOfRSS map[string]int64
}

func newMeter(r *run) (*meter, error) {
	m := &meter{
		run: r, self: watch.Target{Name: "downlink load", PIDs: []int{os.Getpid()}},
		watched: map[string]results.Watched{}, kernel: results.Kernel{TCP: map[string]int64{}, Slab: map[string]int64{}},
		own: results.Self{CPU: map[string]float64{}}, peak: map[string]int64{}, peakOfRSS: map[string]int64{},
	}
	for _, t := range r.opts.Watch {
		if _, twice := m.watched[t.Name]; twice {
			return nil, fmt.Errorf("--watch names %s twice: write NAME=PID,PID", t.Name)
		}
		if _, err := watch.Read(t, true); err != nil {
			return nil, err
		}
		m.watched[t.Name] = results.Watched{CPU: map[string]float64{}, PSS: map[string]int64{}, RSS: map[string]int64{}}
	}
	_, err := watch.Read(m.self, false)
	m.able = !errors.Is(err, watch.ErrUnsupported)
	return m, nil
}

// mark takes memory at a moment of the run. A watched process that has ended
// ends the run.
func (m *meter) mark(moment string) error {
	if !m.able {
		return nil
	}
	for _, t := range m.run.opts.Watch {
		u, err := watch.Read(t, true)
		if err != nil {
			return err
		}
		w := m.watched[t.Name]
		w.PIDs, w.PSS[moment], w.RSS[moment] = u.PIDs, u.PSS, u.RSS
		m.watched[t.Name] = w
	}
	var err error
	if m.kernel.TCP[moment], err = watch.TCPMemory(); err != nil {
		return err
	}
	if m.kernel.Slab[moment], err = watch.Slab(); err != nil {
		return err
	}
	u, err := watch.Read(m.self, true)
	if err != nil {
		return err
	}
	m.own.PSS = max(m.own.PSS, u.PSS)
	return nil
}

// phase adds what the processes worked during f.
func (m *meter) phase(name string, f func() error) error {
	before, err := m.processors()
	if err != nil {
		return err
	}
	failed := f()
	after, err := m.processors()
	if err != nil {
		return errors.Join(failed, err)
	}
	for who, used := range after {
		if who == "" {
			m.own.CPU[name] += used - before[who]
		} else {
			m.watched[who].CPU[name] += used - before[who]
		}
	}
	return failed
}

// processors is what each group has used so far, in seconds; "" is ourselves.
func (m *meter) processors() (map[string]float64, error) {
	all := map[string]float64{}
	if !m.able {
		return all, nil
	}
	for _, t := range m.run.opts.Watch {
		u, err := watch.Read(t, false)
		if err != nil {
			return nil, err
		}
		all[t.Name] = u.CPU
	}
	u, err := watch.Read(m.self, false)
	all[""] = u.CPU
	return all, err
}

// fill writes what was seen into the report.
func (m *meter) fill(out *results.Report) {
	out.Watched, out.Kernel, out.Self = m.watched, m.kernel, m.own
	if u, err := watch.Read(m.self, false); err == nil {
		out.Self.All = u.CPU
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	out.Series = m.series
	for name, bytes := range m.peak {
		if name == "" {
			m.kernel.TCP[momentPeak] = bytes
		} else {
			m.watched[name].PSS[momentPeak], m.watched[name].RSS[momentPeak] = bytes, m.peakOfRSS[name]
		}
	}
}

// say tells what the run does now.
func (m *meter) say(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.doing = fmt.Sprintf(format, args...)
}

// start begins to take moments and to tell of progress; the function that it
// returns ends that.
func (m *meter) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // the end of a run is worth telling, too
	var running sync.WaitGroup
	running.Go(func() { m.follow(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// How often a person is told on a terminal, and in a file.
const (
	redrawEvery = time.Second
	printEvery  = 5 * time.Second
)

func (m *meter) follow(ctx context.Context) {
	tick := time.NewTicker(redrawEvery)
	defer tick.Stop()
	told := time.Now()
	last := m.count(time.Now(), nil)
	for {
		select {
		case now := <-tick.C:
			next := m.count(now, &last)
			if live := m.run.opts.Live; live != nil && (m.run.opts.Redraw || now.Sub(told) >= printEvery) {
				told = now
				m.tell(next, m.run.opts.Redraw)
			}
			last = next
		case <-ctx.Done():
			if m.run.opts.Live != nil && m.run.opts.Redraw {
				fmt.Fprintln(m.run.opts.Live) //nolint:errcheck // nowhere else to complain
			}
			return
		}
	}
}

// A count is what a moment is made of.
type count struct {
	at        time.Time
	received  uint64
	published uint64
	cpu       map[string]float64
	moment    results.Moment
}

// count looks at everything now, and adds a moment if there is one before.
func (m *meter) count(now time.Time, last *count) count {
	r := m.run
	c := count{at: now, received: r.tally.received(), published: r.press.acceptedAll.Load(), cpu: map[string]float64{}}
	c.moment = results.Moment{Second: now.Sub(r.begun).Seconds(), Connected: int64(r.tally.connected())}
	if r.opts.Series || r.opts.Scenario == SlowOnes {
		m.look(&c, last)
	}
	if last == nil {
		return c
	}
	if seconds := now.Sub(last.at).Seconds(); seconds > 0 {
		c.moment.Received = float64(c.received-last.received) / seconds
		c.moment.Published = float64(c.published-last.published) / seconds
	}
	if r.opts.Series {
		m.mu.Lock()
		m.series = append(m.series, c.moment)
		m.mu.Unlock()
	}
	return c
}

// look takes the memory of each group, and how many processors it uses. A
// group that has ended is noticed at the next mark.
func (m *meter) look(c, last *count) {
	if !m.able {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if bytes, err := watch.TCPMemory(); err == nil {
		m.peak[""] = max(m.peak[""], bytes)
	}
	c.moment.CPU, c.moment.PSS = map[string]float64{}, map[string]int64{}
	for _, t := range m.run.opts.Watch {
		u, err := watch.Read(t, true)
		if err != nil {
			continue
		}
		m.peak[t.Name], m.peakOfRSS[t.Name] = max(m.peak[t.Name], u.PSS), max(m.peakOfRSS[t.Name], u.RSS)
		c.moment.PSS[t.Name], c.cpu[t.Name] = u.PSS, u.CPU
		if last == nil {
			continue
		}
		if before, known := last.cpu[t.Name]; known {
			c.moment.CPU[t.Name] = (u.CPU - before) / c.at.Sub(last.at).Seconds()
		}
	}
}

// tell prints a line, or draws it over the last one.
func (m *meter) tell(c count, redraw bool) {
	m.mu.Lock()
	doing := m.doing
	m.mu.Unlock()
	r := m.run
	line := fmt.Sprintf("%5.0fs  %s: %d connected, %d published (%.0f/s), %d of %d received (%.0f/s)", c.moment.Second, doing,
		c.moment.Connected, c.published, c.moment.Published, c.received, r.press.expectedAll.Load(), c.moment.Received)
	if failed := r.tally.failed(); failed > 0 {
		line += fmt.Sprintf(", %d failed", failed)
	}
	start, end := "", "\n"
	if redraw {
		start, end = "\r\x1b[K", ""
	}
	fmt.Fprint(r.opts.Live, start+line+end) //nolint:errcheck // nowhere else to complain
}
