package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"downlink/examples/hunt/players"
)

// A kind is what a run has.
type kind string

const (
	capped   kind = "capped"   // a fixed cap on connections, and no governor
	governed kind = "governed" // the governor, and no cap
	open     kind = "open"     // neither
)

// options are what the command line says.
type options struct {
	kind             kind
	hunt, out        string
	settings         struct{ gateways, room string }
	downlink, game   string
	gateways, crowds int
	players          int
	last             time.Duration
}

// A hunt is the file that all runs share.
type hunt struct {
	Load  players.Load `yaml:"load"`
	Redis struct {
		MaxMemory string `yaml:"maxmemory"`
	} `yaml:"redis"`
	Gateway struct {
		Shards int           `yaml:"shards"`
		Window time.Duration `yaml:"window"`
		Sweep  time.Duration `yaml:"sweep_interval"`
		Floor  int           `yaml:"governor_floor"`
	} `yaml:"gateway"`
	Game struct {
		Side     int           `yaml:"side"`
		Top      int           `yaml:"top"`
		Every    time.Duration `yaml:"board_every"`
		Outbox   int           `yaml:"outbox"`
		Patience time.Duration `yaml:"patience"`
		Places   int           `yaml:"places"`
	} `yaml:"game"`
	Cap  int           `yaml:"cap"`
	Warm time.Duration `yaml:"warm"`
}

// read reads the file, and makes the hunt as large as the command line wants it.
func read(o options) (h hunt, err error) {
	text, err := os.ReadFile(o.hunt)
	if err != nil {
		return h, err
	}
	if err := yaml.UnmarshalWithOptions(text, &h, yaml.Strict()); err != nil {
		return h, fmt.Errorf("%s: %w", o.hunt, err)
	}
	if o.last > 0 {
		h.Load.Last = o.last
		h.Load.Arrive = min(h.Load.Arrive, o.last/2)
	}
	if o.players > 0 {
		part := float64(o.players) / float64(h.Load.Players)
		h.Cap, h.Game.Places = max(int(float64(h.Cap)*part), 1), max(int(float64(h.Game.Places)*part), 1)
		h.Game.Outbox = max(int(float64(h.Game.Outbox)*part), 1)
		if h.Redis.MaxMemory, err = scale(h.Redis.MaxMemory, part); err != nil {
			return h, fmt.Errorf("%s: redis.maxmemory: %w", o.hunt, err)
		}
		h.Load.Players = o.players
	}
	return h, h.Load.Check()
}

// idle is what a Redis takes that holds nothing, with the connections of those who
// ask it: it isn't scaled.
const idle = 2 << 20

// scale is a size such as 24mb for a smaller or larger crowd.
func scale(size string, part float64) (string, error) {
	number, ok := strings.CutSuffix(size, "mb")
	mb, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil {
		return "", fmt.Errorf("write megabytes, such as 24mb, not %q", size)
	}
	return strconv.Itoa(int((mb*(1<<20)-idle)*part) + idle), nil
}
