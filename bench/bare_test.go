package main

import (
	"testing"
	"time"
)

// TestBareReader: it moves on to the last entry of a shard, over payloads that
// look like other things.
func TestBareReader(t *testing.T) {
	l := openLab(t)
	addr, _, err := startRedis(l)
	if err != nil {
		t.Fatal(err)
	}
	var last string
	for _, payload := range []string{"{}", "17", "-1-1"} {
		if last, err = askRedis(addr, "XADD", "pos-ev:7", "*", "dev", "demo", "type", "t", "payload", payload); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := dialRedis(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	r := newBareReader(conn)
	for r.positions[7] != last {
		if err := r.step(); err != nil {
			t.Fatalf("at %s, the last entry is %s: %v", r.positions[7], last, err)
		}
	}
	if r.positions[8] != "0-0" {
		t.Errorf("shard 8 is at %s, where nothing was written", r.positions[8])
	}
}

// TestBareReadersEndWithTheLab: openLab fails the test if they don't.
func TestBareReadersEndWithTheLab(t *testing.T) {
	l := openLab(t)
	addr, _, err := startRedis(l)
	if err != nil {
		t.Fatal(err)
	}
	if err := readBare(l, addr, 3, time.Millisecond); err != nil {
		t.Fatal(err)
	}
}
