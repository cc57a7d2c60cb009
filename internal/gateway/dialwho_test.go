package gateway

import (
	"context"
	"log/slog"
	"testing"

	"downlink/internal/inventory"

	"github.com/prometheus/client_golang/prometheus"
)

// oneDevice is an inventory of a device that is called pos-1.
type oneDevice struct{}

func (oneDevice) Name() string { return "a test" }

func (oneDevice) Fetch(context.Context) (*inventory.List, error) {
	return &inventory.List{Entries: []inventory.Entry{{Device: inventory.Device{ID: "pos-1", URL: "https://a.example/"}}}}, nil
}

// TestWhoDials: a member that doesn't dial a device says who does.
func TestWhoDials(t *testing.T) {
	g := &Dialler{dial: DialOptions{Owner: Static, Index: 1, Members: 3, Replication: 1}}
	g.inventory = inventory.New(inventory.Options{Source: oneDevice{}, Metrics: inventory.NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler)})
	if _, err := g.inventory.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		device string
		shard  int
		want   string
	}{
		{"pos-1", 4, "this member dials it"},
		{"pos-1", 5, "its shard is 5: member 2 of 3 dials it"},
		{"pos-2", 4, "it isn't in this member's inventory, or its entry there is wrong: nobody dials it"},
	} {
		if got := g.whoDials(c.device, c.shard); got != c.want {
			t.Errorf("%s in shard %d: %q, want %q", c.device, c.shard, got, c.want)
		}
	}
}
