package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"downlink/internal/config"
	"downlink/internal/control"
	"downlink/internal/event"
	"downlink/internal/eventlog"
)

// orderFlags are what orders about a device have in common.
type orderFlags struct {
	Device       string `arg:"" placeholder:"DEVICE" help:"Device that is meant."`
	Reason       string `placeholder:"TEXT" help:"Why, for other people: it stands in the gateway's log and beside the device on the list."`
	backendFlags `embed:""`
	Timeout      time.Duration `default:"30s" help:"How long one request may take."`
	Retries      int           `default:"3" help:"How often a request is repeated that the gateway could not answer. That is harmless."`
}

// Validate is called by kong.
func (f *orderFlags) Validate() error {
	if f.Retries < 0 {
		return errors.New("--retries must be 0 or more")
	}
	if err := event.ValidateDevice(f.Device); err != nil {
		return err
	}
	return event.ValidateReason(f.Reason)
}

// disconnectCmd ends a device's streams.
type disconnectCmd struct {
	orderFlags
	Retry time.Duration `placeholder:"D" help:"When the device is told to come back, jittered by half; 0: as after any other end."`
}

// Validate is called by kong.
func (c *disconnectCmd) Validate() error {
	if c.Retry < 0 || c.Retry > eventlog.MaxRetry {
		return errors.New("--retry must be 0 to 1h")
	}
	return c.orderFlags.Validate()
}

// Run gives the order and prints the gateway's answer.
func (c *disconnectCmd) Run(loader *config.Loader, io console) error {
	return c.give(loader, io, http.MethodPost, control.DisconnectPath, map[string]any{"reason": c.Reason, "retry_ms": c.Retry.Milliseconds()})
}

// revokeCmd shuts a device out.
type revokeCmd struct{ orderFlags }

// Run gives the order and prints the gateway's answer.
func (c *revokeCmd) Run(loader *config.Loader, io console) error {
	return c.give(loader, io, http.MethodPost, control.RevokePath, map[string]any{"reason": c.Reason})
}

// restoreCmd lets a device in again.
type restoreCmd struct{ orderFlags }

// Run gives the order and prints the gateway's answer.
func (c *restoreCmd) Run(loader *config.Loader, io console) error {
	return c.give(loader, io, http.MethodDelete, control.RevokePath, map[string]any{"reason": c.Reason})
}

// give sends an order to its path, in which {device} stands for the device.
func (f *orderFlags) give(loader *config.Loader, io console, method, path string, details map[string]any) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	s, err := newSender(f.Backend, f.Timeout, f.Retries, io.err)
	if err != nil {
		return usage(err)
	}
	if s.http, err = f.client(loader, f.Timeout, ""); err != nil {
		return usage(err)
	}
	defer s.http.CloseIdleConnections()
	body, err := encodeJSON(details)
	if err != nil {
		return usage(err)
	}
	header := http.Header{"Content-Type": {"application/json"}}
	answer, err := s.send(ctx, method, strings.Replace(path, "{device}", segment(f.Device), 1), header, body, acceptable)
	if err != nil {
		return err
	}
	_, err = io.out.Write(answer)
	return err
}
