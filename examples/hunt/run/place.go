package main

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// A place is where a hunt happens.
type place struct {
	dir      string
	running  []*process // in the order in which they were started
	redis    string     // host:port
	gateways []*gateway
	governor string // URL of the one that says how many may play; empty without
	game     string // URL
}

// A gateway is one of the place's.
type gateway struct {
	events, backend string // URLs
}

// build starts everything but the players. What it returns is to be closed, also
// with an error.
func build(ctx context.Context, o options, h hunt) (*place, error) {
	dir, err := os.MkdirTemp("", "hunt")
	if err != nil {
		return &place{}, err
	}
	p := &place{dir: dir}
	if err := p.startRedis(ctx, h); err != nil {
		return p, err
	}
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte(rand.Text()+rand.Text()), 0o600); err != nil {
		return p, err
	}
	for range o.gateways {
		if err := p.startGateway(ctx, o, h, secret); err != nil {
			return p, err
		}
	}
	if o.kind == governed {
		if err := p.startGovernor(ctx, o, h); err != nil {
			return p, err
		}
	}
	return p, p.startGame(ctx, o, h, secret)
}

// close ends all of it, the last first, and takes its files away.
func (p *place) close() {
	for _, one := range slices.Backward(p.running) {
		one.end()
	}
	http.DefaultClient.CloseIdleConnections() // to those who have gone
	if p.dir != "" {
		_ = os.RemoveAll(p.dir) // of the system's own directory for such
	}
}

func (p *place) add(one *process, err error) error {
	if err == nil {
		p.running = append(p.running, one)
	}
	return err
}

func (p *place) last() *process { return p.running[len(p.running)-1] }

// startRedis starts a small one that keeps nothing on disk.
func (p *place) startRedis(ctx context.Context, h hunt) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	p.redis = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	err = p.add(start("redis-server", "redis-server", []string{
		"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", p.dir, "--save", "", "--appendonly", "no",
		"--maxmemory", h.Redis.MaxMemory, "--maxmemory-policy", "noeviction",
	}, func(string) {}))
	if err != nil {
		return err
	}
	return p.last().await(ctx, "it doesn't listen", func() bool {
		conn, err := net.DialTimeout("tcp", p.redis, time.Second)
		if err != nil {
			return false
		}
		conn.Close()
		return true
	})
}

// freePort is one that nobody has, and below those that systems give away: nobody
// takes it by accident before Redis does.
func freePort() (int, error) {
	for tries := 0; ; tries++ {
		port := 30_000 + mathrand.IntN(2_000) //nolint:gosec // no secret
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, l.Close()
		}
		if tries == 100 {
			return 0, err
		}
	}
}

func (p *place) startGateway(ctx context.Context, o options, h hunt, secret string) error {
	args := []string{
		"serve", "--listen", "127.0.0.1:0", "--backend-listen", "127.0.0.1:0", "--log", "redis://" + p.redis,
		"--shards", strconv.Itoa(h.Gateway.Shards), "--window", h.Gateway.Window.String(), "--sweep-interval", h.Gateway.Sweep.String(),
		"--auth", "jwt", "--jwt-hmac-secret-file", secret, "--log-level", "warn", "--drain-wait", "0s", "--shutdown-timeout", "1s",
	}
	switch o.kind {
	case capped:
		args = append(args, "--governor", "off", "--max-connections", strconv.Itoa(max(h.Cap/o.gateways, 1)))
	case open:
		args = append(args, "--governor", "off")
	case governed:
		args = append(args, "--governor-file", o.settings.gateways, "--governor-floor", strconv.Itoa(h.Gateway.Floor))
	}
	g := &gateway{}
	var known atomic.Bool
	err := p.add(start("gateway", o.downlink, args, func(line string) {
		if url, ok := strings.CutPrefix(line, "devices:  "); ok {
			g.events = url + "/events"
		}
		if url, ok := strings.CutPrefix(line, "back end: "); ok {
			g.backend = url
			known.Store(true)
		}
	}))
	if err != nil {
		return err
	}
	p.gateways = append(p.gateways, g)
	return p.last().await(ctx, "it isn't ready", func() bool { return known.Load() && ready(ctx, g.backend) })
}

// startGovernor starts the one that the game asks how many may play. It has no
// opinion before it has watched Redis for a while, and the game lets everybody in
// until then.
func (p *place) startGovernor(ctx context.Context, o options, h hunt) error {
	url := make(chan string, 1)
	err := p.add(start("governor", o.downlink, []string{
		"governor", "--log", "redis://" + p.redis, "--governor-listen", "127.0.0.1:0",
		"--window", h.Gateway.Window.String(), "--sweep-interval", h.Gateway.Sweep.String(),
		"--governor-maximum", strconv.Itoa(h.Game.Places), "--governor-file", o.settings.room, "--log-level", "warn",
	}, func(line string) {
		if at, ok := strings.CutPrefix(line, "governor: "); ok {
			url <- at
		}
	}))
	if err != nil {
		return err
	}
	return p.last().await(ctx, "it doesn't say where it serves", func() bool {
		select {
		case p.governor = <-url:
			return true
		default:
			return false
		}
	})
}

func (p *place) startGame(ctx context.Context, o options, h hunt, secret string) error {
	var events, backends []string
	for _, g := range p.gateways {
		events, backends = append(events, strings.TrimSuffix(g.events, "/events")), append(backends, g.backend)
	}
	args := []string{
		"serve", "--listen", "127.0.0.1:0", "--redis", "redis://" + p.redis, "--backend", strings.Join(backends, ","), "--events", strings.Join(events, ","),
		"--secret-file", secret, "--seed", strconv.FormatUint(h.Load.Seed, 10), "--name", "hunt",
		"--side", strconv.Itoa(h.Game.Side), "--top", strconv.Itoa(h.Game.Top), "--board-every", h.Game.Every.String(), "--outbox", strconv.Itoa(h.Game.Outbox), "--patience", h.Game.Patience.String(),
	}
	if o.kind == governed {
		args = append(args, "--governor", p.governor, "--tell-governor", "--refresh", "1s")
	}
	url := make(chan string, 1)
	err := p.add(start("game", o.game, args, func(line string) {
		if at, ok := strings.CutPrefix(line, "game: "); ok {
			url <- at
		}
	}))
	if err != nil {
		return err
	}
	return p.last().await(ctx, "it doesn't say where it serves", func() bool {
		select {
		case p.game = <-url:
			return true
		default:
			return false
		}
	})
}

// died is the first process that has ended by itself; nil if all run.
func (p *place) died() error {
	for _, one := range p.running {
		select {
		case <-one.ended:
			return fmt.Errorf("the %s has ended in the middle of the run: %w\n%s", one.name, one.err, one.said.text())
		default:
		}
	}
	return nil
}
