package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// buildDownlink is what a session measures unless told otherwise.
func buildDownlink(t *testing.T) site {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "downlink")
	build := exec.Command("go", "build", "-o", binary, "../cmd/downlink")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building downlink: %v\n%s", err, out)
	}
	return site{gateway: binary, generator: binary}
}

// TestOnce goes the whole way with Downlink: start, load, figures, end.
func TestOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program and puts load on it")
	}
	if _, err := os.Stat("/proc/self/smaps_rollup"); err != nil {
		t.Skip("processes are watched on Linux only")
	}
	at := buildDownlink(t)
	targeted := []string{"targeted", "--devices", "20", "--rate", "200", "--duration", "500ms", "--payload", "100", "--publishers", "2"}
	idle := []string{"idle", "--devices", "20", "--settle", "100ms", "--duration", "100ms"}
	for _, test := range []struct {
		name  string
		duty  duty
		load  []string
		wants []string
	}{
		{"on Redis", duty{store: onRedis}, targeted, []string{
			"receive.received", "publish.accepted", "watched.redis.pss_bytes.before", "after.redis.total_commands_processed"}},
		{"embedded, with tokens over TLS", duty{jwt: true, tls: true}, idle, []string{
			"connect.connected", "watched.server.pss_bytes.connected", "after.go_goroutines", "disk.fsync_ms.p50"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var progress bytes.Buffer
			s := session{site: at, stderr: &progress}
			v, err := s.once(t.Context(), entry{"Downlink", at.downlink(test.duty), test.load})
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range test.wants {
				if v[name] == 0 {
					t.Errorf("no figure %s in %v", name, v)
				}
			}
			if v["connect.connected"] != 20 || v["receive.lost"]+v["receive.repeated"] != 0 {
				t.Errorf("connected, lost or repeated: %v", v)
			}
		})
	}
}

// TestInterrupted: an interrupt ends the load and the servers, and soon.
func TestInterrupted(t *testing.T) {
	var progress bytes.Buffer
	generator := filepath.Join(t.TempDir(), "generator")
	if err := os.WriteFile(generator, []byte("#!/bin/sh\nexec sleep 60\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var started *lab
	start := func(l *lab) (*target, error) {
		started = l
		_, err := l.start("server", "sleep", "60")
		time.AfterFunc(100*time.Millisecond, cancel)
		return &target{}, err
	}
	s := session{site: site{generator: generator}, stderr: &progress, only: regexp.MustCompile("")}
	began := time.Now()
	_, err := s.attempt(ctx, member{entry{"Peer", start, []string{"idle"}}, ""})
	if err == nil {
		t.Error("an interrupted run gave a result")
	}
	if took := time.Since(began); took > 30*time.Second { // what was started would go on for 60
		t.Errorf("ending took %v", took)
	}
	for _, p := range started.procs {
		select {
		case <-p.exited:
		default:
			t.Errorf("%s is still running", p.name)
		}
	}
	if strings.Contains(progress.String(), "repeated") {
		t.Errorf("an interrupted run was repeated:\n%s", progress.String())
	}
}

func TestUnknownTable(t *testing.T) {
	s := session{stderr: &bytes.Buffer{}, trial: true}
	if err := s.measureAll(t.Context(), []string{"memmory"}); err == nil || !strings.Contains(err.Error(), "memmory") {
		t.Errorf("error %v, want one that names the table", err)
	}
}

func TestCommandLine(t *testing.T) {
	var out, errs bytes.Buffer
	if err := run(t.Context(), []string{"list"}, &out, &errs); err != nil || !strings.Contains(out.String(), "broadcast") {
		t.Errorf("list: %v\n%s", err, out.String())
	}
	for _, args := range [][]string{{}, {"--nonsense"}, {"--only", "(", "memory"}} {
		if err := run(t.Context(), args, &out, &errs); err == nil {
			t.Errorf("%v was taken", args)
		}
	}
}
