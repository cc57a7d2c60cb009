package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"downlink/internal/config"
	"downlink/internal/limits"
)

// limitsCmd shows a running gateway's limits and changes them. Each gateway has
// limits of its own.
type limitsCmd struct {
	Name    string        `arg:"" optional:"" placeholder:"NAME" help:"Only limits whose name holds this, and all that is known of them."`
	Set     []string      `placeholder:"NAME=VALUE" sep:"none" help:"Change a limit at once, until a restart or until the configuration's own value for it changes; may be repeated: all are changed, or none. A size may be written as 64MiB."`
	Unset   []string      `placeholder:"NAME" sep:"none" help:"Take an earlier --set back; may be repeated."`
	All     bool          `help:"With those that are fixed in this version."`
	JSON    bool          `name:"json" help:"Print the gateway's answer as it is."`
	Timeout time.Duration `default:"10s" help:"How long the request may take."`

	backendFlags `embed:""`
}

// Run asks, and prints the answer.
func (c *limitsCmd) Run(loader *config.Loader, io console) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	patch, err := c.patch()
	if err != nil {
		return usage(err)
	}
	answer, err := c.ask(ctx, loader, patch)
	if err != nil {
		return err
	}
	if c.JSON {
		_, err := io.out.Write(answer)
		return err
	}
	var list limits.List
	if err := json.Unmarshal(answer, &list); err != nil || len(list.Limits) == 0 && patch == nil {
		return errors.New("the answer isn't a list of limits; is --backend the back-end port of a gateway?")
	}
	return c.show(io.out, list)
}

// patch is the body of the change that was asked for; nil if none was.
func (c *limitsCmd) patch() ([]byte, error) {
	if len(c.Set)+len(c.Unset) == 0 {
		return nil, nil
	}
	members := make(map[string]any)
	for _, pair := range c.Set {
		name, value, found := strings.Cut(pair, "=")
		if !found || name == "" || value == "" {
			return nil, fmt.Errorf("--set %s isn't NAME=VALUE", pair)
		}
		members[name] = value
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			members[name] = n
		}
	}
	for _, name := range c.Unset {
		members[name] = nil
	}
	if len(members) < len(c.Set)+len(c.Unset) {
		return nil, errors.New("a limit stands twice in --set and --unset")
	}
	return json.Marshal(members)
}

// ask sends a GET, or the PATCH if there is one.
func (c *limitsCmd) ask(ctx context.Context, loader *config.Loader, patch []byte) ([]byte, error) {
	method := http.MethodGet
	if patch != nil {
		method = http.MethodPatch
	}
	status, answer, err := c.once(ctx, loader, c.Timeout, method, limits.Path, patch)
	if err == nil && status != http.StatusOK {
		err = refusalOf(status, answer)
	}
	return answer, err
}

// show prints a table, and of limits that were asked for by name all there is.
func (c *limitsCmd) show(out io.Writer, list limits.List) error {
	var chosen []limits.State
	left := 0
	for _, s := range list.Limits {
		switch {
		case !strings.Contains(s.Name, strings.ReplaceAll(c.Name, "-", "_")):
		case s.Change == limits.Fixed && c.Name == "" && !c.All:
			left++
		default:
			chosen = append(chosen, s)
		}
	}
	if len(chosen) == 0 {
		return usage(fmt.Errorf("no limit's name holds %q; downlink limits lists them", c.Name))
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "LIMIT\tCOUNTS\tUSED\tCONFIGURED\tFROM\tCHANGED") //nolint:errcheck // Flush tells
	for _, s := range chosen {
		used := "" // where it isn't known
		if s.Used != nil {
			used = amount(s, int64(*s.Used))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", s.Name, worded(s, s.Effective), used, worded(s, s.Configured), from(s), changed(s.Change)) //nolint:errcheck // Flush tells
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if left > 0 {
		fmt.Fprintf(out, "and %d that are fixed in this version; --all lists them\n", left) //nolint:errcheck // the next write tells
	}
	return c.explain(out, chosen, list.File)
}

// explain says what a table has no room for.
func (c *limitsCmd) explain(out io.Writer, chosen []limits.State, file *limits.File) error {
	var b strings.Builder
	for _, s := range chosen {
		if c.Name != "" {
			fmt.Fprintf(&b, "\n%s (%s)\n  %s\n  at it:   %s\n  default: %s; allowed: %s\n  change:  %s\n", s.Name, s.Unit, s.Help, s.Reached, worded(s, s.Default), s.Allowed, s.How)
			if s.Price != "" {
				fmt.Fprintf(&b, "  price:   %s\n", s.Price)
			}
		}
		if s.Why != "" {
			fmt.Fprintf(&b, "\n%s: %s\n", s.Name, s.Why)
		}
	}
	if file != nil && file.Error != "" {
		fmt.Fprintf(&b, "\n%s can't be used as it stands, so what was read before counts:\n  %s\n", file.Path, strings.ReplaceAll(file.Error, "\n", "\n  "))
	}
	if file != nil && len(file.Restart) > 0 {
		fmt.Fprintf(&b, "\nChanged in %s and waiting for a restart: %s\n", file.Path, strings.Join(file.Restart, ", "))
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// worded is a limit's value, in words where it is none.
func worded(s limits.State, v int64) string {
	if v == 0 && s.Zero != "" {
		return s.Zero
	}
	return amount(s, v)
}

func amount(s limits.State, v int64) string {
	if s.Unit == "bytes" {
		return config.Bytes(v).String()
	}
	return strconv.FormatInt(v, 10) + " " + s.Unit
}

func from(s limits.State) string {
	if s.Where != "" && s.Origin != limits.FromCode {
		return s.Where
	}
	return string(s.Origin)
}

func changed(c limits.Change) string {
	switch c {
	case limits.Running:
		return "while running"
	case limits.Restart:
		return "by a restart"
	case limits.System:
		return "by the system"
	default:
		return "never"
	}
}
