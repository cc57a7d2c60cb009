package testkit

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRedisKeepsItsDataOverARestart(t *testing.T) {
	r := StartRedis(t, RedisConfig("appendonly yes", "appendfsync always"))
	r.Do("SET", "k", "v")
	r.Restart()
	if got := r.Do("GET", "k"); got != "v" {
		t.Fatalf("after a restart: %v", got)
	}
	r.Kill9()
	if _, err := r.Try("PING"); err == nil {
		t.Fatal("a killed server answers")
	}
	r.Start()
	if got := r.Do("GET", "k"); got != "v" {
		t.Fatalf("after a kill: %v", got)
	}
}

func TestRedisReplies(t *testing.T) {
	r := StartRedis(t)
	r.Do("RPUSH", "l", "a\r\nb", "")
	got := r.Do("LRANGE", "l", "0", "-1").([]any)
	if len(got) != 2 || got[0] != "a\r\nb" || got[1] != "" {
		t.Errorf("array: %q", got)
	}
	if got := r.Do("GET", "none"); got != nil {
		t.Errorf("nil: %v", got)
	}
	if _, err := r.Try("GET", "l"); err == nil || !strings.HasPrefix(err.Error(), "WRONGTYPE") {
		t.Errorf("error: %v", err)
	}
	if got := r.Pipe([]string{"INCR", "n"}, []string{"INCR", "n"}); got[1] != int64(2) {
		t.Errorf("pipe: %v", got)
	}
}

func TestRedisFreezes(t *testing.T) {
	r := StartRedis(t)
	r.Stop()
	answered := make(chan error, 1)
	go func() {
		_, err := r.Try("PING")
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Errorf("a frozen server answered: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	r.Cont()
	if err := <-answered; err != nil {
		t.Errorf("after going on: %v", err)
	}
}

func TestRedisURLs(t *testing.T) {
	r := StartRedis(t, RedisTLS(), RedisUser("gw", "secret", "~* +@all"))
	if url := r.URL(); !strings.HasPrefix(url, "rediss://gw:secret@127.0.0.1:") {
		t.Errorf("URL %s", url)
	}
}
