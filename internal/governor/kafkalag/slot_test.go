package kafkalag

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"downlink/internal/governor"
	"downlink/internal/testkit"
)

// A slot reads whom it holds by now, also if that changes while it reads.
func TestSlot(t *testing.T) {
	r := newRig(t).use()
	r.produce("moves", 0, 10)
	r.commit("scoring", "moves", 0, 4)
	r.commit("archive", "moves", 0, 1)
	slot := new(Slot)
	defer slot.Close()
	read := func() (governor.Reading, error) {
		ctx, cancel := context.WithTimeout(t.Context(), waiting)
		defer cancel()
		return slot.Read(ctx)
	}
	if got, err := read(); err != nil || !strings.Contains(got.None, "no consumer group") {
		t.Errorf("%+v, %v", got, err)
	}
	probe := func(group, broker string) *Probe {
		p, err := New(Options{Brokers: []string{broker}, Groups: []string{group}})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	slot.Set(probe("scoring", r.kafka.ListenAddrs()[0]))
	if got, err := read(); err != nil || got.Value != 6 {
		t.Errorf("%+v, %v", got, err)
	}
	proxy := testkit.StartProxy(t, r.kafka.ListenAddrs()[0])
	proxy.Stall()
	slot.Set(probe("scoring", proxy.Addr()))
	answered := make(chan governor.Reading)
	go func() {
		got, _ := read()
		answered <- got
	}()
	p := slot.now()
	testkit.Eventually(t, "it is being asked", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.admin != nil
	})
	slot.Set(probe("archive", r.kafka.ListenAddrs()[0]))
	select {
	case got := <-answered:
		if got.Value != 9 || got.Of != "group archive" {
			t.Errorf("%+v", got)
		}
	case <-time.After(waiting):
		t.Error("it still waits for the one before")
	}
	if _, err := p.client(); !errors.Is(err, errClosed) {
		t.Errorf("the one before is still asked: %v", err)
	}
	slot.Close()
	late := probe("scoring", r.kafka.ListenAddrs()[0])
	slot.Set(late)
	if got, err := read(); err != nil || got.None == "" {
		t.Errorf("closed: %+v, %v", got, err)
	}
	if got, err := late.Read(t.Context()); err == nil {
		t.Errorf("closed: %+v", got)
	}
}
