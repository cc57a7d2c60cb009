package client

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

const resyncFrame = "id: 50-0\nevent: resync\ndata: {\"reason\":\"log-rewound\",\"after_ms\":2000}\n\n"

// TestResync: wait, fetch until it succeeds, commit, and only then go on. The
// cursor goes back here: the log was rewound to before it.
func TestResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t, sends(resyncFrame+"id: 51-0\ndata: a\n\n"))
		d := &device{store: &MemoryStore{Cursor{ID: "900-0"}}}
		start := time.Now()
		var got []Resync
		play(t, g, d, time.Hour, func(_ context.Context, r Resync) error {
			if got == nil {
				wantBetween(t, "first fetch after", time.Since(start), 2*time.Second, 2*time.Second)
			}
			wantEqual(t, "cursor during the fetch", d.store.Cursor, Cursor{ID: "900-0"})
			if len(d.seen) > 0 {
				t.Error("an event overtook the resync")
			}
			got = append(got, r)
			if len(got) < 4 {
				return errors.New("the back office is down")
			}
			return nil
		})
		want := Resync{ID: "50-0", Reason: "log-rewound"}
		wantEqual(t, "resyncs", got, []Resync{want, want, want, want})
		wantEqual(t, "events", d.seen, []string{"51-0=a"})
		wantEqual(t, "cursors sent", g.lastEventIDs(), []string{"900-0", "51-0"})
	})
}

func TestResyncUnfinishedIsNotCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t, holds("id: 40-0\n\n"+resyncFrame+"id: 51-0\ndata: a\n\n"))
		d := play(t, g, &device{}, time.Minute, func(ctx context.Context, _ Resync) error {
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(d.err, context.DeadlineExceeded) {
			t.Errorf("Run: %v", d.err)
		}
		wantEqual(t, "cursor", d.store.Cursor, Cursor{ID: "40-0"})
		wantEqual(t, "events", len(d.seen), 0)
	})
}

func TestResyncEndsWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := play(t, newGateway(t, holds(resyncFrame)), &device{}, time.Second, func(context.Context, Resync) error {
			t.Error("fetched before the delay was over")
			return nil
		})
		if !errors.Is(d.err, context.DeadlineExceeded) || d.store.Cursor.ID != "" {
			t.Errorf("Run: %v, cursor %+v", d.err, d.store.Cursor)
		}
	})
}

func TestResyncWithoutState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := play(t, newGateway(t, holds(resyncFrame+"id: 51-0\ndata: a\n\n")), &device{}, time.Second, nil)
		wantEqual(t, "events", d.seen, []string{"51-0=a"})
	})
}

// TestResyncUnreadable: an unknown or damaged resync is a resync.
func TestResyncUnreadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []Resync
		play(t, newGateway(t, holds("id: 1-0\nevent: resync\ndata: later words\n\n")), &device{}, time.Second, func(_ context.Context, r Resync) error {
			got = append(got, r)
			return nil
		})
		wantEqual(t, "resyncs", got, []Resync{{ID: "1-0"}})
	})
}

// withGroups is a step whose answer names the device's groups.
func withGroups(groups string, next step) step {
	return func(w http.ResponseWriter, r *http.Request) {
		if groups != "" {
			w.Header().Set("Downlink-Groups", groups)
		}
		next(w, r)
	}
}

func (g *gateway) groupsSent() (groups []string) {
	for _, r := range g.requests {
		groups = append(groups, r.Header.Get("Downlink-Groups"))
	}
	return groups
}

// TestGroups: the value goes back as it came, and only after the first frame
// was finished: a resync for changed groups that fails must come again.
func TestGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fetches := 0
		g := newGateway(t,
			withGroups("g1", sends("id: 1-0\ndata: a\n\n")),
			withGroups("g2", sends("")), // broke off before its resync
			withGroups("g2", sends(resyncFrame)),
			withGroups("", sends("id: 60-0\n\n")),
		)
		d := play(t, g, &device{store: &MemoryStore{Cursor{Groups: "g0"}}}, time.Hour, func(context.Context, Resync) error {
			fetches++
			return nil
		})
		wantEqual(t, "groups sent", g.groupsSent(), []string{"g0", "g1", "g1", "g2", ""})
		wantEqual(t, "cursor", d.store.Cursor, Cursor{ID: "60-0"})
		wantEqual(t, "fetches", fetches, 1)
	})
}
