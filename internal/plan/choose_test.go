package plan_test

import (
	"strings"
	"testing"
	"time"

	"downlink/internal/plan"
)

func TestWhereAnswersLead(t *testing.T) {
	for _, c := range []struct {
		answers plan.Answers
		use     string
		next    int
	}{
		{plan.Answers{}, "", 0},
		{plan.Answers{Double: "accident"}, "", 0},
		{plan.Answers{Reach: "both"}, "downlink serve", -1},
		{plan.Answers{Reach: "both", Open: "yes", Double: "accident"}, "downlink serve", -1},
		{plan.Answers{Reach: "centre"}, "", 1},
		{plan.Answers{Reach: "centre", Open: "no"}, "downlink dial --owner none --transport post", -1},
		{plan.Answers{Reach: "centre", Open: "yes"}, "", 2},
		{plan.Answers{Reach: "centre", Open: "yes", Double: "harmless"}, "downlink dial --owner static --replication 2", -1},
		{plan.Answers{Reach: "centre", Open: "yes", Double: "accident"}, "", 3},
		{plan.Answers{Reach: "centre", Open: "yes", Double: "accident", Gap: time.Minute}, "downlink dial --owner ring", -1},
		{plan.Answers{Reach: "centre", Open: "yes", Double: "accident", Gap: time.Second}, "downlink dial --owner static --replication 2", -1},
	} {
		a := plan.Choose(c.answers, 30*time.Second)
		if a.Use != c.use || a.Next != c.next || a.Why == "" {
			t.Errorf("%+v: %+v, want %q %d", c.answers, a, c.use, c.next)
		}
	}
}

func TestAnswers(t *testing.T) {
	for _, c := range []struct{ flag, answer, want string }{
		{"reach", "both", ""}, {"open", "yes", ""}, {"double", "harmless", ""}, {"gap", "30s", ""},
		{"reach", "yes", "both or centre"}, {"open", "", "no or yes"}, {"double", "no", "harmless or accident"},
		{"gap", "30", "a duration"}, {"gap", "-1s", "a duration"},
	} {
		var given plan.Answers
		err := given.Answer(c.flag, c.answer)
		if c.want == "" && (err != nil || given == plan.Answers{}) {
			t.Errorf("%s %s: %v %+v", c.flag, c.answer, err, given)
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s %q: %v, want %q", c.flag, c.answer, err, c.want)
		}
	}
}
