package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"

	"downlink/internal/config"
	"downlink/internal/event"
	"downlink/internal/gateway"
)

// serve runs the gateway until SIGTERM or SIGINT has taken it out of service, and
// returns nil then.
func serve(loader *config.Loader, c *config.Config, version string, io console, logger *slog.Logger) error {
	heeded := io.signals
	if heeded == nil {
		heeded = takeSignals()
	}
	ctx, hurry, stop := heeded.until()
	defer stop()
	o := options(c, version, logger)
	settings := startLive(loader, c, logger.With("part", "config"))
	o.Limits, o.Reread, o.Hangup = settings.limits, settings.reread(), heeded.hangup
	o.Hurry, o.Governed = hurry, settings.governed.Load
	var g *gateway.Gateway
	o.Started = func() { greet(io.out, c, version, g.DeviceAddr(), g.BackendAddr()) }
	var err error
	if g, err = gateway.New(o); err != nil {
		return err
	}
	defer tellEnd(ctx, logger)()
	logger.Info("how long going out of service takes", "drain", gateway.DrainTerms(o))
	return g.Run(ctx)
}

// tellEnd logs that ctx has ended, at once: what follows may take its time, or
// be killed. The function that it returns gives that up, or waits for it.
func tellEnd(ctx context.Context, logger *slog.Logger) func() {
	told := make(chan struct{})
	untold := context.AfterFunc(ctx, func() {
		defer close(told)
		logger.Info("asked to stop; going out of service", "by", context.Cause(ctx))
	})
	return func() {
		if !untold() {
			<-told
		}
	}
}

// options are the settings as the gateway takes them.
func options(c *config.Config, version string, logger *slog.Logger) gateway.Options {
	return gateway.Options{
		Identity:          identity(c),
		Backend:           backendOptions(c),
		GovernorFile:      c.GovernorFile,
		ShedAfter:         c.ShedAfter,
		Origins:           c.Origins.Items(),
		Certificate:       gateway.CertFiles{Cert: c.TLSCert, Key: c.TLSKey, NoHTTP2: c.HTTP1},
		Entrance:          gateway.EntranceOptions{TrustedProxies: c.Proxies()},
		Listen:            c.Listen,
		BackendListen:     c.BackendListen,
		ReadHeaderTimeout: c.ReadHeaderTimeout,
		ShutdownTimeout:   c.ShutdownTimeout,
		Log: gateway.LogOptions{
			URL:           c.Log,
			Prefix:        c.Prefix,
			Shards:        c.Shards,
			Groups:        c.Groups,
			Window:        c.Window,
			Replicas:      c.Replicas(),
			ReadReplica:   c.ReadFrom == "replica",
			AllowEviction: c.AllowEvict,
			Evidence:      c.Failover == "evidence",
			TLS:           gateway.TLSFiles{CA: c.RedisCAFile, Cert: c.RedisCert, Key: c.RedisKey},
		},
		PublishTimeout:   c.PublishLimit,
		SweepInterval:    c.SweepEvery,
		Keepalive:        c.Keepalive,
		WriteTimeout:     c.WriteTimeout,
		Retry:            c.Retry,
		Driver:           c.Driver,
		MaxConnectionAge: c.MaxAge,
		Drain: gateway.DrainOptions{
			Wait: c.DrainWait, Quiet: c.DrainQuiet, Deadline: c.DrainDeadline,
			File: c.ShutdownFile, IsolationAfter: c.Isolation, RebalanceAfter: c.RebalanceTime,
		},
		Version: version,
		Logger:  logger,
	}
}

// greet says where the gateway serves and what to try, once it serves. Its first three lines
// have a fixed form that scripts may read.
func greet(out io.Writer, c *config.Config, version string, device, backend net.Addr) {
	deviceURL, backendURL := "http://"+reachable(device), "http://"+reachable(backend)
	if c.BackendTLSCert != "" {
		backendURL = "https://" + reachable(backend)
	}
	if c.TLSCert != "" {
		deviceURL = "https://" + reachable(device)
	}
	ask := "'" + deviceURL + "/events?device=demo'"
	switch {
	case c.Uses("mtls"):
		ask = "--cert device.pem --key device-key.pem '" + deviceURL + "/events'"
	case c.Uses("jwt"), c.Uses("tokens"):
		ask = `-H "Authorization: Bearer $TOKEN" '` + deviceURL + "/events'"
	case c.Uses("tickets"):
		ask = "'" + deviceURL + "/events?ticket='$TICKET"
	case c.Uses("proxy"):
		ask = "THE-PROXY/events"
	}
	token := ""
	if !c.BackendUses("none") {
		token = " --token-file FILE"
	}
	raw := ""
	if !strings.HasPrefix(c.Log, "file:") {
		raw = fmt.Sprintf(`The same, past this gateway:
  redis-cli %sXADD %s:%d '*' dev demo type hello payload '{"from":"redis-cli"}'
`, redisCLI(c), c.Prefix, event.Shard("demo", c.Shards))
	}
	//nolint:errcheck // a gateway serves without a terminal too
	fmt.Fprintf(out, `downlink %s
devices:  %[2]s
back end: %[3]s

A device, in a second terminal:
  curl -N %[6]s
An event for it, in a third:
  %[4]s publish --backend %[3]s%[7]s --device demo --type hello '{"from":"the centre"}'
%[5]sMetrics: %[3]s/metrics

`, version, deviceURL, backendURL, os.Args[0], raw, ask, token)
}

// redisCLI is the arguments by which redis-cli finds the log's server. The
// password isn't among them: redis-cli asks for it.
func redisCLI(c *config.Config) string {
	u, err := url.Parse(c.Log)
	if err != nil {
		return ""
	}
	args := ""
	if u.Hostname() != "" {
		args += "-h " + u.Hostname() + " "
	}
	if u.Port() != "" {
		args += "-p " + u.Port() + " "
	}
	if db := strings.Trim(u.Path, "/"); db != "" {
		args += "-n " + db + " "
	}
	if user := u.User.Username(); user != "" {
		args += "--user " + user + " "
	}
	if _, given := u.User.Password(); given {
		args += "--askpass "
	}
	if u.Scheme == "rediss" {
		args += "--tls "
	}
	if u.Scheme == "rediss" && c.RedisCAFile != "" {
		args += "--cacert " + c.RedisCAFile + " "
	}
	return args
}

// reachable is an address that a client on this machine can use.
func reachable(a net.Addr) string {
	host, port, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}
