package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"downlink/examples/hunt/game"
	"downlink/throttle"
)

// serveCmd is the game.
type serveCmd struct {
	Listen     string        `default:"127.0.0.1:8070" help:"Address of the game's API and page."`
	Redis      string        `default:"redis://127.0.0.1:6379" env:"HUNT_REDIS" help:"Where the hunt is kept."`
	Backend    []string      `default:"http://127.0.0.1:9090" help:"Back-end ports of Downlink's gateways, used in turns."`
	Events     []string      `default:"http://127.0.0.1:8080" help:"Devices' ports of Downlink's gateways; a player is told one."`
	TokenFile  string        `help:"File with the publisher's token, where the back end's port wants one."`
	SecretFile string        `required:"" help:"File with the secret that players' tokens are signed with; the gateways' jwt-hmac-secret-file."`
	Governor   string        `help:"Who says how many may play: a gateway's back-end port, or a downlink governor. Empty: nobody, and everybody may."`
	Told       bool          `name:"tell-governor" help:"Tell the governor how many play, which a downlink governor takes and a gateway doesn't."`
	Refresh    time.Duration `default:"10s" help:"How often the governor is asked."`
	Name       string        `default:"hunt" help:"Name of the hunt; its keys in Redis begin with it."`
	Seed       uint64        `default:"1" help:"Which challenges and rewards there are."`
	Side       int           `default:"16" help:"Side of a map in cells; a challenge is its square in bytes."`
	Top        int           `default:"20" help:"Rows of the board."`
	BoardEvery time.Duration `default:"200ms" help:"Least time between two boards."`
	Outbox     int           `default:"5000" help:"Events that may wait for Downlink before solves are refused."`
	Active     time.Duration `default:"3m" help:"How long after its last request a player counts as playing."`
	Patience   time.Duration `default:"8s" help:"After about so long somebody in the waiting room tries again."`
	Players    int           `help:"What the governor's ratio is of, where it names no maximum."`
	TokenLife  time.Duration `default:"12h" help:"How long a player's token counts."`
	HTTPS      bool          `name:"https" help:"The page is served over https by something in front."`
}

// Run runs the game until it is told to end.
func (c *serveCmd) Run(out *os.File) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return c.run(ctx, out, slog.New(slog.NewTextHandler(os.Stderr, nil)))
}

func (c *serveCmd) run(ctx context.Context, out io.Writer, logger *slog.Logger) error {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	opts, err := c.options()
	if err != nil {
		return err
	}
	opts.Registerer, opts.Logger = reg, logger
	var governor *throttle.Client
	if c.Governor != "" {
		opts.Governor = func() game.Allowance { return allowance(governor) }
	}
	g, err := game.New(opts)
	if err != nil {
		return err
	}
	defer g.Close()
	if c.Governor != "" {
		asked := throttle.Options{URL: c.Governor, Token: opts.BackendToken, Refresh: c.Refresh, Logger: logger}
		if c.Told {
			asked.Use = func() float64 { return float64(g.Playing()) }
		}
		if governor, err = throttle.New(asked); err != nil {
			return err
		}
		defer governor.Close()
	}
	mux := http.NewServeMux()
	mux.Handle("/", g.Handler())
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	return c.serve(ctx, g, mux, out)
}

// allowance asks for the ratio alone as long as it is 1, which is nearly always.
func allowance(client *throttle.Client) game.Allowance {
	if client.Ratio() >= 1 {
		return game.Allowance{Ratio: 1}
	}
	s := client.State()
	return game.Allowance{Ratio: s.Ratio, Maximum: int(s.Maximum), Signal: s.Signal}
}

func (c *serveCmd) options() (game.Options, error) {
	secret, err := secretIn(c.SecretFile)
	if err != nil {
		return game.Options{}, err
	}
	token := ""
	if c.TokenFile != "" {
		if token, err = secretIn(c.TokenFile); err != nil {
			return game.Options{}, err
		}
	}
	return game.Options{
		Redis: c.Redis, Name: c.Name, Seed: c.Seed, Side: c.Side, Top: c.Top, BoardEvery: c.BoardEvery,
		OutboxMax: c.Outbox, ActiveFor: c.Active, Patience: c.Patience, Players: c.Players,
		Backends: c.Backend, BackendToken: token, Events: c.Events,
		Secret: []byte(secret), TokenLife: c.TokenLife, SecureCookie: c.HTTPS,
	}, nil
}

// secretIn is the first line of a file.
func secretIn(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSuffix(line, "\r"), nil
}

// serve serves until ctx ends: first requests end, then publishing.
func (c *serveCmd) serve(ctx context.Context, g *game.Game, handler http.Handler, out io.Writer) error {
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute}
	publishing, endPublishing := context.WithCancel(context.WithoutCancel(ctx))
	var parts sync.WaitGroup
	parts.Go(func() { g.Run(publishing) })
	failed := make(chan error, 1)
	parts.Go(func() { failed <- server.Serve(listener) })
	if _, err = fmt.Fprintf(out, "game: http://%s\n", listener.Addr()); err == nil {
		select {
		case <-ctx.Done():
		case err = <-failed:
		}
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err = errors.Join(err, server.Shutdown(late))
	endPublishing()
	parts.Wait()
	return err
}
