package results

import (
	_ "embed"
	"encoding/json"
	"html/template"
	"io"
	"maps"
	"math"
	"slices"
)

// page is the report for people: one file, without scripts, that loads nothing.
//
//go:embed page.html
var page string

// WriteHTML writes the page. What it shows over time needs Series.
func (r *Report) WriteHTML(w io.Writer) error {
	t, err := template.New("page").Parse(page)
	if err != nil {
		return err
	}
	raw, err := json.MarshalIndent(withoutPoints(*r), "", "  ")
	if err != nil {
		return err
	}
	return t.Execute(w, map[string]any{"R": r, "JSON": string(raw), "Plots": r.plots()})
}

// withoutPoints leaves out what the plots show better.
func withoutPoints(r Report) Report {
	r.Series = nil
	for _, l := range []*Latency{&r.Connect.Latency, &r.Publish.Latency, &r.Receive.Latency, &r.Receive.Scheduled} {
		l.Curve = nil
	}
	if r.Storm != nil {
		s := *r.Storm
		s.Latency.Curve = nil
		r.Storm = &s
	}
	return r
}

func (r *Report) plots() []template.HTML {
	all := []plot{r.latencies(),
		r.overTime("Receipts and publications", "per second",
			moments("received", func(m Moment) (float64, bool) { return m.Received, true }),
			moments("published", func(m Moment) (float64, bool) { return m.Published, true })),
		r.overTime("Connected devices", "devices",
			moments("connected", func(m Moment) (float64, bool) { return float64(m.Connected), true })),
		r.ofWatched("Processors in use", "processors", func(m Moment, name string) (float64, bool) {
			v, ok := m.CPU[name]
			return v, ok
		}),
		r.ofWatched("Memory (PSS)", "MiB", func(m Moment, name string) (float64, bool) {
			v, ok := m.PSS[name]
			return float64(v) / (1 << 20), ok
		}),
	}
	var drawn []template.HTML
	for _, p := range all {
		if svg := p.svg(); svg != "" {
			drawn = append(drawn, svg)
		}
	}
	return drawn
}

// latencies are drawn over percentiles, so that each further nine has the same room.
func (r *Report) latencies() plot {
	p := plot{title: "Latencies", x: "percentile", y: "ms", logY: true}
	for nines, text := range []string{"0", "90", "99", "99.9", "99.99", "99.999"} {
		p.xTicks = append(p.xTicks, tick{float64(nines), text})
	}
	curve := func(name string, l Latency) {
		var points [][2]float64
		for _, at := range l.Curve {
			points = append(points, [2]float64{min(6, -math.Log10(max(1e-6, 1-at.Percentile/100))), at.MS})
		}
		if len(points) > 0 {
			p.lines = append(p.lines, line{name, points})
		}
	}
	curve("publish to receipt", r.Receive.Latency)
	curve("due to receipt", r.Receive.Scheduled)
	curve("publish to answer", r.Publish.Latency)
	curve("connect", r.Connect.Latency)
	if r.Storm != nil {
		curve("connect in the storm", r.Storm.Latency)
	}
	return p
}

type seriesOf struct {
	name  string
	value func(Moment) (float64, bool)
}

func moments(name string, value func(Moment) (float64, bool)) seriesOf { return seriesOf{name, value} }

func (r *Report) overTime(title, y string, of ...seriesOf) plot {
	p := plot{title: title, x: "seconds", y: y}
	for _, s := range of {
		l := line{name: s.name}
		for _, m := range r.Series {
			if v, ok := s.value(m); ok {
				l.points = append(l.points, [2]float64{m.Second, v})
			}
		}
		if len(l.points) > 0 {
			p.lines = append(p.lines, l)
		}
	}
	return p
}

func (r *Report) ofWatched(title, y string, value func(Moment, string) (float64, bool)) plot {
	var of []seriesOf
	for _, name := range slices.Sorted(maps.Keys(r.Watched)) {
		of = append(of, moments(name, func(m Moment) (float64, bool) { return value(m, name) }))
	}
	return r.overTime(title, y, of...)
}
