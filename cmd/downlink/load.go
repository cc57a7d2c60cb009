package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"downlink/internal/config"
	"downlink/internal/load"
	"downlink/internal/load/producer"
	"downlink/internal/load/watch"
)

// loadCmd is a fleet of devices and its producers, for measuring.
type loadCmd struct {
	Scenario string `arg:"" enum:"idle,broadcast,targeted,storm,slow,soak" placeholder:"SCENARIO" help:"idle: connect, and watch the cost. broadcast: each event to every device. targeted: each event to one device, by turns. storm: all devices come back at once, with events missed. slow: broadcast beside devices that don't read. soak: targeted while devices come and go."`

	URL            string        `name:"url" group:"Devices" default:"http://127.0.0.1:8080/events?device={device}" help:"Where devices connect. Placeholders here and in headers: {device}, {n} (its number), {token}, {id} (its last event ID), and captured names."`
	Header         []string      `group:"Devices" sep:"none" placeholder:"'NAME: VALUE'" help:"Header of a device's request; may be repeated."`
	Devices        int           `group:"Devices" default:"1000" help:"Number of devices."`
	DevicePrefix   string        `group:"Devices" default:"device-" help:"{device} is this and a number from 0."`
	ConnectRate    float64       `group:"Devices" help:"Connections begun per second; 0 for as fast as --connecting allows."`
	Connecting     int           `group:"Devices" default:"256" help:"Connections that may be opening at once."`
	ConnectTimeout time.Duration `group:"Devices" default:"30s" help:"How long opening one connection may take."`
	Sources        int           `group:"Devices" help:"Source addresses, 127.0.0.1 and on: each has about 28,000 ports, and is slow beyond half of them. 0 is one for 8,000 devices, on Linux towards this machine."`
	ResumeHeader   string        `group:"Devices" default:"Last-Event-ID: {id}" help:"Header by which a device that comes back asks for the rest."`
	ResumeURL      string        `group:"Devices" placeholder:"TEMPLATE" help:"Where such a device connects, if not to --url."`
	Capture        []string      `group:"Devices" sep:"none" placeholder:"NAME=REGEXP" help:"Find a value for {NAME} in each device's stream: the first group of the first match. May be repeated."`
	CAFile         string        `name:"ca-file" group:"Devices" placeholder:"FILE" help:"Certificates (PEM) to trust for https; the system's if left out."`

	TokenSecretFile string        `group:"Tokens" placeholder:"FILE" help:"Mint {token} for each device: a JSON Web Token, HS256 with the secret in this file."`
	TokenClaims     string        `group:"Tokens" default:"{\"sub\":\"{device}\"}" help:"Its claims, a JSON object with {device} and {n}; iat and exp are added."`
	TokenTTL        time.Duration `name:"token-ttl" group:"Tokens" default:"1h" help:"How long it is valid; 0 leaves exp out."`

	Backend       string   `group:"Publishing" default:"http://127.0.0.1:9090" env:"DOWNLINK_BACKEND" help:"Publish through the gateway whose back-end port this is."`
	PublishToken  string   `name:"publish-token-file" group:"Publishing" placeholder:"FILE" help:"File with a publisher's token for --backend, where the gateway wants one; without it the token is taken from DOWNLINK_TOKEN."`
	PublishLog    string   `group:"Publishing" placeholder:"URL" help:"Publish with XADD, straight into the log on this Redis server: redis://127.0.0.1:6379."`
	Prefix        string   `group:"Publishing" default:"pos-ev" help:"With --publish-log: the log's prefix."`
	Shards        int      `group:"Publishing" default:"64" help:"With --publish-log: the log's number of shards."`
	PublishURL    string   `group:"Publishing" placeholder:"TEMPLATE" help:"Publish with a POST to any HTTP API; {device} as in --url. An answer of 200 to 299 counts as accepted."`
	PublishBody   string   `group:"Publishing" default:"{payload}" help:"With --publish-url: the body. {payload} is a JSON object, {payload_string} the same for inside a JSON string, {device} a device, or * for all."`
	PublishHeader []string `group:"Publishing" sep:"none" placeholder:"'NAME: VALUE'" help:"With --publish-url: a header; may be repeated."`
	Batch         int      `group:"Publishing" default:"1" help:"Events in one request: NDJSON lines, or XADDs in one pipeline."`
	Rate          float64  `group:"Publishing" default:"100" help:"Events per second in all; 0 for as fast as answers come."`
	Publishers    int      `group:"Publishing" help:"Connections for publishing, each waiting for its answer before it goes on; 0 for 8, and 1 for broadcasts."`
	Payload       int      `group:"Publishing" default:"300" help:"Size of a payload in bytes; its marker takes 60 to 90."`

	Duration  time.Duration `group:"Run" default:"10s" help:"How long to publish, or to stay idle."`
	Warmup    time.Duration `group:"Run" help:"Publish so long before counting."`
	Grace     time.Duration `group:"Run" default:"5s" help:"At the end, wait so long for the next receipt before what is missing is lost."`
	Settle    time.Duration `group:"Run" default:"5s" help:"idle: wait after connecting before memory is measured."`
	Missed    int           `group:"Run" default:"20" help:"storm: events that each device has missed. They are published at --rate: 20 for each of 1000 devices take 200 s at 100 a second, and moments with --rate 0 --batch 100."`
	Stalled   int           `group:"Run" help:"slow: how many of the devices don't read."`
	ReadRate  int           `group:"Run" placeholder:"BYTES" help:"slow: they do read, but only so many bytes a second."`
	Misbehave float64       `group:"Run" placeholder:"PERCENT" help:"Share of the devices that sleep, read 1 KiB/s, reset, half-close or send rubbish, by turns. Nothing is expected of them."`
	Churn     float64       `group:"Run" placeholder:"PERCENT" help:"soak: share of the devices that leave and come back, a minute."`
	Cycles    int           `group:"Run" help:"soak: connect and disconnect all devices so often, and publish nothing."`
	Loops     int           `group:"Run" help:"Goroutines that read all connections; 0 for half of the processors, at most 4."`
	Portable  bool          `group:"Run" help:"Read each connection in a goroutine of its own, as on other systems than Linux."`

	Watch      []string      `group:"Results" sep:"none" placeholder:"NAME=PID" help:"Measure processor time and memory of a process (Linux); NAME=PID,PID for several, NAME=PID+ with all descendants. May be repeated."`
	MaxP99     time.Duration `name:"max-p99" group:"Results" placeholder:"D" help:"Fail if the 99th percentile of latencies is higher: from publishing to receipt, or of connecting where nothing is published."`
	MaxLoss    int           `group:"Results" default:"-1" placeholder:"N" help:"Fail if more events were lost."`
	MaxRepeats int           `group:"Results" default:"-1" placeholder:"N" help:"Fail if more events came twice."`
	JSON       string        `name:"json" group:"Results" placeholder:"FILE" help:"Write the results as JSON; - is standard output."`
	HTML       string        `name:"html" group:"Results" placeholder:"FILE" help:"Write a page with plots; it needs no network."`
	Quiet      bool          `group:"Results" help:"Show no progress on standard error."`

	publisher string // the token
}

