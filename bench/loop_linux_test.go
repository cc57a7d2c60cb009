package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestBareLoop: it does what it is compared with, end to end.
func TestBareLoop(t *testing.T) {
	t.Run("Redis", func(t *testing.T) {
		redis, _, err := startRedis(openLab(t))
		if err != nil {
			t.Fatal(err)
		}
		tryLoop(t, redis)
	})
	t.Run("disk", func(t *testing.T) { tryLoop(t, "file:"+filepath.Join(t.TempDir(), "log")) })
}

func tryLoop(t *testing.T, log string) {
	t.Helper()
	devices, backend := mustAddr(t), mustAddr(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- runLoop(ctx, devices, backend, log) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	stream := dialRepeatedly(t, devices)
	if _, err := io.WriteString(stream, "GET /events?device=store-1 HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stream)
	expect(t, lines, "retry: 3000")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Post("http://"+backend+"/v1/events", "application/json", strings.NewReader(`{"device":"store-1","type":"load","payload":{"n":17}}`))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.Body.Close() != nil || !strings.Contains(string(answer), `"shard":`) {
		t.Errorf("answered with %q, %v", answer, err)
	}
	expect(t, lines, `data: {"n":17}`)
}

func mustAddr(t *testing.T) string {
	t.Helper()
	addr, err := freeAddr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// dialRepeatedly connects as soon as somebody listens.
func dialRepeatedly(t *testing.T, addr string) net.Conn {
	t.Helper()
	patience := time.After(time.Minute)
	for {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			t.Cleanup(func() { _ = conn.Close() })
			if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			return conn
		}
		select {
		case <-patience:
			t.Fatal(err)
		case <-time.After(time.Millisecond):
		}
	}
}

// expect reads until a line.
func expect(t *testing.T, lines *bufio.Scanner, want string) {
	t.Helper()
	for lines.Scan() {
		if lines.Text() == want {
			return
		}
	}
	t.Fatalf("no line %q: %v", want, lines.Err())
}
