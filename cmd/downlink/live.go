package main

import (
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"downlink/internal/config"
	"downlink/internal/limits"
)

// live is the configuration of a running gateway: its file is read again and
// again, and what it says of limits, and whether there is a governor, counts at once.
// Used by one goroutine at a time.
type live struct {
	loader *config.Loader // of the values that count or will after a restart
	now    *config.Config
	start  *config.Config // what the gateway was started with
	limits *limits.Registry
	logger *slog.Logger

	governed atomic.Bool // for everybody

	file    limits.File
	restart []string // said already
}

// startLive makes the limits of a checked configuration.
func startLive(loader *config.Loader, c *config.Config, logger *slog.Logger) *live {
	l := &live{
		loader: loader, now: c, start: c, logger: logger,
		limits: limits.New(config.LimitsOf(loader.Command()), loader.Limits(c)...),
		file:   limits.File{Path: loader.Path(), Read: time.Now()},
	}
	l.limits.ReadFile(l.file)
	l.governed.Store(c.Governor != "off")
	return l
}

// reread takes over what has changed in the file, or, with an error, nothing of
// it. It is a source of package reload; nil if there is no file.
func (l *live) reread() func() (changed bool, err error) {
	if l.loader.Path() == "" {
		return nil
	}
	return l.load
}

func (l *live) load() (changed bool, err error) {
	loader, now, err := l.loader.Reread(l.now)
	if err != nil {
		l.file.Error = err.Error()
		l.limits.ReadFile(l.file)
		return false, err
	}
	changes := l.limits.Load(loader.Limits(now))
	for _, c := range changes {
		l.logger.Info("a limit was changed", "limit", c.Name, "before", c.Before, "after", c.After, "by", loader.Path())
	}
	changed = len(changes) > 0 || *now != *l.now
	l.loader, l.now = loader, now
	l.governed.Store(now.Governor != "off")
	if changed {
		l.file.Read = time.Now()
	}
	l.file.Error, l.file.Restart = "", config.Differences(l.start, now)
	l.limits.ReadFile(l.file)
	l.warn()
	return changed, nil
}

// warn names, once, the settings that have changed in vain.
func (l *live) warn() {
	names := slices.Clone(l.file.Restart)
	for _, s := range l.limits.States() {
		if s.AfterRestart != nil {
			names = append(names, s.Name)
		}
	}
	if len(names) > 0 && !slices.Equal(names, l.restart) {
		l.logger.Warn("settings have changed in the file that count only after a restart", "settings", strings.Join(names, " "))
	}
	l.restart = names
}
