package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"downlink/internal/plan"
)

// planCmd helps to decide how to reach devices, and what a ring costs.
type planCmd struct {
	Questions planQuestionsCmd `cmd:"" default:"withargs" help:"Ask the questions that decide how to reach devices, and say where the answers lead: most of them away from dialling."`
	Ring      planRingCmd      `cmd:"" help:"Say what it costs when a fleet of diallers grows or shrinks: devices that move, how long that takes, the longest time without a connection, renewals of leases."`
}

// leaseFlags are what decides how long a ring leaves a device alone.
type leaseFlags struct {
	Devices        int           `default:"50000" help:"Devices in all."`
	Shards         int           `default:"64" help:"Shards of the log."`
	TTL            time.Duration `name:"ttl" default:"15s" help:"As lease_ttl: how long a lease and a membership last that aren't renewed."`
	DialsPerSecond int           `default:"100" help:"As dials_per_second, of each member."`
	DialTime       time.Duration `default:"1s" help:"How long one dial takes, from its beginning until the device has said hello."`
}

func (f leaseFlags) change(members int) plan.Change {
	return plan.Change{Members: members, Devices: f.Devices, Shards: f.Shards, TTL: f.TTL, DialsPerSecond: f.DialsPerSecond, Dial: f.DialTime}
}

// planQuestionsCmd asks, on a terminal; elsewhere it prints, or answers what
// flags answer.
type planQuestionsCmd struct {
	Reach   string `placeholder:"both|centre" help:"Who can open a connection: both, or the centre only."`
	Open    string `placeholder:"yes|no" help:"Must the connection stay open?"`
	Double  string `placeholder:"harmless|accident" help:"What is a second connection, or an event that comes twice?"`
	Gap     string `placeholder:"D" help:"How long may a device be without a connection when a member crashes?"`
	Members int    `default:"3" help:"For the last question: diallers that share the devices; at least 2 where one may crash."`

	leaseFlags `embed:""`
}

// Run asks or prints.
func (c *planQuestionsCmd) Run(io console) error {
	change := c.change(c.Members)
	change.Add = 1
	p, err := plan.Ring(change)
	if err != nil {
		return usage(err)
	}
	if p.Crash == nil {
		return usage(fmt.Errorf("members is %d: a lease needs somebody who takes over, so it must be at least 2", c.Members))
	}
	longest := time.Duration(p.Crash.Without * float64(time.Second)).Round(time.Second)
	var given plan.Answers
	for _, answer := range []struct{ flag, is string }{{"reach", c.Reach}, {"open", c.Open}, {"double", c.Double}, {"gap", c.Gap}} {
		if answer.is == "" {
			continue
		}
		if err := given.Answer(answer.flag, answer.is); err != nil {
			return usage(fmt.Errorf("--%w", err))
		}
	}
	switch {
	case given != plan.Answers{}:
		return advise(io.out, plan.Choose(given, longest))
	case person(io):
		return converse(io, longest)
	}
	return list(io.out)
}

// person reports whether somebody can answer.
func person(io console) bool {
	in, ok := io.in.(*os.File)
	return ok && terminal(in) && terminal(io.out)
}

// list prints every question and where each answer leads.
func list(out io.Writer) error {
	var b strings.Builder
	for _, q := range plan.Questions() {
		fmt.Fprintln(&b, q.Text)
		for _, lead := range q.Answers {
			fmt.Fprintf(&b, "   --%s %s: %s\n", q.Flag, lead.Answer, lead.To)
		}
		b.WriteByte('\n')
	}
	b.WriteString("`downlink plan --reach centre --open yes …` follows your answers, `downlink plan ring` says what a ring costs,\nand docs/concepts/dialling.md what each choice guarantees.\n")
	_, err := io.WriteString(out, b.String())
	return err
}

// advise prints where the answers lead, or what is to be answered next.
func advise(out io.Writer, a plan.Advice) error {
	if a.Next < 0 {
		_, err := fmt.Fprintf(out, "%s\n\n%s\n", a.Use, a.Why)
		return err
	}
	q := plan.Questions()[a.Next]
	_, err := fmt.Fprintf(out, "%s\n(answer with --%s %s)\n", q.Text, q.Flag, strings.Join(q.Words(), "|"))
	return err
}

