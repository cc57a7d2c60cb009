package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"downlink/internal/config"
	"downlink/internal/governor"
	"downlink/internal/governor/api"
)

// governorShowCmd asks how a running governor stands.
type governorShowCmd struct {
	Settings bool          `help:"Print the settings that count instead, in the form that downlink governor set takes."`
	JSON     bool          `name:"json" help:"Print the governor's answer as it is."`
	Timeout  time.Duration `default:"10s" help:"How long the request may take."`

	backendFlags `embed:""`
}

// Run asks, and prints the answer.
func (c *governorShowCmd) Run(loader *config.Loader, io console) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	answer, v, err := c.governor(ctx, loader, c.Timeout, nil)
	switch {
	case err != nil:
		return err
	case c.JSON:
		_, err := io.out.Write(answer)
		return err
	case c.Settings:
		return showSettings(io.out, v)
	}
	return showGovernor(io.out, v)
}

// governor sends a GET, or the PATCH if there is one.
func (f *backendFlags) governor(ctx context.Context, loader *config.Loader, timeout time.Duration, patch []byte) (answer []byte, v api.View, err error) {
	method := http.MethodGet
	if patch != nil {
		method = http.MethodPatch
	}
	status, answer, err := f.once(ctx, loader, timeout, method, api.Path, patch)
	switch {
	case err != nil:
		return nil, v, err
	case status == http.StatusNotFound:
		return nil, v, refused(errors.New("there is no governor at --backend; it has to be the back-end port of a gateway, or the port of downlink governor"))
	case status != http.StatusOK:
		return nil, v, refusalOf(status, answer)
	}
	if json.Unmarshal(answer, &v) != nil || len(v.Levers) == 0 {
		return nil, v, errors.New("the answer isn't a governor's; is --backend the back-end port of a gateway?")
	}
	return answer, v, nil
}

