package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"downlink/examples/hunt/players"
)

// A summary is what became of a run. Its JSON form is kept in results/.
type summary struct {
	Kind     kind   `json:"kind"`
	Gateways int    `json:"gateways"`
	Crowds   int    `json:"crowds"`
	On       string `json:"on"`
	Players  int    `json:"players"`
	hunt     hunt
	Samples  []sample `json:"-"` // the CSV

	Peak      float64 `json:"memory_peak"`      // of maxmemory
	Refused   int64   `json:"redis_refused"`    // commands, for want of memory
	Waiting   int     `json:"most_waiting"`     // at once, in the waiting room
	Longest   float64 `json:"longest_wait"`     // seconds until somebody was let in, or the end
	Playing   int     `json:"playing"`          // at the end
	Throttled int     `json:"most_throttled"`   // at once: they play and were refused a stream
	Freezes   int64   `json:"freezes"`          // a player saw no board for 5 s although it moved
	Frozen    int     `json:"most_frozen"`      // at once
	Thousand  float64 `json:"freezes_per_1000"` // players who were let in
	Board     int     `json:"board_p95_ms"`     // from when the game read it until a player saw it
	Sight     int     `json:"sight_p95_ms"`     // from the oldest answer in it
	Next      int     `json:"assignment_p95_ms"`
	Ask       float64 `json:"ask_p95_ms"`    // the governor, by the game
	Update    float64 `json:"update_p95_ms"` // from the oldest answer in a board until Downlink has it, as the game says
	Lagging   float64 `json:"lag_seconds"`   // the longest time that queues were not normal
	Lag       float64 `json:"most_lag"`
	Outbox    float64 `json:"most_outbox"`
	Solved    int64   `json:"solved"`
	Turned    int64   `json:"turned_away"` // answers and questions, with 503
	Missing   int64   `json:"drops_missing"`
	Unread    int64   `json:"players_unread"` // who couldn't be asked for what is missing
	Drops     int64   `json:"drops"`
	Impatient int64   `json:"impatient"`
	Faults    int64   `json:"faults"`
	Admitted  float64 `json:"admitted_least"` // the fewest that might play by the governor; -1: it held nobody back
}

// A queue is normal while a gateway has not more entries to hand over than this, and
// while the next assignment comes within this time, in ms, at p95.
const (
	normal = 1000
	prompt = 5000
)

// lags reports whether queues aren't normal, if they were so a second before or not.
func (s sample) lags(before bool) bool {
	switch {
	case s.Lag > normal || s.WaitP95 > prompt:
		return true
	case s.WaitP95 < 0: // nothing has come at all
		return before
	}
	return false
}

// conclude works out what the samples say, and what can only be asked in the end.
func (s *summary) conclude(ctx context.Context, p *place, r *players.Report) {
	s.Admitted = -1
	lagging := -1.0
	for _, one := range s.Samples {
		s.Peak, s.Refused = max(s.Peak, one.Memory), max(s.Refused, one.Refused)
		s.Waiting, s.Throttled, s.Frozen = max(s.Waiting, one.Waiting), max(s.Throttled, one.Throttled), max(s.Frozen, one.Frozen)
		s.Lag, s.Outbox = max(s.Lag, one.Lag), max(s.Outbox, one.Outbox)
		if one.Admission >= 0 && one.Admission < 1 && (s.Admitted < 0 || one.Admitted < s.Admitted) {
			s.Admitted = one.Admitted
		}
		switch lags := one.lags(lagging >= 0); {
		case !lags:
			lagging = -1
		case lagging < 0:
			lagging = one.At
		}
		if lagging >= 0 {
			s.Lagging = max(s.Lagging, one.At-lagging)
		}
	}
	m, err := measure(ctx, p.game)
	for tries := 0; err != nil && tries < 20; tries++ { // there is no next second to ask in
		m, err = measure(ctx, p.game)
	}
	if err == nil {
		s.Ask = m.quantile("hunt_governor_ask_seconds", "", 0.95) * 1000
		s.Update = m.quantile("hunt_update_seconds", `what="board",`, 0.95) * 1000
	}
	if r == nil {
		return
	}
	s.Playing, s.Longest, s.Freezes = r.Joined, r.Longest.Seconds(), r.Last.Freezes
	s.Thousand = float64(s.Freezes) / max(float64(r.Joined)/1000, 0.001)
	s.Board, s.Sight, s.Next = r.Boards.Quantile(0.95), r.Sights.Quantile(0.95), r.Waits.Quantile(0.95)
	s.Solved, s.Turned, s.Faults = r.Last.Solved, r.Last.Turned, r.Last.Faults
	s.Missing, s.Unread, s.Drops, s.Impatient = r.Missing, r.Unread, r.Drops, r.Impatient
}

// A demand is what a kind of run has to show.
type demand struct {
	what string
	met  bool
}

