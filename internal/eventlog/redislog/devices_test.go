package redislog

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"downlink/internal/eventlog"
	"downlink/internal/testkit"
)

// fill puts n devices into the hash of a server.
func fill(redis *testkit.Redis, n int) map[string]string {
	want := make(map[string]string, n)
	args := []string{"HSET", "shop:devices"}
	for i := range n {
		id, entry := fmt.Sprint("pos-", i), fmt.Sprintf(`{"url":"http://pos-%d/"}`, i)
		want[id] = entry
		args = append(args, id, entry)
	}
	redis.Do(args...)
	return want
}

func openDevices(t *testing.T, url string) *Devices {
	t.Helper()
	o := optionsAt(t, url)
	o.Prefix = "shop"
	d, err := OpenDevices(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

func wantDevices(t *testing.T, d *Devices, want map[string]string) {
	t.Helper()
	got, err := d.Fetch(t.Context())
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%d devices, want %d: %v", len(got), len(want), err)
	}
}

// TestDevices: the whole hash is read, in steps; none is no device, and what is no
// hash, or can't be reached, is an error.
func TestDevices(t *testing.T) {
	t.Parallel()
	redis := testkit.StartRedis(t)
	d := openDevices(t, redis.URL())
	if d.Key() != "shop:devices" {
		t.Error(d.Key())
	}
	wantDevices(t, d, nil)
	wantDevices(t, d, fill(redis, 5*scanEntries+1))
	redis.Do("DEL", d.Key())
	redis.Do("SET", d.Key(), "x")
	if _, err := d.Fetch(t.Context()); err == nil || !strings.Contains(err.Error(), "holds something else") {
		t.Error(err)
	}
	redis.Kill9()
	if _, err := d.Fetch(t.Context()); !errors.Is(err, eventlog.ErrUnavailable) {
		t.Error(err)
	}
	redis.Start()
	redis.Do("DEL", d.Key())
	wantDevices(t, d, fill(redis, 3))
}

// TestDevicesFollow: in a cluster the hash is asked for where its slot is, also
// after that has moved.
func TestDevicesFollow(t *testing.T) {
	t.Parallel()
	c := testkit.StartCluster(t, 3, 0)
	d := openDevices(t, c.URL())
	slot := c.SlotOf(d.Key())
	want := fill(c.MasterOf(slot), 1000)
	wantDevices(t, d, want)
	from := c.MasterOf(slot)
	for _, to := range []string{"shop:0", "shop:1", "shop:2", "shop:3"} {
		if other := c.MasterOf(c.SlotOf(to)); other != from {
			c.Migrate(slot, other)
			break
		}
	}
	if c.MasterOf(slot) == from {
		t.Fatal("the slot is where it was")
	}
	wantDevices(t, d, want)
}
