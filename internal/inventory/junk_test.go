package inventory

import (
	"context"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// sameTwice is a list of entries that are all called the same.
type sameTwice struct{}

func (sameTwice) Name() string { return "a test" }

func (sameTwice) Fetch(context.Context) (*List, error) {
	return &List{Entries: []Entry{{Device: Device{ID: "a"}}, {Device: Device{ID: "a"}}}}, nil
}

// A list without one entry that can be used is no empty inventory, though fewer
// things are said of it than it has entries.
func TestNothingButDoublesIsNoInventory(t *testing.T) {
	t.Parallel()
	v := New(Options{Source: sameTwice{}, Metrics: NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler)})
	if _, err := v.Load(t.Context()); err == nil || v.Ready() {
		t.Errorf("it counts, with %d devices", v.Len())
	}
}
