package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"downlink/docs/operate"
	"downlink/internal/explain"
)

// width is how long a line of running text is at most.
const width = 79

// A page is what explain shows to a person.
type page struct {
	b     strings.Builder
	f     findings
	names map[string]int // of gateways, and how many have each
}

func newPage(f findings) *page {
	p := &page{f: f, names: make(map[string]int)}
	for _, h := range f.Gateways {
		if h.Report != nil {
			p.names[h.Report.Gateway.Name]++
		}
	}
	return p
}

// text is the page: where the device is, what happened to it, and what to do.
func (p *page) text() string {
	p.line("%s", p.summary())
	p.line("")
	p.gateways()
	own := p.past(func(r *explain.Report) []explain.Happening { return r.Trail })
	claimed := p.past(func(r *explain.Report) []explain.Happening { return r.Claimed })
	nameless := p.past(func(r *explain.Report) []explain.Happening { return r.Nameless })
	p.happenings("Lately", own, 8)
	p.happenings("Requests that only claimed to be this device: their credential wasn't accepted", claimed, 5)
	advise := append(slices.Clone(own), claimed...)
	if !p.f.Connected && len(claimed) == 0 {
		p.happenings("Requests that named no device; this one's may be among them", nameless, 3)
		if len(own) == 0 {
			advise = nameless
		}
	}
	p.advice(advise)
	return p.b.String()
}

func (p *page) line(format string, args ...any) { fmt.Fprintf(&p.b, format+"\n", args...) }

// summary is the answer in one line.
func (p *page) summary() string {
	var streams, polls, dialled, silent int
	var at []string
	for _, h := range p.f.Gateways {
		if h.Report == nil {
			silent++
			continue
		}
		if len(h.Report.Sessions) > 0 {
			at = append(at, p.nameOf(h))
		}
		for _, s := range h.Report.Sessions {
			switch s.Kind {
			case "poll":
				polls++
			case "dialled":
				dialled++
			default:
				streams++
			}
		}
	}
	device := visible(p.f.Device)
	switch {
	case len(at) > 0:
		return fmt.Sprintf("%s is connected: %s at %s.", device, counted(streams, polls, dialled), strings.Join(at, ", "))
	case p.revoked():
		return device + " is REVOKED" + p.revocation() + ": it is let in nowhere until somebody lifts that."
	case silent == len(p.f.Gateways):
		return "Nobody knows about " + device + ": no gateway gave an answer."
	case silent > 0:
		return fmt.Sprintf("%s is not connected where an answer came from; %d of %d gateways gave none.", device, silent, len(p.f.Gateways))
	default:
		return device + " is NOT connected."
	}
}

func counted(streams, polls, dialled int) string {
	var parts []string
	for _, c := range []struct {
		n    int
		what string
	}{{streams, "stream"}, {polls, "poll"}, {dialled, "dialled connection"}} {
		switch {
		case c.n == 1:
			parts = append(parts, "1 "+c.what)
		case c.n > 1:
			parts = append(parts, fmt.Sprintf("%d %ss", c.n, c.what))
		}
	}
	return strings.Join(parts, " and ")
}

// nameOf is a gateway as people find it: its machine's name, if no other has it.
func (p *page) nameOf(h heard) string {
	if h.Report == nil || p.names[h.Report.Gateway.Name] != 1 {
		return h.Backend
	}
	return visible(h.Report.Gateway.Name)
}

// gateways shows those where the device is, or with which something is wrong,
// and names the others.
func (p *page) gateways() {
	var others []string
	for _, h := range p.f.Gateways {
		switch r := h.Report; {
		case r == nil:
			p.line("%s: %s", h.Backend, visible(h.Error))
		case r.Gateway.Ready && len(r.Sessions) == 0 && len(r.Gateway.Troubles) == 0:
			others = append(others, p.nameOf(h))
		default:
			p.gateway(h)
		}
	}
	if len(p.names) == 0 && !slices.ContainsFunc(p.f.Gateways, heard.said) {
		p.line("\nIs a gateway running there, and is --backend its back-end port (backend_listen)?")
	}
	for _, h := range p.f.Gateways {
		if r := h.Report; r != nil && r.Dials != "" && len(r.Sessions) == 0 {
			p.line("At %s: %s.", p.nameOf(h), visible(r.Dials))
		}
	}
	if len(others) > 0 {
		p.b.WriteString(wrapped("Not connected at "+strings.Join(others, ", ")+": serving.", ""))
	}
}

