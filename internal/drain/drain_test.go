package drain

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"downlink/internal/ageing"
	"downlink/internal/backoff"
	"downlink/internal/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fleet is the devices of a gateway, each with what a driver would do for it.
type fleet struct {
	t       *testing.T
	drain   *Drain
	roster  *session.Roster
	ages    *ageing.Book
	metrics *Metrics
	opts    session.Options
	began   time.Time
	over    chan bool
	cancel  func()
	ended   sync.WaitGroup

	mu  sync.Mutex
	all []*device
}

// A device is what is seen of one from outside. Times are since the fleet began.
type device struct {
	fleet   *fleet
	session *session.Session
	slow    time.Duration // until it has taken its last bytes
	wake    chan struct{}

	told  []time.Duration // the retries that came before the end
	when  time.Duration   // the first of them
	ended time.Duration
	retry time.Duration // the last word
}

func (d *device) Wake() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

func (d *device) Peer() (address, protocol string) { return "", "" }

func (d *device) serve() {
	f := d.fleet
	for range d.wake {
		if d.session.Ended() != "" {
			break
		}
		for _, frame := range d.session.Next(nil, 1<<16) {
			d.told = append(d.told, retryOf(f.t, frame))
			if d.when == 0 {
				d.when = time.Since(f.began)
			}
		}
	}
	d.ended, d.retry = time.Since(f.began), retryOf(f.t, d.session.Goodbye())
	time.Sleep(d.slow) //nolint:forbidigo // in a bubble
	f.roster.Remove(d.session)
}

func retryOf(t *testing.T, frame []byte) time.Duration {
	text, ok := strings.CutPrefix(string(frame), "retry: ")
	ms, err := strconv.Atoi(strings.TrimRight(text, "\n"))
	if !ok || err != nil {
		t.Errorf("not a retry: %q", frame)
	}
	return time.Duration(ms) * time.Millisecond
}

const baseRetry = 2 * time.Second

// newFleet has n devices at a gateway that can be drained. In a bubble only.
func newFleet(t *testing.T, n int, change func(*Options)) *fleet {
	f := &fleet{t: t, roster: new(session.Roster), ages: ageing.New(), metrics: NewMetrics(nil), began: time.Now(), over: make(chan bool, 1)}
	f.opts.Goodbye = func() time.Duration { return backoff.Jitter(baseRetry, 0.5) }
	o := Options{
		Wait: 5 * time.Second, Rate: func() int { return 100 }, Deadline: time.Hour, Last: 10 * time.Second, Retry: baseRetry,
		Roster: f.roster, Ages: f.ages, Metrics: f.metrics, Logger: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&o)
	}
	f.drain = New(o)
	for range n {
		f.come(0)
	}
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	f.ended.Go(func() { _ = f.ages.Run(ctx) })
	f.ended.Go(func() { f.over <- f.drain.Run(ctx) })
	t.Cleanup(f.finish)
	return f
}

// finish ends it all, as a process does.
func (f *fleet) finish() {
	f.cancel()
	f.ended.Wait()
	f.drain.Finish()
	synctest.Wait()
}

// come lets one more device in, if it may.
func (f *fleet) come(slow time.Duration) *device {
	d := &device{fleet: f, slow: slow, wake: make(chan struct{}, 1)}
	d.session = session.New(fmt.Sprint("device-", len(f.all)), d, &f.opts)
	d.session.Know(session.Facts{Since: time.Now(), Credential: "none"})
	if !f.roster.Add(d.session, nil) {
		return nil
	}
	f.mu.Lock()
	f.all = append(f.all, d)
	f.mu.Unlock()
	go d.serve()
	return d
}

func (f *fleet) sleep(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // in a bubble
	synctest.Wait()
}

// drained waits for the end of the drain and says when it was.
func (f *fleet) drained() time.Duration {
	f.t.Helper()
	if !<-f.over {
		f.t.Fatal("it didn't come to its end")
	}
	f.over <- true
	return time.Since(f.began)
}

// peak is the most of some moments that lie within one second.
func peak(moments []time.Duration) (most int) {
	slices.Sort(moments)
	from := 0
	for to, m := range moments {
		for m-moments[from] >= time.Second {
			from++
		}
		most = max(most, to-from+1)
	}
	return most
}

func (f *fleet) back() (all []time.Duration) {
	for _, d := range f.all {
		all = append(all, d.ended+d.retry)
	}
	return all
}

