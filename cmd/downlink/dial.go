package main

import (
	"fmt"
	"io"
	"net"

	"downlink/internal/config"
	"downlink/internal/gateway"
	"downlink/internal/metrics"
)

// dialCmd connects to devices, where they can't connect to us.
type dialCmd struct {
	Run    dialRunCmd    `cmd:"" default:"withargs" help:"Run a dialler (the default: downlink dial --owner …)."`
	Status dialStatusCmd `cmd:"" help:"Say who owns which devices: members, owners, and what is on its way."`
}

// Help is what stands under the first line.
func (dialCmd) Help() string { return threeQuestions }

// Help is the same: it is what is asked for a command's settings.
func (dialRunCmd) Help() string { return threeQuestions }

// threeQuestions lead most readers away.
const threeQuestions = `Three questions come first, because most networks don't need this:

1. Must the connection stay open? If devices can connect to you, it is "downlink serve" that you want: they connect, and no member has to own any. If they can't, but take a request each time, choose --owner none --transport post: POST /v1/push to any dialler goes straight to the device. There is no log, and nothing to take over when a dialler dies.

2. Is an event that comes twice really harmful, or do the devices drop repeats by their ID anyway? If they do, --owner static delivers from the log without any coordination, by --replication members at once if you like.

3. How long may a device be without a connection? --owner ring moves the devices of a member that is gone to the others, after --lease-ttl and the time to dial them (--dials-per-second). "downlink plan ring" says how long that is.

docs/concepts/dialling.md says what each combination guarantees and costs, row by row against serve.`

// dialRunCmd runs a dialler.
type dialRunCmd struct {
	config.Config `embed:""`
}

// Run checks the configuration and dials until a signal.
func (c *dialRunCmd) Run(loader *config.Loader, io console) error {
	heeded := takeSignals()
	ctx, hurry, stop := heeded.until()
	defer stop()
	loader.As(config.Dial)
	logger, err := checked(loader, &c.Config, io)
	if err != nil {
		return err
	}
	version := metrics.ReadBuild(version).Version
	o := options(&c.Config, version, logger)
	settings := startLive(loader, &c.Config, logger.With("part", "config"))
	o.Limits, o.Reread, o.Hangup, o.Hurry = settings.limits, settings.reread(), heeded.hangup, hurry
	o.Governed = settings.governed.Load
	var g *gateway.Dialler
	o.Started = func() { greetDialler(io.out, &c.Config, version, g.BackendAddr()) }
	d, err := dialOptions(&c.Config)
	if err != nil {
		return usage(err)
	}
	if g, err = gateway.NewDialler(o, d); err != nil {
		return usage(err)
	}
	defer tellEnd(ctx, logger)()
	return g.Run(ctx)
}

// dialOptions are the settings that only a dialler has.
func dialOptions(c *config.Config) (gateway.DialOptions, error) {
	d := gateway.DialOptions{
		Owner: gateway.Owner(c.Owner), Transport: gateway.Transport(c.Transport),
		Inventory: gateway.InventoryOptions{Interval: c.InvInterval, TokenFile: c.InvToken, CAFile: c.InvCA},
		Egress: gateway.EgressOptions{
			Schemes: c.DialSchemes.Items(), Allow: c.DialAllow.Items(), Deny: c.DialDeny.Items(),
			CAFile: c.DeviceCA, CredentialsFile: c.DeviceCreds,
			ResolveTimeout: c.DialTimeout, ConnectTimeout: c.DialTimeout, TLSTimeout: c.DialTimeout,
		},
		Members: c.Members, Replication: c.Replication, LeaseTTL: c.LeaseTTL,
		DialTimeout: c.DialTimeout, BackoffMax: c.DialBackoff, PostTimeout: c.PostTimeout, PushWait: c.PushWait,
		Deadline: c.DrainDeadline,
	}
	switch {
	case c.InventoryIsURL():
		d.Inventory.URL = c.Inventory
	case c.Inventory != config.RedisDevices:
		d.Inventory.File = c.Inventory
	}
	var err error
	switch d.Owner {
	case gateway.Static:
		d.Index, err = c.Index()
	case gateway.Ring:
		d.Member = c.MemberName()
	}
	return d, err
}

// greetDialler says who this is and where its back end is. Its three lines have a
// fixed form that scripts may read.
func greetDialler(out io.Writer, c *config.Config, version string, backend net.Addr) {
	who := ""
	switch c.Owner {
	case config.OwnerRing:
		who = ", member: " + c.MemberName()
	case config.OwnerStatic:
		index, _ := c.Index() // it was checked
		who = fmt.Sprintf(", member: %d of %d", index, c.Members)
	}
	scheme := "http"
	if c.BackendTLSCert != "" {
		scheme = "https"
	}
	//nolint:errcheck // a dialler serves without a terminal too
	fmt.Fprintf(out, "downlink %s\nowner: %s, transport: %s%s\nback end: %s://%s\n", version, c.Owner, c.Transport, who, scheme, reachable(backend))
}