// converse asks one question after the other, until the answers decide.
func converse(io console, longest time.Duration) error {
	var given plan.Answers
	in := bufio.NewScanner(io.in)
	advice := plan.Choose(given, longest)
	for advice.Next >= 0 {
		q := plan.Questions()[advice.Next]
		fmt.Fprintf(io.out, "%s\n(%s) ", q.Text, strings.Join(q.Words(), "|")) //nolint:errcheck // the advice's write tells
		if !in.Scan() {
			return in.Err()
		}
		if err := given.Answer(q.Flag, strings.TrimSpace(in.Text())); err != nil {
			fmt.Fprintln(io.out, err) //nolint:errcheck // the advice's write tells
		}
		advice = plan.Choose(given, longest)
	}
	return advise(io.out, advice)
}

// planRingCmd computes what a change of the fleet costs.
type planRingCmd struct {
	Members int  `required:"" placeholder:"N" help:"Members there are."`
	Add     int  `xor:"change" placeholder:"K" help:"Members that join."`
	Remove  int  `xor:"change" placeholder:"K" help:"Members that leave, in order."`
	JSON    bool `name:"json" help:"Print JSON."`

	leaseFlags `embed:""`
}

// Run prints the plan.
func (c *planRingCmd) Run(io console) error {
	change := c.change(c.Members)
	change.Add, change.Remove = c.Add, c.Remove
	p, err := plan.Ring(change)
	if err != nil {
		return usage(err)
	}
	if c.JSON {
		e := json.NewEncoder(io.out)
		e.SetIndent("", "  ")
		return e.Encode(p)
	}
	return showRing(io.out, p)
}

// showRing prints a table for a person.
func showRing(out io.Writer, p plan.Plan) error {
	fmt.Fprintf(out, "%d -> %d members, %d devices in %d shards, leases of %s, %d dials a second by each member\n\n", //nolint:errcheck // Flush tells
		p.Members, p.After, p.Devices, p.Shards, seconds(p.TTL), p.Rate)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	columns := []plan.Cost{p.Hash, p.Static, p.Ring}
	header := "\thash % members\tstatic\tring"
	if p.Crash != nil {
		columns = append(columns, *p.Crash)
		header += "\tring, one crashes"
	}
	fmt.Fprintln(t, header) //nolint:errcheck // Flush tells
	for _, row := range []struct {
		name string
		cell func(plan.Cost) string
	}{
		{"devices that move", func(c plan.Cost) string {
			return fmt.Sprintf("%d (%.1f %%)", c.Moved, 100*float64(c.Moved)/float64(p.Devices))
		}},
		{"shards that move", func(c plan.Cost) string { return dash(c.Shards) }},
		{"members that dial", func(c plan.Cost) string { return dash(c.Diallers) }},
		{"largest wave of one member", func(c plan.Cost) string { return fmt.Sprintf("%d in %s", c.Wave, seconds(c.WaveS)) }},
		{"longest without a connection", func(c plan.Cost) string { return seconds(c.Without) }},
	} {
		fmt.Fprint(t, row.name) //nolint:errcheck // Flush tells
		for _, c := range columns {
			fmt.Fprintf(t, "\t%s", row.cell(c)) //nolint:errcheck // Flush tells
		}
		fmt.Fprintln(t) //nolint:errcheck // Flush tells
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, `
The fair share of who comes or goes is %d devices. static is shard %% members. It and hash %% members can do it
so only if all members change their number at the same moment; otherwise devices have two owners meanwhile, or
none. A ring's members settle it among themselves: a shard is let go of before another takes it.

renewals of leases a second, all members together
  a lease for each shard:   %.1f (%d leases; those of one server or slot travel in one command)
  a lease for each device:  %.1f (%d leases)
`, p.Ideal, p.PerShard.Renewals, p.PerShard.Leases, p.PerDevice.Renewals, p.PerDevice.Leases)
	return err
}

func dash(n int) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(100 * time.Millisecond).String()
}
