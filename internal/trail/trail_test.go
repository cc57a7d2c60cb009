package trail

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"
)

func newTrail(entries int) *Trail {
	return New(Options{Entries: func() int { return entries }, Metrics: NewMetrics(nil)})
}

func words(entries []Entry) (all []string) {
	for _, e := range entries {
		all = append(all, fmt.Sprintf("%s %s %d", e.Kind, e.Word, e.Times))
	}
	return all
}

func TestWhatHappenedIsToldNewestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trail, began := newTrail(100), time.Now()
		trail.Note("a", false, Entry{Kind: Refused, Word: "draining", Address: "192.0.2.1:1"})
		time.Sleep(time.Second) //nolint:forbidigo // in a bubble
		for i := range 3 {
			time.Sleep(time.Second) //nolint:forbidigo // in a bubble
			trail.Note("a", false, Entry{Kind: Ended, Word: "client_gone", Address: fmt.Sprint("192.0.2.1:", i), Since: began})
		}
		trail.Note("a", true, Entry{Kind: Refused, Word: "token_expired", Detail: strings.Repeat("é", 200)})
		trail.Note("", true, Entry{Kind: Refused, Word: "token_missing"})
		proven, claimed := trail.Of("a")
		if got := words(proven); !slices.Equal(got, []string{"ended client_gone 3", "refused draining 1"}) {
			t.Fatal(got)
		}
		e := proven[0]
		if e.First.Sub(began) != 2*time.Second || e.Last.Sub(began) != 4*time.Second || e.Address != "192.0.2.1:2" || e.Since != began {
			t.Errorf("%+v", e)
		}
		if len(claimed) != 1 || claimed[0].Detail != strings.Repeat("é", 100)+"…" {
			t.Errorf("%+v", claimed)
		}
		if got := words(trail.Nameless()); !slices.Equal(got, []string{"refused token_missing 1"}) {
			t.Error(got)
		}
	})
}

// TestAFloodDisplacesOnlyWhatProvesNothing: neither requests that prove nothing,
// nor one device that comes and goes, take the memory of others away.
func TestAFloodDisplacesOnlyWhatProvesNothing(t *testing.T) {
	trail := newTrail(50)
	for i := range 10 {
		trail.Note(fmt.Sprint("device-", i), false, Entry{Kind: Ended, Word: "client_gone"})
	}
	for i := range 1000 {
		trail.Note(fmt.Sprint("device-", i), true, Entry{Kind: Refused, Word: "token_signature"})
		trail.Note("device-0", false, Entry{Kind: Ended, Word: fmt.Sprint(i % 2)})
	}
	for i := range 10 {
		if proven, _ := trail.Of(fmt.Sprint("device-", i)); len(proven) == 0 {
			t.Errorf("device-%d is forgotten", i)
		}
	}
	if n := testutil.ToFloat64(trail.opts.Metrics.claimed); n != 50 {
		t.Errorf("%v claimed entries", n)
	}
	if n := testutil.ToFloat64(trail.opts.Metrics.proven); n != 9+perDevice {
		t.Errorf("%v proven entries", n)
	}
}

// TestBook holds a book against a list of everything: bounded, newest kept,
// forgotten from the device that was silent for longest.
func TestBook(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBook()
		heard := map[string]int{} // when something was last heard of a device
		for i := range rapid.IntRange(1, 300).Draw(t, "n") {
			device := rapid.StringMatching(`[a-f]`).Draw(t, "device")
			most := rapid.IntRange(1, 20).Draw(t, "most")
			heard[device] = i
			b.note(device, Entry{Word: rapid.StringMatching(`[x-z]`).Draw(t, "word"), Times: 1}, most)
			check(t, &b, heard, device, most)
		}
	})
}

func check(t *rapid.T, b *book, heard map[string]int, latest string, most int) {
	entries, before := 0, -1
	for r := b.first; r != nil; r = r.next {
		if b.devices[r.device] != r || len(r.entries) == 0 || len(r.entries) > perDevice {
			t.Fatalf("the record of %s is wrong: %+v", r.device, r)
		}
		if heard[r.device] < before {
			t.Fatalf("%s isn't in its turn", r.device)
		}
		before, entries = heard[r.device], entries+len(r.entries)
		for i := 1; i < len(r.entries); i++ {
			if r.entries[i].Word == r.entries[i-1].Word {
				t.Fatalf("%s has the same thing twice", r.device)
			}
		}
	}
	if entries != b.entries || entries > most || b.last.device != latest {
		t.Fatalf("%d entries, counted %d, allowed %d; the last is of %s", entries, b.entries, most, b.last.device)
	}
	for device := range heard {
		if (b.devices[device] != nil) != (len(b.of(device)) > 0) {
			t.Fatalf("%s is there and isn't", device)
		}
	}
}

// BenchmarkNote is what a crowd of 10,000 devices pays that comes and goes.
func BenchmarkNote(b *testing.B) {
	for _, entries := range []int{1000, 100_000} {
		b.Run(fmt.Sprint("entries=", entries), func(b *testing.B) {
			trail := newTrail(entries)
			names := make([]string, 10_000)
			for i := range names {
				names[i] = fmt.Sprintf("store-%04d/pos-1", i)
			}
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					word := "client_gone"
					if i/len(names)%2 == 1 {
						word = "lifetime"
					}
					trail.Note(names[i%len(names)], false, Entry{Kind: Ended, Word: word, Address: "192.0.2.1:50000"})
				}
			})
		})
	}
}