// TestOrder: not ready, then everybody is told, then the first is closed; and
// how often devices end, and come back, is what was asked for.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 3000
		f := newFleet(t, n, nil)
		f.sleep(time.Second)
		if !f.drain.Ready() {
			t.Fatal("it isn't ready before")
		}
		f.drain.Begin(BySignal)
		if f.drain.Ready() {
			t.Fatal("it is ready although it is going")
		}
		f.sleep(4900 * time.Millisecond)
		if _, refused := f.drain.Refuse(); refused || f.come(0) == nil {
			t.Fatal("who comes while the load balancer hasn't noticed must be served")
		}
		took := f.drained() - time.Second
		synctest.Wait()
		var told, ended []time.Duration
		var insured []time.Duration
		for i, d := range f.all {
			if len(d.told) != 1 || d.session.Ended() != session.Draining {
				t.Fatalf("device %d was told %v, ended as %q", i, d.told, d.session.Ended())
			}
			told, ended = append(told, d.when), append(ended, d.ended)
			insured = append(insured, d.when+d.told[0])
		}
		if first, last := slices.Min(told), slices.Max(told); first < 6*time.Second || last >= slices.Min(ended) {
			t.Errorf("told from %v to %v, ended from %v", first, last, slices.Min(ended))
		}
		for what, all := range map[string][]time.Duration{"ends": ended, "come back": f.back(), "would come back, were it killed": insured} {
			if most := peak(all); most > 150 || most < 90 {
				t.Errorf("%d devices %s in one second, at a rate of 100", most, what)
			}
		}
		for i, d := range f.all {
			if d.retry > 3*time.Second+glance {
				t.Fatalf("device %d stays away for %v although closing is paced", i, d.retry)
			}
		}
		plan := f.drain.opts.terms().Plan(n + 1)
		if want := plan.Total() - plan.Last; took > want+time.Second || took < want-time.Second {
			t.Errorf("it took %v, the plan says %v", took, want)
		}
		if n := testutil.ToFloat64(f.metrics.Told); n != 3001 {
			t.Errorf("%v are counted as told", n)
		}
	})
}

// TestDeadline: what can't be closed at the rate in time is closed faster, and
// the devices come back at the rate all the same.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 6000, func(o *Options) { o.Deadline = 35 * time.Second })
		f.drain.Begin(BySignal)
		took := f.drained()
		synctest.Wait()
		if took > 25*time.Second+glance || took < 20*time.Second {
			t.Errorf("it took %v, with 25 s until the last requests", took)
		}
		if n := f.roster.Len(); n > 0 {
			t.Errorf("%d are left", n)
		}
		if most := peak(f.back()); most > 150 {
			t.Errorf("%d devices come back in one second, at a rate of 100", most)
		}
	})
}

// TestSlowDevices: who takes its last bytes slowly gets the time that there is,
// and no more.
func TestSlowDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 10, func(o *Options) { o.Deadline = 60 * time.Second })
		f.come(20 * time.Second)
		f.drain.Begin(BySignal)
		if took := f.drained(); took < 25*time.Second || took > 27*time.Second {
			t.Errorf("it took %v, with a device that takes 20 s after 5 s", took)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 10, func(o *Options) { o.Deadline = 30 * time.Second })
		f.come(time.Hour)
		f.drain.Begin(BySignal)
		if took := f.drained(); took < 20*time.Second || took > 20*time.Second+2*glance {
			t.Errorf("it took %v, with a device that takes nothing and 20 s", took)
		}
		f.sleep(2 * time.Hour)
	})
}

// TestHasten: in each phase it closes what is left at once, and nobody comes back
// sooner than the rate wants.
func TestHasten(t *testing.T) {
	const n = 2000
	for name, after := range map[string]time.Duration{
		"while it waits": time.Second, "while it tells": 5100 * time.Millisecond, "while it closes": 8 * time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, n, nil)
				f.drain.Hasten() // nothing to hasten
				f.drain.Begin(BySignal)
				f.sleep(after)
				if f.roster.Len() == 0 {
					t.Fatal("too late")
				}
				f.drain.Hasten()
				if took := f.drained(); took > after+time.Second {
					t.Errorf("it took %v", took)
				}
				f.sleep(time.Second)
				if left := f.roster.Len(); left > 0 {
					t.Errorf("%d are left", left)
				}
				if most := peak(f.back()); most > 150 {
					t.Errorf("%d devices come back in one second, at a rate of 100", most)
				}
			})
		})
	}
}

// TestAbort: before closing it can be taken back: devices come in again, and
// those that were told are told otherwise; a drain after it does all anew.
func TestAbort(t *testing.T) {
	for name, after := range map[string]time.Duration{"while it waits": time.Second, "while it tells": 5100 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 3000, nil)
				f.drain.Begin(ByAPI)
				f.sleep(after)
				if !f.drain.Abort() || !f.drain.Ready() || f.come(0) == nil {
					t.Fatal("it isn't as before")
				}
				f.sleep(time.Minute)
				told := 0
				for _, d := range f.all {
					if d.session.Ended() != "" {
						t.Fatalf("a device ended as %q", d.session.Ended())
					}
					if len(d.told) > 0 {
						told++
						if last := d.told[len(d.told)-1]; last > 3*time.Second {
							t.Fatalf("a device was left with %v", last)
						}
					}
				}
				if wanted := after > 5*time.Second; (told > 0) != wanted {
					t.Errorf("%d devices were told", told)
				}
				f.drain.Begin(ByAPI)
				f.drained()
				synctest.Wait()
				if f.roster.Len() != 0 || testutil.ToFloat64(f.metrics.Aborted) != 1 {
					t.Errorf("%d are left, %v were aborted", f.roster.Len(), testutil.ToFloat64(f.metrics.Aborted))
				}
			})
		})
	}
}

