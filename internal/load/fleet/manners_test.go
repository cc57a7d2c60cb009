package fleet

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestManners(t *testing.T) {
	both(t, func(t *testing.T, portable bool) {
		var mu sync.Mutex
		said := map[string][]string{} // how the server saw each device's connections end
		s := serve(t, func(c net.Conn, r *http.Request) {
			lane := strings.TrimPrefix(r.URL.Path, "/")
			fmt.Fprintf(c, ok+": hello\n\n")
			_ = c.SetDeadline(time.Now().Add(waiting))
			b := make([]byte, 100)
			n, err := c.Read(b)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case n > 0:
				said[lane] = append(said[lane], "rubbish")
			case errors.Is(err, syscall.ECONNRESET):
				said[lane] = append(said[lane], "reset")
			case errors.Is(err, io.EOF):
				said[lane] = append(said[lane], "end")
			default:
				said[lane] = append(said[lane], err.Error())
			}
		})
		kinds := []Manner{Proper, Asleep, Slow, Resetting, HalfClose, Rubbish}
		f, seen := start(t, s, portable, func(o *Options) {
			o.Devices, o.ReadRate, o.Patience = len(kinds), 100, 50*time.Millisecond
			o.Manner = func(device int) Manner { return kinds[device] }
		})
		connect(t, f, 0, len(kinds))
		seen.await(t, "those with bad manners come back", func() bool {
			return seen.opened[3] >= 2 && seen.opened[4] >= 2 && seen.opened[5] >= 2
		})
		seen.await(t, "the server has seen them go", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(said["3"]) > 0 && len(said["4"]) > 0 && len(said["5"]) > 0
		})
		mu.Lock()
		defer mu.Unlock()
		for device, want := range map[string]string{"3": "reset", "4": "end", "5": "rubbish"} {
			if got := said[device]; len(got) == 0 || got[0] != want {
				t.Errorf("device %s was seen to %v, want %s", device, got, want)
			}
		}
		if len(said["0"])+len(said["1"])+len(said["2"]) > 0 {
			t.Errorf("the others ended, too: %v", said)
		}
		seen.note(func() {
			if !ByManner(seen.closed[3]) || ByManner(seen.closed[4]) || seen.opened[0] != 1 {
				t.Errorf("%v %v", seen.closed, seen.opened)
			}
		})
	})
}

// TestSleepersAreWoken: a device that sleeps hears nothing, and everything
// once it is woken; a slow one hears little.
func TestSleepersAreWoken(t *testing.T) {
	both(t, func(t *testing.T, portable bool) {
		const events = 300
		allOpen := make(chan struct{}) // else the first read of a stream would hold events, too
		s := serve(t, func(c net.Conn, r *http.Request) {
			fmt.Fprint(c, ok)
			<-allOpen
			lane := strings.TrimPrefix(r.URL.Path, "/")
			for seq := range events {
				fmt.Fprintf(c, "data: dl1:%s:%d:1:0;\n\n", lane, seq)
			}
			hang(c)
		})
		kinds := []Manner{Proper, Asleep, Slow}
		f, seen := start(t, s, portable, func(o *Options) {
			o.Devices, o.ReadRate = len(kinds), 50
			o.Manner = func(device int) Manner { return kinds[device] }
		})
		connect(t, f, 0, len(kinds))
		close(allOpen)
		seen.await(t, "the proper one hears all", func() bool { return len(seen.events[0]) == events })
		seen.note(func() {
			if len(seen.events[1]) > events/2 || len(seen.events[2]) > events/2 {
				t.Errorf("those that don't read heard %d and %d", len(seen.events[1]), len(seen.events[2]))
			}
		})
		f.Wake(1)
		f.Wake(2)
		seen.await(t, "the others hear all", func() bool { return len(seen.events[1]) == events && len(seen.events[2]) == events })
	})
}
