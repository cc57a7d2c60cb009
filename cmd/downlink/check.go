package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"text/tabwriter"
	"time"

	"downlink/internal/config"
	"downlink/internal/gateway"
	"downlink/internal/limits"
	"downlink/internal/metrics"
)

// checkCmd validates the configuration that serve, dial or governor would run with.
type checkCmd struct {
	config.Config `embed:""`

	For     string `name:"for" enum:"serve,dial,governor" default:"serve" help:"The command whose settings are checked: serve, dial or governor."`
	Connect bool   `name:"connect" help:"Look at the Redis that holds the log, too, and say what is wrong with it and what to do. Nothing is written there."`
	JSON    bool   `name:"json" help:"With --connect: print what was found as JSON."`
}

// Run prints every effective value and its origin, or every problem.
func (c *checkCmd) Run(loader *config.Loader, io console) error {
	loader.As(c.For)
	if err := loader.Check(&c.Config); err != nil {
		return usage(fmt.Errorf("%w\nNothing was started", err))
	}
	files, err := c.files(loader)
	if err != nil {
		return usage(fmt.Errorf("%w\nNothing was started", err))
	}
	if c.Connect {
		return c.connect(io)
	}
	t := tabwriter.NewWriter(io.out, 0, 0, 2, ' ', 0)
	for _, s := range loader.Settings(&c.Config) {
		value := s.Value
		if value == "" {
			value = `""`
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", s.Key.Name, value, s.Origin) //nolint:errcheck // Flush tells
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if c.For == config.Serve {
		o := options(&c.Config, "", slog.New(slog.DiscardHandler))
		o.Limits = limits.New(config.LimitsOf(config.Serve), loader.Limits(&c.Config)...)
		fmt.Fprintln(io.err, "note:", gateway.DrainTerms(o)) //nolint:errcheck // nowhere else to complain
	}
	for _, w := range append(loader.Warnings(&c.Config), files...) {
		fmt.Fprintln(io.err, "warning:", w) //nolint:errcheck // nowhere else to complain
	}
	return nil
}

// files reads every file that the settings name.
func (c *checkCmd) files(loader *config.Loader) (warnings []string, err error) {
	o := options(&c.Config, "", slog.New(slog.DiscardHandler))
	if c.For == config.Serve {
		return gateway.CheckFiles(o)
	}
	o.Limits = limits.New(config.LimitsOf(c.For), loader.Limits(&c.Config)...)
	if c.For == config.Governor {
		o := governorOptions(&c.Config, "")
		o.Logger = slog.New(slog.DiscardHandler)
		return gateway.CheckSidecarFiles(o)
	}
	d, err := dialOptions(&c.Config)
	if err != nil {
		return nil, err
	}
	return gateway.CheckDialFiles(o, d)
}

// connectLimit bounds check --connect.
const connectLimit = 30 * time.Second

// A diagnosis is what check --connect prints.
type diagnosis struct {
	Servers  []string          `json:"servers"` // that were looked at
	Findings []gateway.Finding `json:"findings"`
}

// connect looks at the log's servers.
func (c *checkCmd) connect(io console) error {
	ctx, cancel := context.WithTimeout(context.Background(), connectLimit)
	defer cancel()
	servers, found, err := gateway.Diagnose(ctx, options(&c.Config, "", slog.New(slog.DiscardHandler)))
	if err != nil {
		return usage(err)
	}
	d := diagnosis{append([]string{}, servers...), append([]gateway.Finding{}, found...)}
	if c.JSON {
		err = json.NewEncoder(io.out).Encode(d)
	} else {
		err = d.print(io.out)
	}
	if err != nil {
		return err
	}
	problems := 0
	for _, f := range found {
		if f.Code == gateway.Unreachable {
			return fmt.Errorf("%s: %s; %s", f.Server, f.What, f.Do)
		}
		if f.Problem {
			problems++
		}
	}
	if problems > 0 {
		return &coded{exitMissed, fmt.Errorf("%d of the findings are problems: a gateway would not start, or not keep its promise", problems)}
	}
	return nil
}

// print is for people.
func (d diagnosis) print(w io.Writer) error {
	var b strings.Builder
	for _, s := range d.Servers {
		fmt.Fprintln(&b, "looked at", s)
	}
	for _, f := range d.Findings {
		kind := "warning"
		if f.Problem {
			kind = "problem"
		}
		fmt.Fprintf(&b, "%s: %s: %s: %s\n  to do: %s\n", kind, f.Server, f.Code, f.What, f.Do)
		if f.Detail != "" {
			fmt.Fprintf(&b, "  details: %s\n", f.Detail)
		}
	}
	switch {
	case len(d.Findings) > 0:
	case len(d.Servers) == 0:
		b.WriteString("the log is embedded: there is no server to look at\n")
	default:
		b.WriteString("nothing is wrong\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// serveCmd runs the gateway; serve does it.
type serveCmd struct {
	config.Config `embed:""`
}

// Run checks the configuration and serves until a signal.
func (c *serveCmd) Run(loader *config.Loader, io console) error {
	logger, err := checked(loader, &c.Config, io)
	if err != nil {
		return err
	}
	if _, err := gateway.CheckFiles(options(&c.Config, "", logger)); err != nil {
		return usage(err)
	}
	return serve(loader, &c.Config, metrics.ReadBuild(version).Version, io, logger)
}

// checked checks a configuration before anything runs with it, and says in the log what
// in it is likely to be regretted.
func checked(loader *config.Loader, c *config.Config, io console) (*slog.Logger, error) {
	if err := loader.Check(c); err != nil {
		return nil, usage(err)
	}
	logger := newLogger(io.err, c.LogLevel, c.LogFormat)
	for _, w := range loader.Warnings(c) {
		logger.Warn("a setting is likely to be regretted", "why", w)
	}
	return logger, nil
}

// newLogger writes lines of a checked level and format.
func newLogger(w io.Writer, level, format string) *slog.Logger {
	var least slog.Level
	if err := least.UnmarshalText([]byte(level)); err != nil {
		least = slog.LevelInfo // Check allows only levels that slog knows
	}
	options := &slog.HandlerOptions{Level: least}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
