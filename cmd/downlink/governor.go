package main

import (
	"fmt"
	"io"
	"net"

	"downlink/internal/config"
	"downlink/internal/gateway"
	"downlink/internal/metrics"
)

// governorCmd is a governor for other programs.
type governorCmd struct {
	Run governorRunCmd `cmd:"" default:"withargs" help:"Run a governor for other programs (the default: downlink governor --log redis://…)."`

	Show  governorShowCmd  `cmd:"" help:"Say how a running governor stands, a gateway's or another: what is let in, and by which signal."`
	Set   governorSetCmd   `cmd:"" help:"Change settings of a running governor at once."`
	Watch governorWatchCmd `cmd:"" help:"Follow what a running governor does: each change of a lever, with its reason."`
}

// Help is what stands under the first line.
func (governorCmd) Help() string { return whoNeedsAGovernor }

// Help is the same: it is what is asked for a command's settings.
func (governorRunCmd) Help() string { return whoNeedsAGovernor }

const whoNeedsAGovernor = `A gateway has a governor built in, and needs no other. This one is for your own programs, where they are what fills Redis or lets the crowd in: it watches Redis (and consumer groups of Kafka, by --governor-file), and says what part of their full work they should do. Programs in Go ask it by the package downlink/throttle, others by gRPC or by GET /v1/governor.

docs/operate/governor-sidecar.md shows both, and what happens when it is away.`

// governorRunCmd runs it.
type governorRunCmd struct {
	config.Config `embed:""`
}

// Run checks the configuration and governs until a signal.
func (c *governorRunCmd) Run(loader *config.Loader, io console) error {
	heeded := takeSignals()
	ctx, _, stop := heeded.until()
	defer stop()
	loader.As(config.Governor)
	logger, err := checked(loader, &c.Config, io)
	if err != nil {
		return err
	}
	o := governorOptions(&c.Config, metrics.ReadBuild(version).Version)
	o.Logger = logger
	settings := startLive(loader, &c.Config, logger.With("part", "config"))
	o.Limits, o.Reread, o.Hangup = settings.limits, settings.reread(), heeded.hangup
	var g *gateway.Sidecar
	o.Started = func() { greetGovernor(io.out, &c.Config, o.Version, g.Addr()) }
	if g, err = gateway.NewSidecar(o); err != nil {
		return usage(err)
	}
	defer tellEnd(ctx, logger)()
	return g.Run(ctx)
}

// governorOptions are the settings that a governor for other programs has. What
// the environment sets for a gateway beside it has no effect.
func governorOptions(c *config.Config, version string) gateway.Options {
	all := options(c, version, nil)
	return gateway.Options{
		Backend: all.Backend, BackendListen: c.GovernorListen,
		ReadHeaderTimeout: all.ReadHeaderTimeout, ShutdownTimeout: all.ShutdownTimeout, WriteTimeout: all.WriteTimeout,
		Log: all.Log, GovernorFile: all.GovernorFile, SweepInterval: all.SweepInterval, Version: version,
	}
}

// greetGovernor says where it is asked. Its first two lines have a fixed form that
// scripts may read.
func greetGovernor(out io.Writer, c *config.Config, version string, at net.Addr) {
	scheme, token := "http", ""
	if c.BackendTLSCert != "" {
		scheme = "https"
	}
	if !c.BackendUses("none") {
		token = `-H "Authorization: Bearer $TOKEN" `
	}
	//nolint:errcheck // it governs without a terminal too
	fmt.Fprintf(out, "downlink %s\ngovernor: %[2]s://%[3]s\n\nWhat it says:\n  curl %[4]s%[2]s://%[3]s/v1/governor\n\n", version, scheme, reachable(at), token)
}
