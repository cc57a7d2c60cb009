package conn

import "testing"

// A queue that is never empty keeps no room for those who have left it.
func TestABusyQueueStaysSmall(t *testing.T) {
	q := newQueue()
	push := func(slot int) { q.push(&light{slot: slot}) }
	for i := range 100 {
		push(i)
	}
	var got []*light
	for i := range 200_000 {
		push(100 + i)
		if got = q.take(got[:0], 1); got[0].slot != i {
			t.Fatalf("number %d comes at %d", got[0].slot, i)
		}
	}
	if cap(q.items) > 8*keptQueue {
		t.Errorf("room for %d with 100 in it", cap(q.items))
	}
}

func TestAQueueDrainsBeforeItEnds(t *testing.T) {
	q := newQueue()
	q.push(&light{})
	q.close()
	if got := q.take(nil, 8); len(got) != 1 {
		t.Errorf("%d are left", len(got))
	}
	if got := q.take(nil, 8); len(got) != 0 {
		t.Errorf("%d after the end", len(got))
	}
}

// The wheel calls everybody in its time, whatever was put, moved and removed.
func TestWheel(t *testing.T) {
	w := newWheel(12)
	conns := make([]*light, 30)
	for i := range conns {
		conns[i] = &light{slot: -1, fd: i}
		w.put(conns[i], int64(i)) // 0 means the next tick, what is out of reach the last one
	}
	w.remove(conns[5])
	w.remove(conns[5])
	w.put(conns[3], 9)
	due := map[int]int{}
	for tick := 1; tick <= 24; tick++ {
		for _, c := range w.turn(nil) {
			if due[c.fd] != 0 {
				t.Errorf("%d is called twice", c.fd)
			}
			due[c.fd] = tick
		}
	}
	for i := range conns {
		want := min(max(i, 1), 11)
		switch i {
		case 5:
			want = 0
		case 3:
			want = 9
		}
		if due[i] != want {
			t.Errorf("%d is called at %d, want %d", i, due[i], want)
		}
	}
}