// demands are those of issue and story: what killed the first hunt, and what the
// second one has to keep.
func (s *summary) demands() []demand {
	switch s.Kind {
	case governed:
		return []demand{
			{fmt.Sprintf("Redis's memory peaks at 82 %% or less (%.1f %%)", s.Peak*100), s.Peak <= 0.82},
			{fmt.Sprintf("Redis refuses nothing for want of memory (%d)", s.Refused), s.Refused == 0},
			{fmt.Sprintf("queues are normal again within 3 minutes (%.0f s)", s.Lagging), s.Lagging < 180},
			{fmt.Sprintf("fewer than 2 freezes per 1,000 players (%.2f)", s.Thousand), s.Thousand < 2},
			{fmt.Sprintf("a board reaches players within 100 ms of being read, at p95 (%d ms)", s.Board), s.Board >= 0 && s.Board <= 100},
			{fmt.Sprintf("asking the governor takes 5 ms at most at p95 (%.3g ms)", s.Ask), s.Ask > 0 && s.Ask <= 5},
			{fmt.Sprintf("the governor had to hold people back (%d waited at once)", s.Waiting), s.Waiting > 0},
		}
	case capped:
		return []demand{
			{fmt.Sprintf("Redis's memory reaches 95 %% (%.1f %%)", s.Peak*100), s.Peak >= 0.95},
			{fmt.Sprintf("players are throttled (%d at once)", s.Throttled), s.Throttled > 0},
			{fmt.Sprintf("players see the board freeze (%d times)", s.Freezes), s.Freezes > 0},
		}
	case open:
	}
	return []demand{{fmt.Sprintf("Redis's memory reaches 95 %% (%.1f %%)", s.Peak*100), s.Peak >= 0.95}}
}

func (s *summary) verdict() error {
	var failed []string
	for _, d := range s.demands() {
		if !d.met {
			failed = append(failed, d.what)
		}
	}
	if len(failed) > 0 {
		return errors.New("the run didn't show what it is there to show: " + strings.Join(failed, "; "))
	}
	return nil
}

// print says what became of it, for people.
func (s *summary) print(to io.Writer) error {
	var text strings.Builder
	for _, d := range s.demands() {
		mark := "ok  "
		if !d.met {
			mark = "FAIL"
		}
		text.WriteString(mark + " " + d.what + "\n")
	}
	rows := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	row := func(name string, value any) { _, _ = fmt.Fprintf(rows, "  %s\t%v\n", name, value) } // memory takes all
	row("waiting at once, at most", s.Waiting)
	row("longest wait, s", fmt.Sprintf("%.0f", s.Longest))
	row("playing at the end", s.Playing)
	row("refused a stream, at most", s.Throttled)
	row("freezes", s.Freezes)
	row("frozen at once, at most", s.Frozen)
	row("from an answer to a board with it, with the pause between boards, at p95, ms", s.Sight)
	row("until Downlink has that board, by the game's buckets, at p95, ms, at most", s.Update)
	row("from an answer to the next map at p95, ms", s.Next)
	row("fewest that might play", math.Round(s.Admitted))
	row("most entries behind", s.Lag)
	row("most events waiting in the game", s.Outbox)
	row("solved", s.Solved)
	row("turned away with 503", s.Turned)
	row("drops, missing, and not asked", fmt.Sprintf("%d, %d, %d", s.Drops, s.Missing, s.Unread))
	row("waited a minute for an assignment", s.Impatient)
	row("other faults", s.Faults)
	row("commands refused by Redis", s.Refused)
	_ = rows.Flush()
	_, err := io.WriteString(to, text.String())
	return err
}

// write keeps the run.
func (s *summary) write(prefix string) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(prefix+".json", append(text, '\n'), 0o644); err != nil { //nolint:gosec // for all to read
		return err
	}
	file, err := os.Create(prefix + ".csv")
	if err != nil {
		return err
	}
	out := csv.NewWriter(file)
	_ = out.Write(columns) // Error says it
	for _, one := range s.Samples {
		_ = out.Write(one.row())
	}
	out.Flush()
	return errors.Join(out.Error(), file.Close())
}

// columns name what a row of the CSV holds.
var columns = []string{ //nolint:gochecknoglobals // names
	"seconds", "memory", "redis_refused", "admission_ratio", "admitted_maximum", "connections_maximum", "publish_ratio", "publish_maximum", "streams",
	"tail_lag", "outbox", "waiting", "playing", "throttled", "frozen", "freezes", "streams_refused", "solved", "turned_away", "board_p95_ms", "assignment_p95_ms",
}

func (s sample) row() []string {
	part := func(v float64) string { return strconv.FormatFloat(v, 'f', 4, 64) }
	whole := func(v float64) string { return strconv.FormatFloat(v, 'f', 0, 64) }
	count := func(v int64) string { return strconv.FormatInt(v, 10) }
	return []string{
		whole(s.At), part(s.Memory), count(s.Refused), part(s.Admission), whole(s.Admitted), whole(s.Connections), part(s.Publish), whole(s.Rate), whole(s.Streams),
		whole(s.Lag), whole(s.Outbox), strconv.Itoa(s.Waiting), strconv.Itoa(s.Playing), strconv.Itoa(s.Throttled), strconv.Itoa(s.Frozen),
		count(s.Freezes), count(s.Second.Refused), count(s.Solved), count(s.Turned), strconv.Itoa(s.BoardP95), strconv.Itoa(s.WaitP95),
	}
}

// machine says where it ran, and when.
func machine() string {
	return fmt.Sprintf("%s, %d processors, %s, %s", time.Now().UTC().Format("2006-01-02"), runtime.NumCPU(), runtime.GOOS+"/"+runtime.GOARCH, runtime.Version())
}
