package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// healthCmd asks a gateway whether it is well, where nothing else can: in an
// image without curl.
type healthCmd struct {
	URL      string        `arg:"" optional:"" default:"http://127.0.0.1:9090" env:"DOWNLINK_BACKEND" help:"The gateway's back-end port, or its devices' port."`
	Live     bool          `help:"Ask only whether the process answers (/healthz), not whether it serves (/readyz)."`
	Wait     time.Duration `help:"Ask again until it is well, for so long."`
	Timeout  time.Duration `default:"2s" help:"How long one request may take."`
	CAFile   string        `name:"ca-file" placeholder:"FILE" help:"PEM certificates that vouch for the port, instead of the system's."`
	Insecure bool          `help:"Don't check the port's certificate. Nothing secret is sent."`
}

// healthEvery is how often it is asked with --wait.
const healthEvery = 500 * time.Millisecond

// Run asks once, or until the gateway is well. Its error has code 4 if a
// gateway has answered that it isn't.
func (c *healthCmd) Run(io console) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	u, err := url.Parse(c.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return usage(errors.New("this isn't an address of a gateway; write it as http://127.0.0.1:9090"))
	}
	roots, err := readRoots(c.CAFile)
	if err != nil {
		return usage(err)
	}
	client := &http.Client{
		Timeout: c.Timeout,
		Transport: &http.Transport{
			DisableKeepAlives: true, // ask whoever is behind the address now
			TLSClientConfig:   &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, InsecureSkipVerify: c.Insecure},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	path := "/readyz"
	if c.Live {
		path = "/healthz"
	}
	answer, err := c.ask(ctx, client, u.JoinPath(path).String())
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(io.out, answer)
	return err
}

// ask is what the gateway says when it is well.
func (c *healthCmd) ask(ctx context.Context, client *http.Client, at string) (string, error) {
	over := time.After(c.Wait)
	tick := time.NewTicker(healthEvery)
	defer tick.Stop()
	for {
		answer, err := wellness(ctx, client, at)
		if err == nil || c.Wait <= 0 {
			return answer, err
		}
		select {
		case <-ctx.Done():
			return "", err
		case <-over:
			return "", fmt.Errorf("%w (for %s)", err, c.Wait)
		case <-tick.C:
		}
	}
}

func wellness(ctx context.Context, client *http.Client, at string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return "", usage(errors.New("this isn't an address of a gateway; write it as http://127.0.0.1:9090"))
	}
	resp, err := client.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err
		}
		return "", fmt.Errorf("the gateway can't be reached: %w; is it running, and is this its address?", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if err != nil {
		return "", fmt.Errorf("the answer broke off: %w", err)
	}
	answer := strings.TrimSpace(string(text))
	switch {
	case resp.StatusCode == http.StatusOK && (answer == "ready" || answer == "ok"):
		return answer, nil
	case resp.StatusCode == http.StatusServiceUnavailable && answer != "":
		return "", &coded{exitMissed, errors.New(answer)}
	default:
		return "", fmt.Errorf("the answer (%s) isn't a gateway's: is this its port?", resp.Status)
	}
}
