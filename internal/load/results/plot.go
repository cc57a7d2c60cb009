package results

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strings"
)

// A plot is lines over one pair of axes.
type plot struct {
	title  string
	x, y   string // what the axes show
	lines  []line
	xTicks []tick // at values of x; nil for even ones
	logY   bool
}

type line struct {
	name   string
	points [][2]float64
}

type tick struct {
	at   float64
	text string
}

// The plot's size and the room around it, in pixels.
const (
	plotWidth, plotHeight               = 720.0, 260.0
	marginLeft, marginRight             = 64.0, 16.0
	marginTop, marginBottom             = 28.0, 40.0
	innerWidth                          = plotWidth - marginLeft - marginRight
	innerHeight                         = plotHeight - marginTop - marginBottom
	axisColour, gridColour, titleColour = "#888", "#ddd", "#222"
)

// colours can be told apart by people who see few of them.
func colour(i int) string {
	all := [...]string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00"}
	return all[i%len(all)]
}

// svg draws the plot; empty without points.
func (p plot) svg() template.HTML {
	low, high, most, any := p.bounds()
	if !any {
		return ""
	}
	px := func(x float64) float64 { return marginLeft + innerWidth*(x-low)/(high-low) }
	py := func(y float64) float64 { return marginTop + innerHeight*(1-p.share(y, most)) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %.0f %.0f" role="img" aria-label="%s" font-family="sans-serif" font-size="11">`, plotWidth, plotHeight, html.EscapeString(p.title))
	fmt.Fprintf(&b, `<text x="%.0f" y="16" font-size="13" font-weight="bold" fill="%s">%s</text>`, marginLeft, titleColour, html.EscapeString(p.title))
	for _, t := range p.yTicks(most) {
		fmt.Fprintf(&b, `<path d="M%.1f %.1fh%.1f" stroke="%s"/><text x="%.1f" y="%.1f" text-anchor="end">%s</text>`, marginLeft, py(t.at), innerWidth, gridColour, marginLeft-6, py(t.at)+4, t.text)
	}
	for _, t := range p.xTicksWithin(low, high) {
		fmt.Fprintf(&b, `<path d="M%.1f %.1fv%.1f" stroke="%s"/><text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, px(t.at), marginTop, innerHeight, gridColour, px(t.at), marginTop+innerHeight+15, t.text)
	}
	fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="none" stroke="%s"/>`, marginLeft, marginTop, innerWidth, innerHeight, axisColour)
	fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, marginLeft+innerWidth/2, plotHeight-6, html.EscapeString(p.x+" · "+p.y))
	for i, l := range p.lines {
		var path strings.Builder
		for j, at := range l.points {
			fmt.Fprintf(&path, "%s%.1f %.1f", map[bool]string{true: "M", false: "L"}[j == 0], px(at[0]), py(at[1]))
		}
		fmt.Fprintf(&b, `<path d="%s" fill="none" stroke="%s" stroke-width="1.6"/>`, path.String(), colour(i))
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" fill="%s" text-anchor="end">%s</text>`, marginLeft+innerWidth-6, marginTop+14+13*float64(i), colour(i), html.EscapeString(l.name))
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) // every text in it was escaped
}

// bounds are the ends of the x axis and the top of the y axis.
func (p plot) bounds() (low, high, most float64, any bool) {
	low, high, most = math.Inf(1), math.Inf(-1), 0
	for _, l := range p.lines {
		for _, at := range l.points {
			low, high, most, any = min(low, at[0]), max(high, at[0]), max(most, at[1]), true
		}
	}
	if high <= low {
		high = low + 1
	}
	if most <= 0 {
		most = 1
	}
	return low, high, most, any
}

// least is the bottom of an axis that rises by powers of ten.
const least = 0.01

// share is how far up y stands, from 0 to 1.
func (p plot) share(y, most float64) float64 {
	if !p.logY {
		return y / (most * 1.05)
	}
	top := math.Ceil(math.Log10(max(most, 10*least)))
	return max(0, math.Log10(max(y, least))-math.Log10(least)) / (top - math.Log10(least))
}

func (p plot) yTicks(most float64) []tick {
	var all []tick
	if p.logY {
		for v := least; v <= max(most, 10*least)*10; v *= 10 {
			if p.share(v, most) <= 1.001 {
				all = append(all, tick{v, short(v)})
			}
		}
		return all
	}
	for step, v := round(most/4), 0.0; v <= most*1.05; v += step {
		all = append(all, tick{v, short(v)})
	}
	return all
}

func (p plot) xTicksWithin(low, high float64) []tick {
	var all []tick
	if p.xTicks != nil {
		for _, t := range p.xTicks {
			if t.at >= low && t.at <= high {
				all = append(all, t)
			}
		}
		return all
	}
	step := round((high - low) / 8)
	for v := math.Ceil(low/step) * step; v <= high; v += step {
		all = append(all, tick{v, short(v)})
	}
	return all
}

// round is the nearest step above v that people like: 1, 2 or 5 times a power of ten.
func round(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(max(v, 1e-9))))
	for _, nice := range []float64{1, 2, 5} {
		if v <= nice*power {
			return nice * power
		}
	}
	return 10 * power
}

// short writes a value in few characters.
func short(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.3gM", v/1e6)
	case v >= 1e4:
		return fmt.Sprintf("%.3gk", v/1e3)
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	default:
		return fmt.Sprintf("%.3g", v)
	}
}
