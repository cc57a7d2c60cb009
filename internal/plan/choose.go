package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Answers to the questions that decide how to reach devices. Empty or 0: not
// answered.
type Answers struct {
	Reach  string        // who can open a connection: "both", or only the "centre"
	Open   string        // must it stay open: "yes", "no"
	Double string        // is a second one, or an event that comes twice, "harmless" or an "accident"
	Gap    time.Duration // that a device may be without a connection
}

// A Question is one that comes before any choice.
type Question struct {
	Flag    string // of the command line, which answers it
	Text    string
	Answers []Lead
}

// A Lead is where an answer leads.
type Lead struct{ Answer, To string }

// Words are what can be answered.
func (q Question) Words() []string {
	words := make([]string, len(q.Answers))
	for i, lead := range q.Answers {
		words[i] = lead.Answer
	}
	return words
}

// Questions are to be asked in this order; most readers are done after the
// first or the second.
func Questions() []Question {
	return []Question{
		{
			Flag: "reach", Text: "Before all: can the devices open a connection to you?",
			Answers: []Lead{
				{"both", "Yes, even through NAT, a proxy or port 443 only: use `downlink serve`. There is nothing to own and nothing to take over; none of what follows is needed."},
				{"centre", "No, only the centre can connect to them: go on."},
			},
		},
		{
			Flag: "open", Text: "1. Must the connection stay open?",
			Answers: []Lead{
				{"no", "A device may be called when there is something for it, and your producer can repeat a call: `--owner none --transport post`. No log, no owner, no lease."},
				{"yes", "Events must be there within a moment, in order, and be kept while a device is away: go on."},
			},
		},
		{
			Flag: "double", Text: "2. Is a double connection really an accident, or do idempotency keys make it harmless?",
			Answers: []Lead{
				{"harmless", "Devices drop an event that they have had, by its ID: `--owner static --replication 2`. Two members deliver each event, without knowing of each other; one may die and nobody waits."},
				{"accident", "A device must never listen to two senders at once: go on."},
			},
		},
		{
			Flag: "gap", Text: "3. How long may a device be without a connection?",
			Answers: []Lead{
				{"a duration", "As long as `downlink plan ring` computes for the crash of a member, or longer: `--owner ring`. Shorter: no lease can do it, since a member that is only slow must not be taken for dead; make doubles harmless and take `static`."},
			},
		},
	}
}

// An Advice is where answers lead.
type Advice struct {
	Use string // a command; "" while Next is to be answered first
	Why string
	// Next is the index of the question that decides further; -1: none.
	Next int
}

// Choose follows the answers as far as they go. longest is how long the ring
// leaves a device without a connection at worst.
func Choose(a Answers, longest time.Duration) Advice {
	questions := Questions()
	ask := func(i int) Advice { return Advice{Next: i, Why: questions[i].Text} }
	done := func(use string, question, lead int) Advice {
		return Advice{Use: use, Why: questions[question].Answers[lead].To, Next: -1}
	}
	switch {
	case a.Reach == "":
		return ask(0)
	case a.Reach == "both":
		return done("downlink serve", 0, 0)
	case a.Open == "":
		return ask(1)
	case a.Open == "no":
		return done("downlink dial --owner none --transport post", 1, 0)
	case a.Double == "":
		return ask(2)
	case a.Double == "harmless":
		return done("downlink dial --owner static --replication 2", 2, 0)
	case a.Gap == 0:
		return ask(3)
	case a.Gap < longest:
		return Advice{Use: "downlink dial --owner static --replication 2", Next: -1, Why: fmt.Sprintf("After the crash of a member the ring needs up to %v, as `downlink plan ring` computes: less with more members, more dials a second or a shorter lease. Where that isn't enough, make doubles harmless: let devices drop an event that they have had, by its ID.", longest)}
	}
	return Advice{Use: "downlink dial --owner ring", Next: -1, Why: fmt.Sprintf("One member at a time holds the lease of a device's shard, and the generation tells the device who is the newer one. After a crash the last device is back within %v.", longest)}
}

// Answer takes one answer, to the question with that flag.
func (a *Answers) Answer(flag, answer string) error {
	if flag == "gap" {
		gap, err := time.ParseDuration(answer)
		if err != nil || gap <= 0 {
			return errors.New("gap: answer with a duration, such as 30s or 2m")
		}
		a.Gap = gap
		return nil
	}
	for _, q := range Questions() {
		if q.Flag == flag && !slices.Contains(q.Words(), answer) {
			return fmt.Errorf("%s: answer %s", flag, strings.Join(q.Words(), " or "))
		}
	}
	switch flag {
	case "reach":
		a.Reach = answer
	case "open":
		a.Open = answer
	case "double":
		a.Double = answer
	}
	return nil
}
