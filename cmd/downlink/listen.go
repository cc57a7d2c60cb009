package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
	"unicode"

	"downlink/client"
)

// listenCmd is a device on the terminal.
type listenCmd struct {
	Device     string        `placeholder:"ID" help:"Device to be, where the gateway runs without authentication."`
	TokenFile  string        `placeholder:"FILE" help:"File with the token that says which device to be, where the gateway checks tokens."`
	CertFile   string        `placeholder:"FILE" help:"Client certificate that says which device to be, with those between it and its authority, where the gateway asks for one."`
	KeyFile    string        `placeholder:"FILE" help:"Key of that certificate."`
	CAFile     string        `name:"ca-file" placeholder:"FILE" help:"Certificates that vouch for an https gateway, instead of the system's."`
	URL        string        `name:"url" default:"http://127.0.0.1:8080" env:"DOWNLINK_URL" help:"The gateway's devices' port."`
	CursorFile string        `placeholder:"FILE" help:"Keep the position here, so that the next run continues where this one ended."`
	Earliest   bool          `help:"Without a position, ask for all that the gateway's window still holds."`
	Poll       bool          `help:"Ask by long polls instead of keeping a stream open."`
	JSON       bool          `name:"json" help:"Print each event as one JSON object, exactly as it came."`
	Silence    time.Duration `default:"1m" help:"Reconnect when the gateway sends nothing for so long: three of its keep-alives."`
}

// Validate is called by kong.
func (c *listenCmd) Validate() error {
	given := 0
	for _, way := range []string{c.Device, c.TokenFile, c.CertFile} {
		if way != "" {
			given++
		}
	}
	switch {
	case given != 1:
		return errors.New("say in one way which device to be: --device ID where the gateway runs without authentication, --token-file FILE where it checks tokens, --cert-file FILE where it checks certificates")
	case (c.CertFile == "") != (c.KeyFile == ""):
		return errors.New("--cert-file and --key-file belong together")
	}
	return nil
}

// Run prints events until a signal. An event is committed after it was printed.
func (c *listenCmd) Run(io console) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	device := client.Client{URL: c.URL, Device: c.Device, Earliest: c.Earliest, Poll: c.Poll, Silence: c.Silence}
	var err error
	if device.Token, err = c.token(); err != nil {
		return usage(err)
	}
	if device.HTTPClient, err = c.http(); err != nil {
		return usage(err)
	}
	if c.CursorFile != "" {
		device.Cursors = &client.FileStore{Path: c.CursorFile}
	}
	err = device.Run(ctx, client.Handler{
		Event: func(_ context.Context, e client.Event) error {
			return c.print(io, listened{ID: e.ID, Type: e.Type, Data: e.Data})
		},
		Resync: func(_ context.Context, r client.Resync) error {
			// The device contract keeps this type for the gateway, so no event looks like it.
			return c.print(io, listened{ID: r.ID, Type: "resync", Data: r.Reason})
		},
		Status: func(s client.Status) { fmt.Fprintln(io.err, describe(s)) }, //nolint:errcheck // nowhere else to complain
	})
	switch {
	case ctx.Err() != nil && err == ctx.Err(): //nolint:errorlint // wrapped, it also tells of a cursor that could not be saved
		return nil
	case errors.Is(err, client.ErrUnauthorized), errors.Is(err, client.ErrRevoked), errors.Is(err, client.ErrRefused):
		return refused(err)
	}
	return err
}

// token is what the token file holds, without the line end.
func (c *listenCmd) token() (string, error) {
	if c.TokenFile == "" {
		return "", nil
	}
	text, err := os.ReadFile(c.TokenFile)
	if err != nil {
		return "", fmt.Errorf("the token can't be read: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", fmt.Errorf("%s holds no token", c.TokenFile)
	}
	return token, nil
}

// http trusts what the CA file holds, and shows the certificate; nil without
// either.
func (c *listenCmd) http() (*http.Client, error) {
	if c.CAFile+c.CertFile == "" {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	roots, err := readRoots(c.CAFile)
	if err != nil {
		return nil, err
	}
	config.RootCAs = roots
	if c.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("%s with %s: %w", c.CertFile, c.KeyFile, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, ForceAttemptHTTP2: true}}, nil
}

// listened is an event as it is printed.
type listened struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	Data string `json:"data"`
}

func (c *listenCmd) print(io console, e listened) error {
	if c.JSON {
		return json.NewEncoder(io.out).Encode(e)
	}
	_, err := fmt.Fprintf(io.out, "%s\t%s\t%s\n", e.ID, visible(e.Type), visible(e.Data))
	return err
}

// visible keeps an event on one line, and its sender from steering the terminal.
func visible(text string) string {
	if !strings.ContainsFunc(text, steers) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if steers(r) {
			quoted := fmt.Sprintf("%q", r)
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// steers: control characters, and those that turn the direction of writing.
func steers(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }

func describe(s client.Status) string {
	switch {
	case s.Connected:
		return "connected"
	case s.Err != nil:
		return fmt.Sprintf("not connected: %v; trying again in %s", s.Err, s.Wait.Round(time.Millisecond))
	default:
		return fmt.Sprintf("the gateway ended the stream; connecting again in %s", s.Wait.Round(time.Millisecond))
	}
}
