package lobby

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// Who comes back finds room and a turn that newcomers don't get.
func TestReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(Options{Streams: is(10), Reserve: is(2)})
		ask := func(back bool) Reason {
			why, _ := arrive(l, "192.0.2.1").guest.Visit(netip.Addr{}).Admit(back)
			return why
		}
		for range 10 {
			if why := ask(false); why != "" {
				t.Fatal(why)
			}
		}
		for i, want := range []Reason{"", "", Full} {
			if fresh, back := ask(false), ask(true); fresh != Full || back != want {
				t.Errorf("%d: a newcomer gets %q, who comes back %q", i, fresh, back)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		l := open(Options{Rate: is(10), RateReserve: is(4)})
		count := func(back bool) (n int) {
			for range 20 {
				if why, _ := arrive(l, "192.0.2.1").guest.Visit(netip.Addr{}).Admit(back); why == "" {
					n++
				}
			}
			return n
		}
		if fresh, back := count(false), count(true); fresh != 6 || back != 4 {
			t.Errorf("%d newcomers began, and %d who came back", fresh, back)
		}
		time.Sleep(time.Second) //nolint:forbidigo // in a bubble
		if back, fresh := count(true), count(false); back != 10 || fresh != 0 {
			t.Errorf("%d who came back began, and %d newcomers", back, fresh)
		}
	})
}
