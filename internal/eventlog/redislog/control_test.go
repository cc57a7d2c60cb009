package redislog

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
	"downlink/internal/testkit"

	"github.com/google/go-cmp/cmp"
)

const revoked0 = "pos-ev:0:revoked"

func (r *rig) order(kind eventlog.ControlKind, device string) (eventlog.Receipt, error) {
	return r.Control(r.Context(), 0, eventlog.Control{Kind: kind, Device: device, Reason: "why"})
}

func (r *rig) list() eventlog.Revoked {
	r.Helper()
	list, err := r.Revoked(r.Context(), 0)
	if err != nil {
		r.Fatal(err)
	}
	return list
}

// TestOrdersWithoutAnAnswer: within the caller's time, nothing is claimed.
func TestOrdersWithoutAnAnswer(t *testing.T) {
	r := newRig(t, func(o *Options) { o.CallTimeout = time.Minute })
	r.redis.Stop()
	short := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	began := time.Now()
	if receipt, err := r.Control(short(), 0, eventlog.Control{Kind: eventlog.Revoke, Device: "a"}); !errors.Is(err, eventlog.ErrUnavailable) || receipt != (eventlog.Receipt{}) {
		t.Errorf("Control: %+v, %v", receipt, err)
	}
	if first, err := r.Claim(short(), 0, "ticket", time.Hour); !errors.Is(err, eventlog.ErrUnavailable) || first {
		t.Errorf("Claim: %v, %v", first, err)
	}
	if _, err := r.Revoked(short(), 0); !errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("Revoked: %v", err)
	}
	if _, err := r.RevokedVersions(short()); !errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("RevokedVersions: %v", err)
	}
	if took := time.Since(began); took > r.opts.CallTimeout/2 {
		t.Errorf("that took %v", took)
	}
	r.redis.Cont()
	r.eventually(func() bool { // the order may stand, and is repeated safely
		receipt, err := r.order(eventlog.Revoke, "a")
		return err == nil && !receipt.ID.IsZero()
	})
}

// TestOrdersWithFullMemory: a device must be kept out exactly then, too.
func TestOrdersWithFullMemory(t *testing.T) {
	r := newRig(t, nil, testkit.RedisConfig("maxmemory 6mb", "maxmemory-policy noeviction"))
	r.fill()
	r.redis.Do("CONFIG", "SET", "maxmemory", "3mb")
	for _, kind := range eventlog.ControlKinds() {
		if receipt, err := r.order(kind, "a"); err != nil || !receipt.Changed {
			t.Errorf("%s: %+v, %v", kind, receipt, err)
		}
	}
	if _, err := r.Claim(t.Context(), 0, "ticket", time.Hour); !errors.Is(err, eventlog.ErrFull) {
		t.Errorf("Claim: %v", err)
	}
}

// TestListWrittenByHand: whoever is on it is kept out, whatever stands there.
func TestListWrittenByHand(t *testing.T) {
	r := newRig(t, nil)
	r.redis.Do("HSET", revoked0, "x", "", "y", "no ID", "z", "5-1 line\nbreak")
	byDevice := map[string]eventlog.Revocation{}
	for _, one := range r.list().List {
		byDevice[one.Device] = one
	}
	want := map[string]eventlog.Revocation{"x": {Device: "x"}, "y": {Device: "y"}, "z": {Device: "z", ID: event.ID{Ms: 5, Seq: 1}}}
	if diff := cmp.Diff(want, byDevice); diff != "" {
		t.Error(diff)
	}
	if v := r.list().Version; v != (eventlog.ListVersion{Devices: 3}) {
		t.Errorf("version %+v", v)
	}
	if receipt, err := r.order(eventlog.Revoke, "y"); err != nil || receipt != (eventlog.Receipt{}) {
		t.Errorf("revoking who is on it by hand: %+v, %v", receipt, err)
	}
	receipt, err := r.order(eventlog.Restore, "y")
	if v := r.list().Version; err != nil || v != (eventlog.ListVersion{Born: receipt.ID, Last: receipt.ID, Changes: 1, Devices: 2}) {
		t.Errorf("restoring: %+v, %v, then version %+v", receipt, err, v)
	}
	for _, text := range []string{"", "1", "1-1 2-2", "1-1 2-2 x", "1-1 2-2 3 4", "1-1 2 3"} {
		r.redis.Do("HSET", revoked0, "", text)
		versions, err := r.RevokedVersions(t.Context())
		if got := r.list().Version; err != nil || got != (eventlog.ListVersion{Devices: 2}) || versions[0] != got {
			t.Errorf("%q is read as version %+v, and among all as %+v, %v", text, got, versions[0], err)
		}
		if _, err := r.order(eventlog.Restore, "z"); err != nil {
			t.Errorf("after the version %q: %v", text, err)
		}
		r.redis.Do("HSET", revoked0, "z", "")
	}
}

// TestOrderOrNothing: where the list can't be changed, no entry says that it was.
func TestOrderOrNothing(t *testing.T) {
	r := newRig(t, nil)
	r.redis.Do("SET", revoked0, "something else")
	if _, err := r.order(eventlog.Revoke, "a"); !errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("with a list of another type: %v", err)
	}
	if n := r.redis.Do("XLEN", stream0); n != int64(0) {
		t.Errorf("%v entries were added", n)
	}
	r.redis.Do("DEL", revoked0, stream0)
	r.redis.Do("XADD", stream0, event.MaxID.String(), "dev", "a", "type", "t", "payload", "p")
	if _, err := r.order(eventlog.Revoke, "a"); !errors.Is(err, eventlog.ErrExhausted) {
		t.Errorf("with no ID left: %v", err)
	}
	if list := r.list(); len(list.List) > 0 || list.Version != (eventlog.ListVersion{}) {
		t.Errorf("the list says %+v without an entry", list)
	}
}

// TestClaimsTellNoNames to who can read the log's keys.
func TestClaimsTellNoNames(t *testing.T) {
	r := newRig(t, nil)
	if first, err := r.Claim(t.Context(), 0, "s3cret-ticket", time.Hour); err != nil || !first {
		t.Fatal(first, err)
	}
	for _, key := range r.redis.Do("KEYS", "*").([]any) {
		if strings.Contains(key.(string), "s3cret") {
			t.Errorf("a key is %s", key)
		}
	}
}
