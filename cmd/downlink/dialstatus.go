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
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"downlink/internal/config"
	"downlink/internal/gateway"
)

// dialStatusCmd asks a dialler who owns what.
type dialStatusCmd struct {
	All     bool          `help:"Every shard, not only those that are on their way or have devices without a connection."`
	JSON    bool          `name:"json" help:"Print the dialler's answer as it is."`
	Timeout time.Duration `default:"10s" help:"How long the request may take."`

	backendFlags `embed:""`
}

// Run asks, and prints the answer.
func (c *dialStatusCmd) Run(loader *config.Loader, io console) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	answer, err := c.ask(ctx, loader)
	if err != nil {
		return err
	}
	if c.JSON {
		_, err := io.out.Write(answer)
		return err
	}
	var s gateway.DialStatus
	if err := json.Unmarshal(answer, &s); err != nil || s.Owner == "" {
		return errors.New("the answer isn't that of a dialler; is --backend the back-end port of one?")
	}
	return c.show(io.out, s)
}

func (c *dialStatusCmd) ask(ctx context.Context, loader *config.Loader) ([]byte, error) {
	status, answer, err := c.once(ctx, loader, c.Timeout, http.MethodGet, gateway.DialPath, nil)
	switch {
	case err != nil:
		return nil, err
	case status == http.StatusNotFound:
		return nil, refused(errors.New("this back end is a gateway's (downlink serve), which dials nobody; --backend has to be the port of a dialler"))
	case status != http.StatusOK:
		return nil, refusalOf(status, answer)
	}
	return answer, nil
}

// show is for people: first whether anything is wrong, then who has what.
func (c *dialStatusCmd) show(w io.Writer, s gateway.DialStatus) error {
	var b strings.Builder
	fmt.Fprintf(&b, "owner %s, transport %s", s.Owner, s.Transport)
	if s.Member != "" {
		fmt.Fprintf(&b, ", member %s", s.Member)
	}
	switch {
	case s.Leaving:
		b.WriteString(": going out of service\n")
	case !s.Ready:
		fmt.Fprintf(&b, ": not ready: %s\n", s.Why)
	default:
		b.WriteString(": ready\n")
	}
	fmt.Fprintf(&b, "inventory: %d devices of %s\n", s.Inventory.Devices, s.Inventory.Source)
	switch {
	case s.Inventory.Error == "":
	case s.Inventory.Read.IsZero() && s.Inventory.Devices == 0:
		fmt.Fprintf(&b, "  it couldn't be read yet: %s\n", s.Inventory.Error)
	default:
		fmt.Fprintf(&b, "  its last reading failed, and an earlier one counts: %s\n", s.Inventory.Error)
	}
	if s.Owner != gateway.Nobody {
		fmt.Fprintf(&b, "devices here: %d, of which %d connected, %d dialling, %d unreachable\n", s.Devices.Devices, s.Devices.Connected, s.Devices.Dialling, s.Devices.Unreachable)
	}
	if s.Owner == gateway.Ring {
		fmt.Fprintf(&b, "moving: %d of %d shards aren't with the member that the ring proposes\n", s.Moving, len(s.Shards))
	}
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, m := range s.Members {
		leaving := ""
		if m.Leaving {
			leaving = "leaving"
		}
		fmt.Fprintf(t, "member %s\t%d shards\t%s\n", m.Name, m.Shards, leaving) //nolint:errcheck // Flush tells
	}
	c.shards(t, s)
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// shards are those that are worth a look, or all.
func (c *dialStatusCmd) shards(t io.Writer, s gateway.DialStatus) {
	for _, shard := range s.Shards {
		here := ""
		if d := shard.Devices; d != nil {
			here = fmt.Sprintf("%d devices here, %d connected", d.Devices, d.Connected)
		}
		settled := shard.Proposed == shard.Owner && shard.Held == shard.Live && !shard.Letting
		if d := shard.Devices; !c.All && settled && (d == nil || d.Connected == d.Devices) {
			continue
		}
		if s.Owner != gateway.Ring { // arithmetic owns: there is nobody to name
			fmt.Fprintf(t, "shard %d\t%s\n", shard.Shard, here) //nolint:errcheck // Flush tells
			continue
		}
		state := ""
		switch {
		case shard.Letting:
			state = "being let go of"
		case shard.Held && !shard.Live:
			state = "held, and its lease has lapsed: connections stay, events wait"
		case shard.Proposed != shard.Owner:
			state = "on its way"
		}
		fmt.Fprintf(t, "shard %d\towner %s\tproposed %s\tgeneration %d\t%s\t%s\n", shard.Shard, orNobody(shard.Owner), orNobody(shard.Proposed), shard.Generation, here, state) //nolint:errcheck // Flush tells
	}
}

func orNobody(name string) string {
	if name == "" {
		return "nobody"
	}
	return name
}