// showGovernor is for people: first what is held back, then by what.
func showGovernor(w io.Writer, v api.View) error {
	var b strings.Builder
	if !v.On {
		b.WriteString("The governor is off: it shows what it would judge by, and holds nothing back.\n\n")
	}
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "LEVER\tLETS IN\tTHAT IS\tIN USE\tFLOOR\tBY\tSINCE") //nolint:errcheck // Flush tells
	for _, l := range v.Levers {
		//nolint:errcheck // Flush tells
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", visible(l.Name), percent(l.Ratio), most(l), part(l.Use), percent(l.Floor), orDash(l.Signal), l.Since.Local().Format(time.TimeOnly))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	b.WriteByte('\n')
	fmt.Fprintln(t, "SIGNAL\tVALUE\tOVER\tWALL\tSTANDS\tREAD\tMOVES") //nolint:errcheck // Flush tells
	for _, s := range v.Signals {
		//nolint:errcheck // Flush tells
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", visible(s.Name), value(s), bound(s.Threshold, s.Unit), bound(s.Wall, s.Unit), visible(string(s.Verdict)), lastRead(s), orDash(strings.Join(s.Levers, ", ")))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	remarks(&b, v)
	_, err := io.WriteString(w, b.String())
	return err
}

// remarks say what the tables have no room for.
func remarks(b *strings.Builder, v api.View) {
	for _, l := range v.Levers {
		switch {
		case l.Ratio < 1 && l.Verdict == governor.Unknown:
			fmt.Fprintf(b, "\n%s was lowered because %s, and stays where it is: %s isn't known.\n", visible(l.Name), visible(l.Why), visible(l.Worst))
		case l.Ratio <= l.Floor && (l.Verdict == governor.Over || l.Verdict == governor.AtWall):
			fmt.Fprintf(b, "\n%s was lowered because %s, and is at its floor: it falls no further, though %s is still too much.\n", visible(l.Name), visible(l.Why), orDash(l.Worst))
		case l.Ratio < 1:
			fmt.Fprintf(b, "\n%s was lowered because %s. What counts most now is %s: %s.\n", visible(l.Name), visible(l.Why), orDash(l.Worst), course(l.Verdict))
		}
	}
	for _, s := range v.Signals {
		for _, remark := range []string{s.None, s.Partial, s.Error} {
			if remark != "" {
				fmt.Fprintf(b, "\n%s: %s\n", visible(s.Name), visible(remark))
			}
		}
	}
	for i, c := range v.Patched {
		if i == 0 {
			b.WriteString("\nChanged at run time, until a restart or until the file says otherwise of them:\n")
		}
		fmt.Fprintf(b, "  %s\n", changeOf(c))
	}
}

// course is what a lever does that stands so.
func course(v governor.Verdict) string {
	switch v {
	case governor.Good, governor.None, governor.Off:
		return "good, so the lever rises when that has been so for a while"
	case governor.Easing:
		return "over, and going back by itself, so the lever stays"
	case governor.Over:
		return "over, so it falls further"
	case governor.AtWall:
		return "at the wall, so it falls fast"
	default:
		return "neither good nor over, or not for long enough, so the lever stays"
	}
}

// showSettings prints each setting as set takes it.
func showSettings(w io.Writer, v api.View) error {
	var b strings.Builder
	all := api.Flat(v.Settings)
	for _, name := range slices.SortedFunc(keys(all), byDepth) {
		fmt.Fprintf(&b, "%s=%s\n", name, worth(all[name]))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// worth is a setting's value as set takes it.
func worth(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []any:
		words := make([]string, len(v))
		for i, w := range v {
			words[i] = fmt.Sprint(w)
		}
		return strings.Join(words, ",")
	}
	text, _ := json.Marshal(v) // it came from JSON
	return string(text)
}

func changeOf(c api.Changed) string {
	return fmt.Sprintf("%s: %s, before %s", visible(c.Name), visible(worth(c.After)), visible(worth(c.Before)))
}

func percent(part float64) string {
	return strconv.FormatFloat(math.Round(part*1000)/10, 'f', -1, 64) + " %"
}

func part(p *float64) string {
	if p == nil {
		return "-"
	}
	return percent(*p)
}

// most is what a lever allows. A part of what nobody has named is no amount.
func most(l governor.LeverState) string {
	switch {
	case l.Maximum != nil:
		return bound(*l.Maximum, l.Unit)
	case l.Ratio < 1:
		return "-"
	default:
		return "no limit"
	}
}

func value(s governor.SignalState) string {
	if s.Value == nil {
		return "-"
	}
	return measured(*s.Value, s.Unit)
}

func bound(v float64, unit string) string {
	if v == 0 {
		return "-"
	}
	return measured(v, unit)
}

// measured is an amount for people.
func measured(v float64, unit string) string {
	switch {
	case unit == "ratio":
		return percent(v)
	case strings.HasPrefix(unit, "bytes"):
		return bytesOf(v) + visible(strings.TrimPrefix(unit, "bytes"))
	case v < 10:
		return strconv.FormatFloat(v, 'g', 3, 64) + " " + visible(unit)
	}
	return strconv.FormatFloat(v, 'f', 0, 64) + " " + visible(unit)
}

// bytesOf is an amount of bytes to some four digits: what is measured is never round.
func bytesOf(v float64) string {
	powers, n := []string{"B", "KiB", "MiB", "GiB", "TiB"}, 0
	for ; v >= 1024 && n < len(powers)-1; n++ {
		v /= 1024
	}
	return strconv.FormatFloat(v, 'g', 4, 64) + " " + powers[n]
}

// lastRead is how old a value is, where that isn't known or too much, in words.
func lastRead(s governor.SignalState) string {
	switch {
	case s.Age == nil:
		return "never"
	case *s.Age > s.Fresh:
		return fmt.Sprintf("%.0f s ago, too old", *s.Age)
	default:
		return fmt.Sprintf("%.0f s ago", *s.Age)
	}
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return visible(text)
}
