package gateway

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"downlink/internal/dial"
	"downlink/internal/egress"
	"downlink/internal/eventlog/redislog"
	"downlink/internal/inventory"
	"downlink/internal/lease"
	"downlink/internal/post"
	"downlink/internal/push"
)

// Names of the limits of a dialler; each is a setting.
const (
	dialRate         = "dials_per_second"
	postsInFlight    = "posts_in_flight"
	inventoryDevices = "inventory_devices"
	inventoryMaxDrop = "inventory_max_drop"
	pushInFlight     = "push_in_flight"
	pushPerDevice    = "push_in_flight_per_device"
	pushAnswer       = "push_answer_bytes"
)

// InventoryOptions say which devices there are.
type InventoryOptions struct {
	File, URL string // one of them, or neither: the table of devices in the log's Redis
	Interval  time.Duration
	TokenFile string // for a URL
	CAFile    string // likewise
}

// Transport is how a device gets its events: post or websocket.
type Transport = dial.Transport

// EgressOptions say what may be dialled, and how. Metrics and Logger are the
// dialler's.
type EgressOptions = egress.Options

// dialInstruments are the metrics that only a dialler has.
type dialInstruments struct {
	dial      *dial.Metrics
	lease     *lease.Metrics
	inventory *inventory.Metrics
	egress    *egress.Metrics
	push      *push.Metrics
}

func newDialInstruments(reg prometheus.Registerer) dialInstruments {
	return dialInstruments{
		dial:      dial.NewMetrics(reg),
		lease:     lease.NewMetrics(reg),
		inventory: inventory.NewMetrics(reg),
		egress:    egress.NewMetrics(reg),
		push:      push.NewMetrics(reg),
	}
}

// openDevices makes what knows devices and the way to them, and reads what files
// say of both.
func (g *Dialler) openDevices() error {
	e := g.dial.Egress
	e.Metrics, e.Logger = g.dials.egress, g.opts.Logger.With("part", "egress")
	var err error
	if g.egress, err = egress.New(e); err != nil {
		return fmt.Errorf("the way to devices: %w", err)
	}
	g.poster = post.New(post.Options{Egress: g.egress, Timeout: g.dial.PostTimeout, AnswerBytes: g.opts.Limits.Value(pushAnswer)})
	source, err := g.openSource()
	if err != nil {
		return fmt.Errorf("the inventory: %w", err)
	}
	g.inventory = inventory.New(inventory.Options{
		Source: source, Shards: g.opts.Log.Shards, Interval: g.dial.Inventory.Interval, Permit: g.egress.Permit,
		Most: g.opts.Limits.Value(inventoryDevices), MaxDrop: g.opts.Limits.Value(inventoryMaxDrop),
		Changed: func(c inventory.Change) {
			if e := g.engine.Load(); e != nil {
				e.Changed(c)
			}
		},
		Metrics: g.dials.inventory, Logger: g.opts.Logger.With("part", "inventory"),
	})
	if g.dial.Inventory.File == "" {
		return nil // Run reads it as soon as it can be reached
	}
	if _, err := g.inventory.Load(context.Background()); err != nil {
		return fmt.Errorf("the inventory: %w", err)
	}
	return nil
}

// openSource makes the inventory's source.
func (g *Dialler) openSource() (inventory.Source, error) {
	from := g.dial.Inventory
	switch {
	case from.File != "":
		return inventory.NewFile(from.File)
	case from.URL != "":
		return inventory.NewHTTP(inventory.HTTPOptions{URL: from.URL, TokenFile: from.TokenFile, CAFile: from.CAFile})
	}
	devices, err := redislog.OpenDevices(redisOptions(g.opts, g.metrics.redis))
	if err != nil {
		return nil, err
	}
	g.closeTable = devices.Close
	return inventory.NewTable(devices.Key(), devices.Fetch), nil
}

// newPush makes what passes events on to devices at once.
func (g *Dialler) newPush() *push.Handler {
	value := g.opts.Limits.Value
	return push.New(push.Options{
		Inventory: g.inventory, Post: g.poster, Sender: g.identity.callers.pushing,
		MaxEventBytes: value(eventBytes), InFlight: value(pushInFlight), PerDevice: value(pushPerDevice),
		Wait: g.dial.PushWait, Metrics: g.dials.push, Logger: g.opts.Logger.With("part", "push"),
	})
}

// CheckDialFiles is CheckFiles for a dialler: the inventory is read too, if it is a
// file.
func CheckDialFiles(o Options, d DialOptions) (warnings []string, err error) {
	g := &Dialler{dial: d}
	g.prepare(o)
	g.dials = newDialInstruments(g.registry)
	if err := g.openDevices(); err != nil {
		return nil, err
	}
	defer g.closeDevices()
	if _, err := g.openFlowSettings(g.signals(g.outline())); err != nil {
		return nil, err
	}
	return g.checkFiles()
}
