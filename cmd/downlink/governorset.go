package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"downlink/internal/config"
	"downlink/internal/governor/api"
)

// governorSetCmd changes settings of a running governor.
type governorSetCmd struct {
	Settings []string      `arg:"" name:"setting" placeholder:"NAME=VALUE" help:"Settings and their values: on=false, step=0.2, period=15s, floor=0.05, signals.redis_memory.threshold=0.7, signals.redis_memory.levers=publish,admission. All of them count at once, or none."`
	JSON     bool          `name:"json" help:"Print the governor's answer as it is."`
	Timeout  time.Duration `default:"10s" help:"How long the request may take."`

	backendFlags `embed:""`
}

// Run sends the change, and prints what was really applied.
func (c *governorSetCmd) Run(loader *config.Loader, io console) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	patch, err := patchOf(c.Settings)
	if err != nil {
		return usage(err)
	}
	answer, v, err := c.governor(ctx, loader, c.Timeout, patch)
	if err != nil {
		return err
	}
	if c.JSON {
		_, err := io.out.Write(answer)
		return err
	}
	return tellChanged(io.out, v)
}

func tellChanged(w io.Writer, v api.View) error {
	var b strings.Builder
	for _, c := range v.Changed {
		fmt.Fprintln(&b, changeOf(c))
	}
	if len(v.Changed) == 0 {
		b.WriteString("Nothing has changed: all of it counted already.\n")
	} else {
		b.WriteString("It counts at this governor alone, until a restart or until its file says otherwise of them.\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// patchOf is the body of a change. Which names and values there are is the
// governor's to say; here only their form.
func patchOf(pairs []string) ([]byte, error) {
	tree := make(map[string]any)
	for _, pair := range pairs {
		name, value, found := strings.Cut(pair, "=")
		path := strings.Split(name, ".")
		inSignal := path[0] == "signals"
		if !found || name == "" || inSignal != (len(path) == 3) || !inSignal && len(path) != 1 {
			return nil, fmt.Errorf("%s isn't NAME=VALUE with a setting's name; downlink governor show --settings lists them in this form", config.Mask(pair))
		}
		at := tree
		for _, step := range path[:len(path)-1] {
			inner, _ := at[step].(map[string]any)
			if inner == nil {
				inner = make(map[string]any)
				at[step] = inner
			}
			at = inner
		}
		last := path[len(path)-1]
		if _, twice := at[last]; twice {
			return nil, errors.New(name + " stands twice")
		}
		at[last] = asJSON(last, value)
	}
	return json.Marshal(tree)
}

// asJSON is a value as the governor takes it: lists have commas, and whatever isn't
// JSON by itself is a text, as durations are.
func asJSON(name, value string) any {
	if name == "levers" && !strings.HasPrefix(value, "[") {
		return strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' })
	}
	if json.Valid([]byte(value)) {
		return json.RawMessage(value)
	}
	return value
}

func keys(m map[string]any) iter.Seq[string] { return maps.Keys(m) }

// byDepth orders the governor's own settings before those of its signals.
func byDepth(a, b string) int {
	return cmp.Or(cmp.Compare(strings.Count(a, "."), strings.Count(b, ".")), cmp.Compare(a, b))
}
