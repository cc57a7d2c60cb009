package load

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"regexp"
	"runtime"
	"time"

	"downlink/internal/event"
	"downlink/internal/load/producer"
	"downlink/internal/load/watch"
)

// The scenarios.
const (
	Idle      = "idle"      // connect, and watch what that costs
	Broadcast = "broadcast" // every event to every device
	Targeted  = "targeted"  // each event to one device, by turns
	Storm     = "storm"     // all devices come back at once, each with events missed
	SlowOnes  = "slow"      // broadcast beside devices that read slowly or not at all
	Soak      = "soak"      // targeted while devices come and go; or nothing but coming and going
)

// Options are the settings of one run. Those without a remark are required.
type Options struct {
	Scenario string
	Args     map[string]any // for the report; holds no secret

	// The devices. {device} is Prefix and a number from 0.
	URL            string // template: {device} {n} {token} {id} and captured names
	Headers        []string
	Prefix         string
	Devices        int
	Sources        int           // local addresses, 127.0.0.1 and on; 0 for as many as are useful
	ConnectRate    float64       // per second; 0 for as fast as Connecting allows
	Connecting     int           // at once
	ConnectTimeout time.Duration // for one connection
	ResumeHeader   string        // template, for a device that comes back; may be empty
	ResumeURL      string        // template, instead of URL; may be empty
	Captures       []Capture
	Token          *Token         // for {token}; nil without
	Lanes          int            // goroutines that read; 0 for a choice by processors
	Portable       bool           // a goroutine for each connection, on Linux too
	Roots          *x509.CertPool // for https; nil for the system's

	// Publishing.
	NewSender  func() (producer.Sender, error)
	Batch      int     // events in one request
	Rate       float64 // events per second in all; 0 for as fast as the answers come
	Publishers int     // connections; 0 for the scenario's choice
	Payload    int     // bytes; the marker's 60 or so are the least
	Warmup     time.Duration
	Duration   time.Duration
	Grace      time.Duration // how long to wait for the next receipt at the end

	// Of single scenarios.
	Settle    time.Duration // idle: after connecting, before memory is measured
	Missed    int           // storm: events per device
	Stalled   int           // slow: devices that don't read
	ReadRate  int           // slow: bytes a second that they read after all
	Misbehave float64       // percent of the devices with bad manners
	Churn     float64       // soak: percent of the devices a minute
	Cycles    int           // soak: connect and disconnect all so often, and nothing else

	Watch  []watch.Target
	Series bool      // take a moment each second, for the plots
	Live   io.Writer // for progress; nil without
	Redraw bool      // Live is a terminal: one line, drawn anew

	MaxP99     time.Duration // 0 without
	MaxLoss    int           // -1 without
	MaxRepeats int           // -1 without
}

// A Capture is a name in templates and what finds its value in a stream: the
// pattern's first group.
type Capture struct {
	Name    string
	Pattern *regexp.Regexp
}

// ParseCapture reads NAME=REGEXP.
func ParseCapture(text string) (Capture, error) {
	m := regexp.MustCompile(`^([a-z][a-z0-9_]*)=(.+)$`).FindStringSubmatch(text)
	if m == nil {
		return Capture{}, fmt.Errorf("--capture %q isn't of the form name=REGEXP, with a lower-case name", text)
	}
	p, err := regexp.Compile(m[2])
	if err != nil {
		return Capture{}, fmt.Errorf("--capture %s: %w", m[1], err)
	}
	if p.NumSubexp() < 1 {
		return Capture{}, fmt.Errorf("--capture %s: the pattern has no group; put brackets around what is to be kept", m[1])
	}
	return Capture{m[1], p}, nil
}

// portsOfSource is what Linux gives one source address by default
// (net.ipv4.ip_local_port_range), for each destination.
const portsOfSource = 28_000

// devicesOfSource is how many connections from one address are still quick to
// open: when half of its ports are taken, Linux searches long for a free one
// (measured: 16,000 connects from one address took 8 times the CPU time).
const devicesOfSource = 8_000

// sources is how many source addresses are used; 0 leaves the choice to the
// system. Only Linux has all of 127.0.0.0/8 without being asked.
func (o *Options) sources(target netip.AddrPort) int {
	auto := o.Sources == 0 && o.Devices > devicesOfSource
	if auto && runtime.GOOS == "linux" && target.Addr().Is4() && target.Addr().IsLoopback() {
		return (o.Devices + devicesOfSource - 1) / devicesOfSource
	}
	return o.Sources
}

