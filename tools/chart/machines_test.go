package chart

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"

	"downlink/internal/config"
	"downlink/internal/drain"
)

// TestCompose: the file is what Compose takes, and its parts fit together.
func TestCompose(t *testing.T) {
	t.Parallel()
	dir := root + "/deploy/compose"
	o, err := cli.NewProjectOptions([]string{dir + "/compose.yml"}, cli.WithWorkingDirectory(dir))
	if err != nil {
		t.Fatal(err)
	}
	project, err := o.LoadProject(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Load([]string{"--config", dir + "/downlink.yml"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	proxy := read(t, dir+"/haproxy.cfg")
	gateways := 0
	for _, s := range project.Services {
		if s.Image != "downlink:compose" {
			continue
		}
		gateways++
		if !strings.Contains(proxy, " "+s.Name+":8080") || !strings.Contains(proxy, " "+s.Name+":9090") {
			t.Errorf("HAProxy doesn't know %s", s.Name)
		}
		terms := drain.Terms{Wait: c.DrainWait, Rate: c.DrainRate, Deadline: c.DrainDeadline, Last: c.ShutdownTimeout}
		if s.StopGracePeriod == nil || time.Duration(*s.StopGracePeriod) < asked(t, terms.String()) {
			t.Errorf("%s is killed after %v: %s", s.Name, s.StopGracePeriod, terms)
		}
		if limit := *s.Environment["GOMEMLIMIT"]; limit != "409MiB" || s.MemLimit != 512<<20 {
			t.Errorf("%s: GOMEMLIMIT is %s of %d", s.Name, limit, s.MemLimit)
		}
	}
	if gateways != 3 {
		t.Errorf("there are %d gateways", gateways)
	}
	for _, p := range project.Services["haproxy"].Ports {
		if p.HostIP != "127.0.0.1" {
			t.Errorf("port %s is open for everybody", p.Published)
		}
	}
	if out, err := exec.Command("haproxy", "-c", "-f", dir+"/haproxy.cfg").CombinedOutput(); err != nil {
		t.Errorf("haproxy: %v\n%s", err, out)
	}
}

const unit = root + "/deploy/systemd/downlink.service"

// TestUnit: systemd takes it, and finds it well locked up.
func TestUnit(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd here")
	}
	// It wants the program to be there.
	text := read(t, unit)
	program := filepath.Join(t.TempDir(), "downlink")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "downlink.service")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "/usr/local/bin/downlink", program)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(analyze, "verify", "--man=no", file).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	if out, err := exec.Command(analyze, "security", "--offline=true", "--threshold=20", "--no-pager", file).CombinedOutput(); err != nil {
		t.Errorf("systemd-analyze security: %v\n%s", err, out)
	}
}

// TestUnitGivesTimeAndMemory: what the gateway needs by its defaults.
func TestUnitGivesTimeAndMemory(t *testing.T) {
	text := read(t, unit)
	setting := func(name string) string {
		m := regexp.MustCompile(`(?m)^` + name + `=(.*)$`).FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("the unit doesn't set %s", name)
		}
		return m[1]
	}
	c, err := config.Load(nil, nil)
	if err != nil && !strings.Contains(err.Error(), "listen") {
		t.Fatal(err)
	}
	if c == nil {
		if c, err = config.Load([]string{"--listen", "127.0.0.1:8080"}, nil); err != nil {
			t.Fatal(err)
		}
	}
	stop, err := time.ParseDuration(setting("TimeoutStopSec"))
	if err != nil {
		t.Fatal(err)
	}
	terms := drain.Terms{Wait: c.DrainWait, Rate: c.DrainRate, Deadline: c.DrainDeadline, Last: c.ShutdownTimeout}
	if stop < asked(t, terms.String()) {
		t.Errorf("it is killed after %s: %s", stop, terms)
	}
	gib, err := strconv.Atoi(strings.TrimSuffix(setting("MemoryMax"), "G"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "GOMEMLIMIT=" + strconv.Itoa(gib*1024*8/10) + "MiB"; setting("Environment") != want {
		t.Errorf("%s, want %s", setting("Environment"), want)
	}
}
