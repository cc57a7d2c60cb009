package dial

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"downlink/internal/event"
)

// TestWhatADeviceCosts that gets POSTs and is quiet: no goroutine, no connection,
// and a bounded piece of memory.
func TestWhatADeviceCosts(t *testing.T) {
	const devices = 20_000
	r := newRig(t, Post, func(o *Options) { o.Poster = new(posted) })
	for i := range devices {
		id := fmt.Sprint("store-", i)
		r.log.kept[id] = event.ID{Ms: 1000}
		r.list(id, "http://store.example.com/events")
	}
	goroutines, before := runtime.NumGoroutine(), liveHeap()
	r.take(7, time.Hour)
	until(t, "all links", func() bool { return len(r.engine.Status()) == 1 && r.engine.Status()[0].Connected == devices })
	each := (liveHeap() - before) / devices
	t.Logf("%d bytes a device", each)
	if each > 1100 {
		t.Errorf("%d bytes a device, allowed are 1100", each)
	}
	if n := runtime.NumGoroutine() - goroutines; n > devices/100 {
		t.Errorf("%d goroutines more", n)
	}
}

func liveHeap() int64 {
	var m runtime.MemStats
	for range 2 { // the first one may have been running already
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
