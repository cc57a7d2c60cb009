package fleet

import "container/heap"

// A move is what a device that misbehaves does next by itself: it resets its
// connection, or comes back.
type move struct {
	at     int64 // ns since 1970
	device int
	life   int32 // the conn's; when that is another, the move is void
}

// An agenda holds moves, of which the next one stands first.
type agenda []move

func (a *agenda) add(m move) { heap.Push(a, m) }

// due takes the next move, if its time has come.
func (a *agenda) due(now int64) (move, bool) {
	if len(*a) == 0 || (*a)[0].at > now {
		return move{}, false
	}
	return heap.Pop(a).(move), true
}

// Len, Less, Swap, Push and Pop are for container/heap.
func (a agenda) Len() int           { return len(a) }
func (a agenda) Less(i, j int) bool { return a[i].at < a[j].at }
func (a agenda) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(m any)        { *a = append(*a, m.(move)) }

func (a *agenda) Pop() any {
	last := len(*a) - 1
	m := (*a)[last]
	*a = (*a)[:last]
	return m
}
