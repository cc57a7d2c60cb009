package main

import (
	"fmt"
	"io"
	"log/slog"
	"text/tabwriter"

	"downlink/internal/config"
	"downlink/internal/gateway"
	"downlink/internal/metrics"
)

// checkCmd validates the configuration that serve would run with.
type checkCmd struct {
	config.Config `embed:""`
}

// Run prints every effective value and its origin, or every problem.
func (c *checkCmd) Run(loader *config.Loader, io console) error {
	if err := loader.Check(&c.Config); err != nil {
		return usage(fmt.Errorf("%w\nNothing was started", err))
	}
	files, err := gateway.CheckFiles(options(&c.Config, "", slog.New(slog.DiscardHandler)))
	if err != nil {
		return usage(fmt.Errorf("%w\nNothing was started", err))
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
	for _, w := range append(loader.Warnings(&c.Config), files...) {
		fmt.Fprintln(io.err, "warning:", w) //nolint:errcheck // nowhere else to complain
	}
	return nil
}

// serveCmd runs the gateway; serve does it.
type serveCmd struct {
	config.Config `embed:""`
}

// Run checks the configuration and serves until a signal.
func (c *serveCmd) Run(loader *config.Loader, io console) error {
	if err := loader.Check(&c.Config); err != nil {
		return usage(err)
	}
	logger := newLogger(io.err, c.LogLevel, c.LogFormat)
	for _, w := range loader.Warnings(&c.Config) {
		logger.Warn("a setting is likely to be regretted", "why", w)
	}
	if _, err := gateway.CheckFiles(options(&c.Config, "", logger)); err != nil {
		return usage(err)
	}
	return serve(loader, &c.Config, metrics.ReadBuild(version).Version, io.out, logger)
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
