package logtest

import (
	"fmt"
	"strings"
	"time"

	"downlink/internal/event"
	"downlink/internal/eventlog"
)

func rangeCases() []testCase {
	return []testCase{
		{name: "bounds", run: rangeBounds},
		{name: "pages join without a seam", run: rangePages},
		{name: "an entry over the page's size", run: rangeOneBig},
		{name: "after a sweep", opts: Options{Window: shortWindow}, run: rangeSwept},
	}
}

func (r *rig) page(shard int, after, upTo event.ID, maxBytes int) eventlog.Page {
	r.Helper()
	page, err := r.Log.Range(r.ctx, shard, after, upTo, maxBytes)
	if err != nil {
		r.Fatalf("Range(%s, %s]: %v", after, upTo, err)
	}
	return page
}

func idsOf(entries []eventlog.Entry) string {
	var ids []string
	for _, e := range entries {
		ids = append(ids, e.ID.String())
	}
	return strings.Join(ids, " ")
}

func (r *rig) wantPage(page eventlog.Page, through event.ID, ids ...event.ID) {
	r.Helper()
	var want []string
	for _, id := range ids {
		want = append(want, id.String())
	}
	if got := idsOf(page.Entries); got != strings.Join(want, " ") || page.Through != through {
		r.Errorf("page holds %q through %s, want %q through %s", got, page.Through, strings.Join(want, " "), through)
	}
}

func rangeBounds(r *rig) {
	founded := r.founded[1].Founded
	r.wantPage(r.page(1, founded, founded, 1<<20), founded)
	ids := r.appendN(1, 4)
	head := ids[3]
	r.wantPage(r.page(1, event.ID{}, head, 1<<20), head, ids...)
	r.wantPage(r.page(1, founded, head, 1<<20), head, ids...)
	r.wantPage(r.page(1, ids[0], ids[2], 1<<20), ids[2], ids[1], ids[2])
	r.wantPage(r.page(1, ids[1], ids[1], 1<<20), ids[1])
	r.wantPage(r.page(1, head, head, 1<<20), head)
	r.wantPage(r.page(0, founded, r.founded[0].Founded, 1<<20), r.founded[0].Founded)
	// An upper end that no entry has.
	r.pass(5 * time.Millisecond)
	later := r.appendN(1, 1)[0]
	if between := head.Next(); between.Less(later) {
		r.wantPage(r.page(1, ids[2], between, 1<<20), between, head)
	}
}

func rangePages(r *rig) {
	var want []event.ID
	for i := range 40 {
		want = append(want, r.append(0, order(r.device(0, 0), fmt.Sprintf("%0*d", 50+i%30, i)))...)
	}
	head := want[len(want)-1]
	for _, maxBytes := range []int{1, 500, 1 << 12, 1 << 20} {
		var got []eventlog.Entry
		for at, pages := (event.ID{}), 0; at != head; pages++ {
			page := r.page(0, at, head, maxBytes)
			if len(page.Entries) == 0 || pages > len(want) {
				r.Fatalf("maxBytes %d: page %d after %s is empty, through %s", maxBytes, pages, at, page.Through)
			}
			size := 0
			for _, e := range page.Entries[:len(page.Entries)-1] {
				size += len(e.Event.Payload)
			}
			if size > maxBytes {
				r.Errorf("maxBytes %d: %d bytes of payload before the last entry of a page", maxBytes, size)
			}
			if last := page.Entries[len(page.Entries)-1].ID; page.Through != last && page.Through != head {
				r.Errorf("Through is %s; want the last entry's ID %s or the asked end", page.Through, last)
			}
			got, at = append(got, page.Entries...), page.Through
		}
		r.wantPage(eventlog.Page{Entries: got, Through: head}, head, want...)
	}
}

func rangeOneBig(r *rig) {
	big := r.append(0, order(r.device(0, 0), strings.Repeat("b", 100<<10)))[0]
	small := r.appendN(0, 1)[0]
	page := r.page(0, event.ID{}, small, 10)
	r.wantPage(page, big, big)
	r.wantPage(r.page(0, page.Through, small, 10), small, small)
}

func rangeSwept(r *rig) {
	old := r.appendN(0, 3)
	r.sweepTo(0, old[2])
	r.wantPage(r.page(0, event.ID{}, old[2], 1<<20), old[2])
	fresh := r.appendN(0, 1)[0]
	r.wantPage(r.page(0, old[0], fresh, 1<<20), fresh, fresh)
}
