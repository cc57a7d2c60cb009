package door

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// refusals are what became of requests that were refused at one moment.
type refusals struct {
	mu      sync.Mutex
	took    []time.Duration
	retries []time.Duration
}

// refuse has a door refuse n devices at once, and waits for all answers.
func refuse(d *Door, n int) *refusals {
	var r refusals
	as := Dialect{Later: func(_ http.ResponseWriter, retry time.Duration, _ Refusal) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.retries = append(r.retries, retry)
	}}
	began := time.Now()
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			d.Refuse(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/events", nil), as, "a", RefusedTooManyStreams)
			r.mu.Lock()
			defer r.mu.Unlock()
			r.took = append(r.took, time.Since(began))
		})
	}
	all.Wait()
	slices.Sort(r.took)
	slices.Sort(r.retries)
	return &r
}

// TestRefusalsAreHeld: for half a second, jittered, so that a gateway that
// refuses doesn't look like the fastest; a bounded number of them, and the times
// to come back are spread.
func TestRefusalsAreHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(Options{Held: 100, Retry: 3 * time.Second, Metrics: NewMetrics(nil)})
		r := refuse(d, 150)
		if at := r.took[:50]; at[49] != 0 {
			t.Errorf("of those for whom there was no place the last was answered after %v", at[49])
		}
		held := r.took[50:]
		if held[0] < holdFor/2 || held[99] > holdFor*3/2 || held[75]-held[25] < holdFor/5 {
			t.Errorf("the others were held from %v to %v, half of them between %v and %v", held[0], held[99], held[25], held[75])
		}
		if least, most := r.retries[0], r.retries[149]; least < 1500*time.Millisecond || most > 4500*time.Millisecond || len(slices.Compact(r.retries)) < 140 {
			t.Errorf("they are told to come back after %v to %v", least, most)
		}
	})
}

// TestWhoIsHeldAndGoesGivesItsPlaceBack, at once.
func TestWhoIsHeldAndGoesGivesItsPlaceBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(Options{Held: 1, Retry: time.Second, Metrics: NewMetrics(nil)})
		ctx, leave := context.WithCancel(t.Context())
		var gone sync.WaitGroup
		gone.Go(func() {
			d.Refuse(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/events", nil), Dialect{}, "a", RefusedDraining)
		})
		synctest.Wait()
		began := time.Now()
		leave()
		gone.Wait()
		if took := time.Since(began); took != 0 {
			t.Errorf("it was held for %v after it had gone", took)
		}
		if r := refuse(d, 1); r.took[0] < holdFor/2 {
			t.Errorf("its place is still taken: the next was answered after %v", r.took[0])
		}
	})
}