// Check reports all that is wrong at once.
func (o *Options) Check() error {
	var errs []error
	wrong := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	wrong(o.Devices < 1, "--devices must be 1 or more")
	wrong(o.Connecting < 1, "--connecting must be 1 or more")
	wrong(o.ConnectTimeout <= 0, "--connect-timeout must be more than 0")
	wrong(o.ConnectRate < 0 || o.Rate < 0, "a rate can't be negative")
	wrong(o.Sources < 0 || o.Sources > 254, "--sources must be 0 to 254")
	wrong(o.Sources > 0 && o.Devices > o.Sources*portsOfSource, "%d devices need more ports than %d source address(es) have (about 28,000 each); raise --sources", o.Devices, o.Sources)
	wrong(o.Batch < 1 || o.Batch > 100_000, "--batch must be 1 to 100000")
	wrong(o.Publishers < 0 || o.Publishers > 1000, "--publishers must be 0 (the scenario's choice) to 1000")
	wrong(o.Payload < 0 || o.Payload > 64<<20, "--payload must be 0 to 64 MiB")
	wrong(o.Duration < 0 || o.Warmup < 0 || o.Settle < 0 || o.Grace < 0, "a time can't be negative")
	wrong(o.Misbehave < 0 || o.Misbehave > 100, "--misbehave is a percentage: 0 to 100")
	wrong(o.Churn < 0, "--churn can't be negative")
	wrong(o.Stalled < 0 || o.Stalled > o.Devices, "--stalled must be 0 to the number of devices")
	wrong(o.ReadRate < 0, "--read-rate can't be negative")
	wrong(o.Scenario == Storm && o.Missed < 1, "--missed must be 1 or more")
	wrong(o.Cycles < 0, "--cycles can't be negative")
	wrong(o.Scenario != SlowOnes && o.Stalled > 0, "--stalled is for the scenario slow alone")
	wrong(o.Scenario != SlowOnes && o.ReadRate > 0 && o.Misbehave == 0, "--read-rate is for the scenario slow, or beside --misbehave")
	wrong(o.Scenario != Soak && (o.Churn > 0 || o.Cycles > 0), "--churn and --cycles are for the scenario soak alone")
	if err := event.ValidateDevice(o.deviceName(o.Devices)); err != nil {
		errs = append(errs, fmt.Errorf("--device-prefix: %w", err))
	}
	return errors.Join(errs...)
}

func (o *Options) deviceName(n int) string { return fmt.Sprintf("%s%d", o.Prefix, n) }

// publishes reports whether the scenario needs a Sender.
func (o *Options) publishes() bool {
	return o.Scenario != Idle && (o.Scenario != Soak || o.Cycles == 0)
}

// toAll reports whether events go to every device.
func (o *Options) toAll() bool { return o.Scenario == Broadcast || o.Scenario == SlowOnes }

// publishers is the number of connections for publishing. Broadcasts come from
// one, so that they have one order.
func (o *Options) publishers() int {
	switch {
	case o.Publishers > 0 && !o.toAll():
		return min(o.Publishers, o.Devices)
	case o.Publishers > 0:
		return o.Publishers
	case o.toAll():
		return 1
	}
	return min(8, o.Devices)
}

// misbehaving is how many devices, the last ones, don't behave.
func (o *Options) misbehaving() int {
	n := int(float64(o.Devices) * o.Misbehave / 100)
	if o.Scenario == SlowOnes {
		n += o.Stalled
	}
	return min(n, o.Devices)
}

// honest reports whether a device is one that has to get everything.
func (o *Options) honest(device int) bool { return device < o.Devices-o.misbehaving() }

// targetURL is the part of the device URL that no placeholder may change.
func targetURL(template string) (*url.URL, error) {
	plain := regexp.MustCompile(`\{[a-z0-9_]+\}`).ReplaceAllString(template, "x")
	u, err := url.Parse(plain)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
		return nil, errors.New("--url isn't an address; write it as http://127.0.0.1:8080/events?device={device}")
	}
	if u.User != nil {
		return nil, errors.New("--url can't hold a user: write --header 'Authorization: Basic …' instead")
	}
	return u, nil
}
