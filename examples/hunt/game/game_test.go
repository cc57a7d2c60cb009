package game

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"downlink/internal/testkit"
)

// TestPlay: a player joins, solves, and is told everything on its stream.
func TestPlay(t *testing.T) {
	t.Parallel()
	r := start(t, testkit.StartRedis(t), nil, "")
	ada, bob := r.join("Ada"), r.join("Bob")
	stream, others := r.stream(ada), r.stream(bob)
	if ada.Player == bob.Player || ada.Challenge == bob.Challenge || ada.Challenge.Number != 1 {
		t.Fatalf("they have joined as %+v and %+v", ada, bob)
	}

	var wrong Solved
	if status, _ := r.ask("POST", "/solve", ada.Token, map[string]any{"challenge": 1, "answer": "A0"}, &wrong); status != 200 || wrong.Right {
		t.Fatalf("a wrong answer: %d %+v", status, wrong)
	}
	solved := r.solveRight(ada.Token, ada.Challenge)
	type reward struct {
		Drop
		Total, At int64
	}
	drop := next[reward](t, stream, "drop")
	if drop.Challenge != 1 || drop.Points != solved.Points || drop.Total != solved.Total || drop.Item == "" {
		t.Errorf("the answer was %+v, the reward is %+v", solved, drop)
	}
	second := next[Challenge](t, stream, "assignment")
	me := r.me(ada.Token)
	want := Me{Player: ada.Player, Name: "Ada", Events: ada.Events, Total: solved.Total, Rank: 1, Solved: 1, Challenge: second, Drops: []Drop{drop.Drop}}
	if diff := cmp.Diff(want, me); diff != "" {
		t.Errorf("the stream and /me differ: %s", diff)
	}
	board := next[Board](t, others, "board")
	for board.Version == 0 { // those from before
		board = next[Board](t, others, "board")
	}
	if diff := cmp.Diff([]Row{{ada.Player, "Ada", solved.Total}}, board.Top); diff != "" || board.Version != 1 || board.Players < 2 {
		t.Errorf("the board is %+v", board)
	}
	var same Board
	testkit.Eventually(t, "GET /leaderboard is that board, and counts two", func() bool {
		// Whoever joined while players were counted counts twice until the next count.
		status, _ := r.ask("GET", "/leaderboard", "", nil, &same)
		return status == 200 && cmp.Equal(board.Top, same.Top) && same.Players == 2
	})

	var repeated Solved
	if status, _ := r.solve(ada.Token, ada.Challenge, &repeated); status != 200 || !repeated.Repeated || repeated.Total != solved.Total {
		t.Errorf("a repeated answer: %d %+v, want what it was: %+v", status, repeated, solved)
	}
	var other refusal
	third := rules{1, 16}.challenge(ada.Player, 3)
	if status, _ := r.solve(ada.Token, third, &other); status != 409 || other.Challenge != 2 {
		t.Errorf("the answer to the next but one: %d %+v", status, other)
	}
	again := Ticket{}
	if r.ask("POST", "/join", ada.Token, map[string]string{"name": "Ada"}, &again); again.Player != ada.Player || again.Challenge != second || again.Total != solved.Total {
		t.Errorf("joining again gave %+v", again)
	}
}
