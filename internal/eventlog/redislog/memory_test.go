package redislog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/testkit"
)

// fill appends until Redis refuses.
func (r *rig) fill() (ids []event.ID) {
	r.Helper()
	payload := strings.Repeat("x", 16<<10)
	for {
		res := r.Append(context.Background(), []eventlog.Append{{
			Events: []event.Event{{Target: fmt.Sprintf("device-%d", len(ids)), Type: "t", Payload: payload}},
		}})[0]
		if res.Err != nil {
			if !errors.Is(res.Err, eventlog.ErrFull) || !errors.Is(res.Err, eventlog.ErrUnavailable) {
				r.Fatalf("a full Redis answers %v", res.Err)
			}
			if !res.IDs[0].IsZero() {
				r.Errorf("a refused Append claims %v", res.IDs)
			}
			return ids
		}
		ids = append(ids, res.IDs[0])
	}
}

func TestFullMemory(t *testing.T) {
	r := newRig(t, shortWindow, testkit.RedisConfig("maxmemory 6mb", "maxmemory-policy noeviction"))
	ids := r.fill()
	if len(ids) < 20 {
		t.Fatalf("only %d entries fitted", len(ids))
	}
	r.redis.Do("CONFIG", "SET", "maxmemory", "3mb") // not even a small entry fits
	once := &eventlog.Once{Scope: "s", Key: "k", Fingerprint: "f"}
	if res := r.try(t.Context(), "a", once); !errors.Is(res.Err, eventlog.ErrFull) {
		t.Errorf("an idempotent Append on a full Redis: %v", res.Err)
	}
	if keys := r.redis.Do("KEYS", "*idem*").([]any); len(keys) != 0 {
		t.Errorf("a refused Append left %v", keys)
	}
	r.want("verdicts go on", ids[0], "device-0", "")

	last := ids[len(ids)-1]
	if sum := r.sweepTo(last); sum.Removed != len(ids) || sum.Foreign != 0 {
		t.Errorf("sweeping a full Redis removed %d of %d, %d of them foreign", sum.Removed, len(ids), sum.Foreign)
	}
	r.want("noted at full memory", ids[0], "device-1", event.WindowExpired)
	r.want("noted at full memory", ids[1], "device-1", "")
	r.app("a")
}

// A record can be founded while memory is full: a gateway starts then too.
func TestFoundingAtFullMemory(t *testing.T) {
	r := newRig(t, nil, testkit.RedisConfig("maxmemory 6mb"))
	r.fill()
	r.redis.Do("DEL", record0, notes0, "pos-ev:meta", "pos-ev:3", "pos-ev:3:sweep")
	r.redis.Do("CONFIG", "SET", "maxmemory", "1mb")
	again := open(t, r.opts)
	if _, err := again.Inspect(t.Context(), 0, make([]event.ID, 4)); err != nil {
		t.Error(err)
	}
}

func TestExhausted(t *testing.T) {
	r := newRig(t, shortWindow)
	xadd(t, r.redis, stream0, "18446744073709551615-18446744073709551614", "dev", "a", "type", "t", "payload", "p")
	two := []event.Event{{Target: "a", Type: "t", Payload: "1"}, {Target: "a", Type: "t", Payload: "2"}}
	once := &eventlog.Once{Scope: "s", Key: "k", Fingerprint: "f"}
	res := r.Append(t.Context(), []eventlog.Append{{Events: two, Once: once}})[0]
	if !errors.Is(res.Err, eventlog.ErrExhausted) || res.IDs[0] != event.MaxID || !res.IDs[1].IsZero() {
		t.Errorf("an Append of two where one fits: %+v", res)
	}
	again := r.Append(t.Context(), []eventlog.Append{{Events: two, Once: once}})[0]
	if !errors.Is(again.Err, eventlog.ErrExhausted) || again.IDs[0] != event.MaxID {
		t.Errorf("the same again: %+v", again)
	}
	if res := r.try(t.Context(), "a", nil); !errors.Is(res.Err, eventlog.ErrExhausted) {
		t.Errorf("Append: %v", res.Err)
	}
	r.sweepTo(event.MaxID)
	r.want("swept to the end of the numbers", event.MaxID, "a", "")
	if n := r.redis.Do("XLEN", stream0); n != int64(0) {
		t.Errorf("%v entries are left", n)
	}
	page, err := r.Range(t.Context(), 0, event.MaxID, event.MaxID, 1<<20)
	if err != nil || len(page.Entries) != 0 || page.Through != event.MaxID {
		t.Errorf("Range at the end: %+v, %v", page, err)
	}
	batches, err := r.Read(t.Context(), 0, []event.ID{event.MaxID, {}, {}, {}})
	if err != nil || len(batches) != 0 {
		t.Errorf("Read at the end: %v, %v", batches, err)
	}
	r.redis.Do("DEL", stream0) // what the error advises
	r.state()
	r.app("a")
}

func TestForeignKinds(t *testing.T) {
	r := newRig(t, nil)
	r.redis.Do("DEL", stream0)
	r.redis.Do("SET", stream0, "not a stream")
	if res := r.try(t.Context(), "a", nil); !errors.Is(res.Err, eventlog.ErrUnavailable) || !strings.Contains(res.Err.Error(), "prefix") {
		t.Errorf("Append to a key that is no stream: %v", res.Err)
	}
	res := r.Append(t.Context(), []eventlog.Append{
		{Events: []event.Event{{Target: "a", Type: "t"}}},
		{Shard: 1, Events: []event.Event{{Target: "a", Type: "t"}}},
		{Shard: 9, Events: []event.Event{{Target: "a", Type: "t"}}},
	})
	if res[0].Err == nil || res[1].Err != nil || res[2].Err == nil {
		t.Errorf("one bad shard and another that doesn't exist: %+v", res)
	}
}