// Run measures until the scenario is over or a signal comes, and reports.
func (c *loadCmd) Run(line *kong.Context, loader *config.Loader, io console) error {
	var err error
	if c.publisher, err = (&callerFlags{TokenFile: c.PublishToken}).token(loader); err != nil {
		return usage(err)
	}
	o, err := c.options(io)
	if err != nil {
		return usage(err)
	}
	o.Args = arguments(line)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	// The second signal ends at once what the first has asked to end in order.
	defer context.AfterFunc(ctx, stop)()
	if err := c.writable(); err != nil {
		return usage(err)
	}
	r, err := load.Run(ctx, o)
	if setting, ok := errors.AsType[*load.SettingError](err); ok {
		return usage(setting)
	}
	if err != nil {
		return err
	}
	if err := c.write(io, r); err != nil {
		return err
	}
	if !r.Passed && !r.Ended {
		return &coded{exitMissed, errors.New(strings.Join(r.Failures, "\n"))}
	}
	return nil
}

// options are the flags as the scenarios take them.
func (c *loadCmd) options(io console) (load.Options, error) {
	o := load.Options{
		Scenario: c.Scenario,
		URL:      c.URL, Headers: c.Header, Prefix: c.DevicePrefix, Devices: c.Devices, Sources: c.Sources,
		ConnectRate: c.ConnectRate, Connecting: c.Connecting, ConnectTimeout: c.ConnectTimeout,
		ResumeHeader: c.ResumeHeader, ResumeURL: c.ResumeURL, Lanes: c.Loops, Portable: c.Portable,
		NewSender: c.sender, Batch: c.Batch, Rate: c.Rate, Publishers: c.Publishers, Payload: c.Payload,
		Warmup: c.Warmup, Duration: c.Duration, Grace: c.Grace,
		Settle: c.Settle, Missed: c.Missed, Stalled: c.Stalled, ReadRate: c.ReadRate,
		Misbehave: c.Misbehave, Churn: c.Churn, Cycles: c.Cycles, Series: c.HTML != "",
		MaxP99: c.MaxP99, MaxLoss: c.MaxLoss, MaxRepeats: c.MaxRepeats,
	}
	if !c.Quiet {
		o.Live, o.Redraw = io.err, terminal(io.err)
	}
	for _, text := range c.Capture {
		capture, err := load.ParseCapture(text)
		if err != nil {
			return o, err
		}
		o.Captures = append(o.Captures, capture)
	}
	for _, text := range c.Watch {
		target, err := watch.ParseTarget(text)
		if err != nil {
			return o, err
		}
		o.Watch = append(o.Watch, target)
	}
	var err error
	if o.Token, err = c.token(); err != nil {
		return o, err
	}
	o.Roots, err = c.roots()
	return o, err
}

func (c *loadCmd) token() (*load.Token, error) {
	if c.TokenSecretFile == "" {
		return nil, nil
	}
	secret, err := os.ReadFile(c.TokenSecretFile)
	if err != nil {
		return nil, fmt.Errorf("--token-secret-file: %w", err)
	}
	return load.NewToken([]byte(strings.TrimRight(string(secret), "\r\n")), c.TokenClaims, c.TokenTTL)
}

func (c *loadCmd) roots() (*x509.CertPool, error) {
	if c.CAFile == "" {
		return nil, nil
	}
	text, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("--ca-file: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, errors.New("--ca-file holds no certificate in PEM form")
	}
	return pool, nil
}

// sender is one connection for publishing, to wherever the flags say.
func (c *loadCmd) sender() (producer.Sender, error) {
	switch {
	case c.PublishLog != "" && c.PublishURL != "":
		return nil, errors.New("--publish-log and --publish-url exclude each other")
	case c.PublishLog != "":
		return producer.NewRedis(c.PublishLog, c.Prefix, c.Shards)
	case c.PublishURL != "" && c.Batch > 1:
		return nil, errors.New("--publish-url publishes one event a request: leave out --batch, or put it to 1")
	case c.PublishURL != "":
		return producer.Foreign{URL: c.PublishURL, Body: c.PublishBody, Headers: c.PublishHeader}.New()
	}
	if c.publisher == "" {
		return producer.NewBackend(c.Backend, c.Batch > 1)
	}
	return producer.NewBackend(c.Backend, c.Batch > 1, "Authorization: Bearer "+c.publisher)
}