// gateway shows one gateway and the device's sessions there.
func (p *page) gateway(h heard) {
	g := h.Report.Gateway
	state := "serving"
	if !g.Ready {
		state = "NOT ready: " + visible(g.Why)
	}
	p.line("%s (%s, devices at %s): %s", visible(g.Name), h.Backend, visible(g.Address), state)
	for _, why := range g.Troubles {
		p.line("  TROUBLE: %s", visible(why))
	}
	for _, s := range h.Report.Sessions {
		p.session(s, h.Report)
	}
}

func (p *page) session(s explain.Session, r *explain.Report) {
	p.line("  %s for %s, since %s, from %s, %s", s.Kind, age(r.Time.Sub(s.Since)), clock(s.Since, r.Time), visible(orNone(s.Address)), visible(s.Protocol))
	p.line("    cursor      %s: %s", orNone(visible(s.Cursor)), howFar(s))
	if s.Conflated > 0 {
		p.line("    conflated   %d events weren't sent: newer ones of their keys were, or will be", s.Conflated)
	}
	if len(s.Groups) > 0 {
		p.line("    groups      %s", visible(strings.Join(s.Groups, ", ")))
	}
	until := "never expires"
	if s.Expires != nil {
		until = fmt.Sprintf("expires %s, in %s", clock(*s.Expires, r.Time), age(s.Expires.Sub(r.Time)))
	}
	p.line("    credential  %s, %s", visible(orNone(s.Credential)), until)
}

// howFar says how far behind a session is, and why.
func howFar(s explain.Session) string {
	if s.State == "live" && s.Behind.Events == 0 {
		return "live, it has everything"
	}
	behind := fmt.Sprintf("%d events behind", s.Behind.Events)
	if s.Behind.More {
		behind += ", or more"
	}
	if s.Behind.MS > 0 {
		behind += fmt.Sprintf(" (the oldest by %s)", age(time.Duration(min(s.Behind.MS, 1<<40))*time.Millisecond)) //nolint:gosec // bounded
	}
	switch s.State {
	case "live":
		return behind + ": they are on their way"
	case "stalled":
		return behind + ": it takes them more slowly than they come"
	default:
		return behind + ": they are being read from the log"
	}
}

// A memory is something of the past, and the gateway that remembers it.
type memory struct {
	explain.Happening
	gateway string
	now     time.Time // there
}

// past is what all gateways remember of a kind, newest first.
func (p *page) past(of func(*explain.Report) []explain.Happening) []memory {
	var all []memory
	for _, h := range p.f.Gateways {
		if h.Report == nil {
			continue
		}
		for _, e := range of(h.Report) {
			all = append(all, memory{e, p.nameOf(h), h.Report.Time})
		}
	}
	slices.SortStableFunc(all, func(a, b memory) int { return b.Last.Compare(a.Last) })
	return all
}

func (p *page) happenings(title string, all []memory, most int) {
	if len(all) == 0 {
		return
	}
	p.line("\n%s:", title)
	for _, e := range all[:min(len(all), most)] {
		where := ""
		if len(p.f.Gateways) > 1 {
			where = e.gateway + "  "
		}
		p.line("  %s  %s%s", clock(e.Last, e.now), where, e.describe())
	}
	if left := len(all) - most; left > 0 {
		p.line("  … and %d older; --json shows all", left)
	}
}

