package main

import (
	"encoding/json"
	"strings"
	"testing"

	"downlink/internal/plan"
)

func TestPlanAsksAndAnswers(t *testing.T) {
	for _, c := range []struct {
		args string
		with []string
	}{
		{"", []string{"can the devices open a connection to you?", "use `downlink serve`", "--owner none --transport post", "--owner ring", "3. How long may"}},
		{"--reach both", []string{"downlink serve"}},
		{"--reach centre", []string{"1. Must the connection stay open?", "--open no|yes"}},
		{"--reach centre --open no", []string{"downlink dial --owner none --transport post"}},
		{"--reach centre --open yes --double harmless", []string{"--owner static --replication 2"}},
		{"--reach centre --open yes --double accident --gap 1h", []string{"--owner ring"}},
		{"--reach centre --open yes --double accident --gap 5s", []string{"--owner static"}},
	} {
		code, out, errs := execute(t, "", nil, append([]string{"plan"}, strings.Fields(c.args)...)...)
		if code != exitDone {
			t.Errorf("%s: %d %s", c.args, code, errs)
		}
		for _, want := range c.with {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in\n%s", c.args, want, out)
			}
		}
	}
}

// TestPlanConverses with somebody who first answers something else.
func TestPlanConverses(t *testing.T) {
	var out strings.Builder
	err := converse(console{in: strings.NewReader("centre\nyes\nmaybe\naccident\n5m\n"), out: &out}, 0)
	if text := out.String(); err != nil || !strings.HasSuffix(text, "newer one. After a crash the last device is back within 0s.\n") ||
		strings.Count(text, "2. Is a double") != 2 || !strings.Contains(text, "double: answer harmless or accident") {
		t.Errorf("%v\n%s", err, text)
	}
	out.Reset()
	if err := converse(console{in: strings.NewReader("centre\n"), out: &out}, 0); err != nil {
		t.Errorf("who leaves in the middle: %v", err)
	}
}

func TestPlanRing(t *testing.T) {
	code, out, errs := execute(t, "", nil, "plan", "ring", "--members", "20", "--add", "1")
	words := strings.Join(strings.Fields(out), " ")
	for _, want := range []string{"20 -> 21 members, 50000 devices in 64 shards, leases of 15s", "hash % members static ring", "shards that move - 44 3", "each shard: 12.8 (64 leases", "each device: 10000.0 (50000 leases)"} {
		if code != exitDone || !strings.Contains(words, want) {
			t.Errorf("%d %s: no %q in\n%s", code, errs, want, out)
		}
	}
	code, out, errs = execute(t, "", nil, "plan", "ring", "--members", "20", "--remove", "1", "--json")
	var p plan.Plan
	if err := json.Unmarshal([]byte(out), &p); err != nil || code != exitDone {
		t.Fatalf("%d %s %v\n%s", code, errs, err, out)
	}
	if p.Members != 20 || p.After != 19 || p.Ring.Shards != 3 || p.Ring.Moved == 0 || p.Crash.Without < 20 || p.Hash.Moved < 40_000 {
		t.Errorf("%s", out)
	}
}

func TestPlansThatCantBe(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"ring", "--members"},
		{"ring --members 3", "say how the fleet changes"},
		{"ring --members 3 --add 1 --remove 1", "--add and --remove"},
		{"ring --members 3 --remove 3", "at least one must stay"},
		{"ring --members 0 --add 1 --ttl 1ms", "ttl is 1ms"},
		{"ring --members x --add 1", "--members"},
		{"--reach maybe", "--reach: answer both or centre"},
		{"--gap 30", "--gap: answer with a duration"},
		{"--members 1", "must be at least 2"},
	} {
		code, _, errs := execute(t, "", nil, append([]string{"plan"}, strings.Fields(c.args)...)...)
		if code != exitUsage || !strings.Contains(errs, c.want) {
			t.Errorf("%s: %d %s, want %q", c.args, code, errs, c.want)
		}
	}
}
