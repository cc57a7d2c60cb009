package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"downlink/internal/config"
)

// maxInput bounds what is read from standard input for one event or line; it
// is the largest max_event_bytes there can be, escaped in the worst way.
const maxInput = 6 * (64 << 20)

// publishCmd sends one event, or a batch.
type publishCmd struct {
	Device  []string      `placeholder:"ID" sep:"none" help:"Device to send to; may be repeated. * is every device, @NAME a group."`
	Type    string        `placeholder:"T" help:"Type of the event."`
	Key     string        `placeholder:"K" help:"Conflation key: of events with one key for one target a device that is behind is sent only the newest."`
	Idem    string        `placeholder:"K" help:"Idempotency key, to make a second run harmless. Without it each run has a key of its own."`
	NDJSON  bool          `name:"ndjson" help:"Read events from standard input, one JSON object a line, and print one answer a line."`
	Timeout time.Duration `default:"30s" help:"How long one request may take."`
	Retries int           `default:"3" help:"How often a request is repeated that the gateway could not answer. The idempotency key makes that safe."`

	backendFlags `embed:""`

	Data string `arg:"" optional:"" placeholder:"DATA" help:"Content, sent as it is; - reads it from standard input, without one line end at its end."`
}

// Validate is called by kong.
func (c *publishCmd) Validate() error {
	switch {
	case c.NDJSON && (len(c.Device) > 0 || c.Type != "" || c.Key != "" || c.Idem != "" || (c.Data != "" && c.Data != "-")):
		return errors.New("with --ndjson everything stands in the lines: leave out device, type, key, idem and DATA")
	case !c.NDJSON && len(c.Device) == 0:
		return errors.New("--device is missing; or use --ndjson to read events from standard input")
	case !c.NDJSON && c.Type == "":
		return errors.New("--type is missing")
	case c.Retries < 0:
		return errors.New("--retries must be 0 or more")
	}
	return nil
}

// Run sends and prints the gateway's answers.
func (c *publishCmd) Run(loader *config.Loader, io console) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	s, err := newSender(c.Backend, c.Timeout, c.Retries, io.err)
	if err != nil {
		return usage(err)
	}
	if s.http, err = c.client(loader, c.Timeout, ""); err != nil {
		return usage(err)
	}
	defer s.http.CloseIdleConnections()
	if c.NDJSON {
		return sendLines(ctx, s, io)
	}
	return c.sendOne(ctx, s, io)
}

func (c *publishCmd) sendOne(ctx context.Context, s *sender, console console) error {
	text := c.Data
	if text == "-" {
		data, err := io.ReadAll(io.LimitReader(console.in, maxInput+1))
		if err != nil {
			return fmt.Errorf("standard input can't be read: %w", err)
		}
		if len(data) > maxInput {
			return usage(fmt.Errorf("standard input has more than %d bytes, which no gateway takes as one event", maxInput))
		}
		text = string(bytes.TrimSuffix(bytes.TrimSuffix(data, []byte("\n")), []byte("\r")))
	}
	body := map[string]any{"type": c.Type, "text": text}
	if len(c.Device) == 1 {
		body["device"] = c.Device[0]
	} else {
		body["devices"] = c.Device
	}
	if c.Key != "" {
		body["key"] = c.Key
	}
	encoded, err := encodeJSON(body)
	if err != nil {
		return usage(err)
	}
	idem := c.Idem
	if idem == "" {
		idem = s.run
	}
	answer, err := s.publish(ctx, "application/json", idem, encoded, acceptable)
	if err != nil {
		return err
	}
	_, err = console.out.Write(answer)
	return err
}

// acceptable takes the answer to one event.
func acceptable(status int, body []byte) error {
	if status != http.StatusOK {
		return refusalOf(status, body)
	}
	return nil
}

// encodeJSON leaves <, > and & as they are: nobody embeds this in HTML.
func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}