func (e memory) describe() string {
	var b strings.Builder
	b.WriteString(strings.TrimRight(visible(e.What+" "+e.Word), " "))
	if e.Times > 1 {
		fmt.Fprintf(&b, ", %d times since %s", e.Times, clock(e.First, e.now))
	}
	if e.Since != nil {
		fmt.Fprintf(&b, ", after %s", age(e.Last.Sub(*e.Since)))
	}
	if e.Address != "" {
		fmt.Fprintf(&b, ", from %s", visible(e.Address))
	}
	if e.Detail != "" {
		fmt.Fprintf(&b, ":\n            %s", visible(e.Detail))
	}
	return b.String()
}

// revocation is since when and why the device is kept out, as far as a gateway
// knows.
func (p *page) revocation() string {
	for _, h := range p.f.Gateways {
		if h.Report == nil || h.Report.Revocation == nil {
			continue
		}
		text := ""
		if r := h.Report.Revocation; r.Since != nil {
			text += " since " + clock(*r.Since, h.Report.Time)
		}
		if why := h.Report.Revocation.Reason; why != "" {
			text += " (" + visible(why) + ")"
		}
		return text
	}
	return "" // by a gateway of a version before this
}

func (p *page) revoked() bool {
	return slices.ContainsFunc(p.f.Gateways, func(h heard) bool { return h.Report != nil && h.Report.Revoked })
}

// advice shows what the troubleshooting page says about the newest words.
func (p *page) advice(all []memory) {
	slices.SortStableFunc(all, func(a, b memory) int { return b.Last.Compare(a.Last) })
	var words []string
	if p.revoked() {
		words = append(words, "revoked")
	}
	for _, e := range all {
		old := e.now.Sub(e.Last) > time.Hour
		if e.Word == "" || slices.Contains(words, e.Word) || len(words) > 0 && old || p.f.Connected && (old || e.What != "refused") {
			continue
		}
		if words = append(words, e.Word); len(words) == 2 {
			break
		}
	}
	if len(words) == 0 {
		words = p.silence()
	}
	for _, word := range words {
		said := operate.Advice(word)
		if len(said) == 0 {
			continue
		}
		p.line("\n%s", word)
		for _, paragraph := range said {
			p.b.WriteString(wrapped(paragraph, "  "))
		}
	}
}

// Headings of the troubleshooting page for when no word is known.
const (
	nothingComes   = "Connected, and an event doesn't come"
	nothingIsKnown = "Not connected, and nothing is known of it"
	notDialled     = "Not connected, and it should be dialled"
)

// silence is what to read where nothing has happened that would explain it.
func (p *page) silence() []string {
	answers := slices.ContainsFunc(p.f.Gateways, func(h heard) bool { return h.Report != nil })
	switch {
	case p.f.Connected:
		return []string{nothingComes}
	case slices.ContainsFunc(p.f.Gateways, func(h heard) bool { return h.Report != nil && h.Report.Dials != "" }):
		return []string{notDialled}
	case answers:
		return []string{nothingIsKnown}
	default:
		return nil
	}
}

// wrapped breaks a paragraph into lines; lines of code stay as they are.
func wrapped(text, indent string) string {
	if strings.Contains(text, "\n") {
		return indent + strings.ReplaceAll(text, "\n", "\n"+indent) + "\n"
	}
	var b strings.Builder
	column := 0
	for word := range strings.FieldsSeq(text) {
		length := len([]rune(word))
		switch {
		case column == 0:
			b.WriteString(indent)
			column = len(indent)
		case column+1+length > width:
			b.WriteString("\n" + indent)
			column = len(indent)
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += length
	}
	return b.String() + "\n"
}

// clock is a time of day in the zone of who reads, with the date if it is
// another day.
func clock(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	if t.YearDay() == now.YearDay() && t.Year() == now.Year() {
		return t.Format("15:04:05")
	}
	return t.Format("2006-01-02 15:04:05")
}

// age is a duration as people say it.
func age(d time.Duration) string {
	switch {
	case d < 0:
		return "no time"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(time.Second).String()
	case d < time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute)
	default:
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	}
}

func orNone(text string) string { return cmp.Or(text, "none") }
