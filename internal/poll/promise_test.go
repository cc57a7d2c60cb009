package poll

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// run makes the laps of a rig's shards until the function that it returns is
// called.
func run(r *rig) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.shards.Run(ctx)
	}()
	return func() { cancel(); <-done }
}

// A step is something that happens to a polling device.
type step struct {
	What string
	N    int           // events, or seconds
	To   string        // whom the events are for
	Pass time.Duration // before the next step
}

func steps() *rapid.Generator[[]step] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			What: rapid.SampledFrom([]string{"publish", "publish", "poll", "poll", "hang up", "lose the answer"}).Draw(t, "what"),
			N:    rapid.IntRange(0, 12).Draw(t, "n"),
			To:   rapid.SampledFrom([]string{"a", "a", "b", "*"}).Draw(t, "to"),
			Pass: rapid.SampledFrom([]time.Duration{0, 0, time.Microsecond, moment - 1, moment, time.Second - 1, time.Second}).Draw(t, "pass"),
		}
	}), 1, 60)
}

// TestPromise: many polls in a row leave no gap and no repeat, whatever is
// published between, during and at the end of them, and whoever hangs up, or
// loses an answer on its way.
func TestPromise(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		hot := rapid.SampledFrom([]int{1, 700, 1 << 20}).Draw(rt, "hot")
		all := steps().Draw(rt, "steps")
		var err error
		synctest.Test(t, func(*testing.T) {
			d := &device{rig: newRig(hot, nil)}
			stop := run(d.rig)
			err = d.live(all)
			stop()
		})
		if err != nil {
			rt.Fatal(err)
		}
	})
}

// device is a client that polls, and takes the cursor of each answer that
// reaches it.
type device struct {
	rig       *rig
	cursor    string
	open      *call
	want, got []string
}

func (d *device) live(all []step) error {
	d.cursor = d.rig.head.String()
	for _, s := range all {
		if err := d.do(s); err != nil {
			return err
		}
		if pass(s.Pass); d.open == nil {
			continue
		}
		select {
		case w := <-d.open.done:
			d.open = nil
			if err := d.read(w); err != nil {
				return err
			}
		default:
		}
	}
	return d.settle()
}

func (d *device) do(s step) error {
	switch {
	case s.What == "publish":
		for range s.N {
			text := fmt.Sprint(len(d.rig.log.entries))
			if d.rig.publish(s.To, text); s.To != "b" {
				d.want = append(d.want, text)
			}
		}
	case s.What == "poll" && d.open == nil:
		d.open = d.rig.call(fmt.Sprintf("/poll?device=a&wait=%d", s.N/3), d.cursor)
	case s.What != "poll" && d.open != nil:
		if s.What == "hang up" {
			d.open.hangUp()
		}
		<-d.open.done // and never read
		d.open = nil
	}
	return nil
}

// settle polls until everything is there.
func (d *device) settle() error {
	if d.open != nil {
		if err := d.read(<-d.open.done); err != nil {
			return err
		}
	}
	for polls := 0; len(d.got) < len(d.want); polls++ {
		if polls > len(d.want) {
			return fmt.Errorf("%d of %d events, and no more come after %s", len(d.got), len(d.want), d.cursor)
		}
		if err := d.read(<-d.rig.call("/poll?device=a&wait=0", d.cursor).done); err != nil {
			return err
		}
	}
	if d.rig.left() {
		return fmt.Errorf("something of a poll is left")
	}
	return nil
}

// read holds an answer against what was published.
func (d *device) read(w *httptest.ResponseRecorder) error {
	a, err := parse(w)
	if err != nil || a.Status != http.StatusOK || a.Cursor == nil {
		return fmt.Errorf("an answer %+v: %w", a, err)
	}
	d.got, d.cursor = append(d.got, a.datas()...), *a.Cursor
	if len(d.got) > len(d.want) || !slices.Equal(d.got, d.want[:len(d.got)]) {
		return fmt.Errorf("got %q, want %q", d.got, d.want)
	}
	return nil
}
