package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"downlink/internal/config"
	"downlink/internal/event"
	"downlink/internal/explain"
)

// explainCmd asks gateways about a device.
type explainCmd struct {
	Device      string   `arg:"" placeholder:"DEVICE" help:"Device to explain."`
	Backend     []string `default:"http://127.0.0.1:9090" env:"DOWNLINK_BACKEND" placeholder:"URL" help:"Back-end port of a gateway; may be repeated. Of a host name with several addresses each is asked."`
	callerFlags `embed:""`
	Timeout     time.Duration `default:"5s" help:"How long a gateway may take to answer."`
	JSON        bool          `name:"json" help:"Print what the gateways say as one JSON object."`
}

// Validate is called by kong.
func (c *explainCmd) Validate() error {
	if err := event.ValidateDevice(c.Device); err != nil {
		return err
	}
	if c.Timeout <= 0 {
		return errors.New("--timeout must be more than 0")
	}
	return nil
}

// Run asks all gateways at once, and prints one screen.
func (c *explainCmd) Run(loader *config.Loader, io console) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	asked, err := findBackends(ctx, c.Backend)
	if err != nil {
		return err
	}
	clients := make([]*http.Client, len(asked))
	for i, b := range asked {
		if clients[i], err = c.client(loader, c.Timeout, b.dial); err != nil {
			return usage(err)
		}
		defer clients[i].CloseIdleConnections()
	}
	answers := make([]heard, len(asked))
	var all sync.WaitGroup
	for i, b := range asked {
		all.Go(func() {
			answers[i] = heard{Backend: b.name}
			answers[i].Report, answers[i].err = b.ask(ctx, clients[i], c.Device)
		})
	}
	all.Wait()
	return c.tell(io.out, findings{Device: c.Device, Gateways: once(answers)})
}

// A heard answer is what became of asking one gateway.
type heard struct {
	Backend string          `json:"backend"`
	Report  *explain.Report `json:"report,omitempty"`
	Error   string          `json:"error,omitempty"` // why there is no report

	err error
}

// said reports whether a gateway has answered, if only that it can't tell.
func (h heard) said() bool {
	_, never := errors.AsType[*coded](h.err)
	_, notNow := errors.AsType[*temporary](h.err)
	return h.Report != nil || never || notNow
}

// once leaves out gateways that answer under several addresses.
func once(answers []heard) []heard {
	seen := map[string]bool{}
	kept := answers[:0:0]
	for _, a := range answers {
		if a.err != nil {
			a.Error, _, _ = strings.Cut(a.err.Error(), "\n") // the hint isn't for here
		} else if g := a.Report.Gateway.Instance; g != "" {
			if seen[g] {
				continue
			}
			seen[g] = true
		}
		kept = append(kept, a)
	}
	return kept
}

// findings are what all gateways say.
type findings struct {
	Device    string  `json:"device"`
	Connected bool    `json:"connected"`
	Gateways  []heard `json:"gateways"`
}

// tell prints the findings. Its error says so if the device isn't connected, or
// if nobody can tell.
func (c *explainCmd) tell(out io.Writer, f findings) error {
	var silent []heard
	for _, h := range f.Gateways {
		switch {
		case h.Report == nil:
			silent = append(silent, h)
		case len(h.Report.Sessions) > 0:
			f.Connected = true
		}
	}
	var err error
	if c.JSON {
		err = json.NewEncoder(out).Encode(f)
	} else {
		_, err = io.WriteString(out, newPage(f).text())
	}
	switch {
	case err != nil:
		return err
	case f.Connected:
		return nil
	case len(silent) == 0:
		return &coded{exitMissed, fmt.Errorf("%s is not connected", visible(c.Device))}
	case len(silent) == len(f.Gateways) && allRefused(silent):
		return silent[0].err
	default:
		return fmt.Errorf("nobody knows whether %s is connected: %d of %d gateways gave no answer", visible(c.Device), len(silent), len(f.Gateways))
	}
}

func allRefused(silent []heard) bool {
	for _, h := range silent {
		if c, ok := errors.AsType[*coded](h.err); !ok || c.code != exitRefused {
			return false
		}
	}
	return true
}

// ask asks one gateway. Its error is short and names no address.
func (b askable) ask(ctx context.Context, client *http.Client, device string) (*explain.Report, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url+strings.Replace(explain.Path, "{device}", segment(device), 1), nil)
	if err != nil {
		return nil, errors.New("--backend isn't an address of a back end")
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, silence(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, silence(err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, refusalOf(resp.StatusCode, body)
	}
	r := new(explain.Report)
	if json.Unmarshal(body, r) != nil || r.Device != device {
		return nil, errors.New("the answer is not a gateway's; is this its back-end port?")
	}
	return r, nil
}