// TestTooLateToAbort: once closing has begun, or a signal has come.
func TestTooLateToAbort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1000, nil)
		if !f.drain.Abort() {
			t.Error("there is nothing to abort, which is fine")
		}
		f.drain.Begin(ByAPI)
		f.sleep(8 * time.Second)
		if f.drain.Abort() || f.drain.Ready() {
			t.Error("connections are being closed")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 10, nil)
		f.drain.Begin(ByAPI)
		f.drain.Begin(BySignal) // the process must end now
		if f.drain.Abort() {
			t.Error("whoever sent the signal would kill it")
		}
	})
}

// TestQuiet: the wait ends when nobody has come for a while, and at the latest
// when it would have anyway.
func TestQuiet(t *testing.T) {
	for name, c := range map[string]struct{ comes, want time.Duration }{
		"nobody comes":      {0, 2 * time.Second},
		"they stop":         {4 * time.Second, 5 * time.Second}, // the last one came at 3 s
		"they never stop":   {time.Minute, 10 * time.Second},
		"one comes at once": {time.Millisecond, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 1, func(o *Options) { o.Wait, o.Quiet = 10*time.Second, 2*time.Second })
				f.drain.Begin(BySignal)
				came := make(chan struct{})
				go func() {
					defer close(came)
					for time.Since(f.began) < c.comes && f.come(0) != nil {
						time.Sleep(time.Second) //nolint:forbidigo // in a bubble
					}
				}()
				for f.drain.Status().Phase == Waiting {
					f.sleep(10 * time.Millisecond)
				}
				if waited := time.Since(f.began); waited < c.want-100*time.Millisecond || waited > c.want+200*time.Millisecond {
					t.Errorf("it waited for %v, want %v", waited, c.want)
				}
				<-came
			})
		})
	}
}

// TestHeldUpIsNotQuiet: while a process stands still nobody can come.
func TestHeldUpIsNotQuiet(t *testing.T) {
	now := time.Now()
	q := quiet{looked: now}
	for i, c := range []struct {
		after time.Duration
		came  uint64
		want  time.Duration
	}{{glance, 0, glance}, {time.Minute, 0, 3 * glance}, {glance, 1, 0}, {glance, 1, glance}} {
		now = now.Add(c.after)
		if got := q.look(c.came, now); got != c.want {
			t.Errorf("look %d: quiet for %v, want %v", i, got, c.want)
		}
	}
}

// TestRefused: those who come too late come back one after the other.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 5000, nil)
		f.drain.Begin(BySignal)
		f.sleep(6 * time.Second)
		if f.come(0) != nil {
			t.Fatal("it let one in")
		}
		var back []time.Duration
		for range 2000 {
			retry, refused := f.drain.Refuse()
			if !refused || retry < baseRetry/2 {
				t.Fatalf("%v, refused: %v", retry, refused)
			}
			back = append(back, time.Since(f.began)+retry)
			if rand.IntN(100) == 0 {
				f.sleep(10 * time.Millisecond)
			}
		}
		if most := peak(back); most > 150 {
			t.Errorf("%d come back in one second, at a rate of 100", most)
		}
		for range 100_000 {
			if retry, _ := f.drain.Refuse(); retry > farthest+baseRetry*2 {
				t.Fatalf("one is to stay away for %v", retry)
			}
		}
	})
}

// TestWithoutPace: nobody is told anything, and all end at once.
func TestWithoutPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1000, func(o *Options) { o.Rate, o.Wait = func() int { return 0 }, 0 })
		f.drain.Begin(BySignal)
		if took := f.drained(); took > time.Second {
			t.Errorf("it took %v", took)
		}
		synctest.Wait()
		for _, d := range f.all {
			if len(d.told) > 0 || d.retry > 3*time.Second {
				t.Fatalf("told %v, retry %v", d.told, d.retry)
			}
		}
	})
}

// TestFinish: what is left when the process ends is ended, each with its turn.
func TestFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1000, nil)
		f.finish()
		if f.roster.Len() != 0 || f.drain.Ready() || f.come(0) != nil {
			t.Error("something is left")
		}
		if most := peak(f.back()); most > 150 {
			t.Errorf("%d devices come back in one second, at a rate of 100", most)
		}
		if s := f.drain.Status(); s.Phase != Closed || !s.Final {
			t.Errorf("%+v", s)
		}
	})
}
