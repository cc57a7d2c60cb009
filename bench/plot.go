package main

import (
	"fmt"
	"html"
	"strings"
)

// A bar is an entry's median and what its rounds were.
type bar struct {
	name   string
	value  float64
	rounds []float64
	ours   bool
}

// Measures of a plot, in pixels.
const (
	plotWidth = 720
	nameWidth = 260
	barsWidth = 370
	barHeight = 18
	barStep   = 28
	plotTop   = 40
)

// drawBars makes an SVG that reads on light and on dark pages: horizontal
// bars from zero, ours in another colour, a stroke for each round.
func drawBars(label string, better int, bars []bar) string {
	most := 0.0
	for _, x := range bars {
		most = max(most, x.value)
		for _, n := range x.rounds {
			most = max(most, n)
		}
	}
	if most == 0 {
		most = 1
	}
	direction := map[int]string{lower: " (less is better)", higher: " (more is better)"}[better]
	height := plotTop + barStep*len(bars) + 6
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="%s">
<style>
text { font: 13px system-ui, sans-serif; fill: #24292f }
.ours { fill: #0969da } .peer { fill: #8c959f } .round { stroke: #24292f; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .ours { fill: #4493f8 } .peer { fill: #6e7681 } .round { stroke: #e6edf3 } }
</style>
<text x="0" y="20" style="font-weight: 600">%s</text>
`, plotWidth, height, html.EscapeString(label), html.EscapeString(label+direction))
	at := func(n float64) float64 { return nameWidth + n/most*barsWidth }
	for i, x := range bars {
		y := plotTop + i*barStep
		class := "peer"
		if x.ours {
			class = "ours"
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", nameWidth-8, y+14, html.EscapeString(x.name))
		fmt.Fprintf(&b, `<rect class="%s" x="%d" y="%d" width="%.1f" height="%d"/>`+"\n", class, nameWidth, y, max(1, at(max(0, x.value))-nameWidth), barHeight)
		end := at(max(0, x.value))
		for _, n := range x.rounds {
			fmt.Fprintf(&b, `<line class="round" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/>`+"\n", at(max(0, n)), y+4, at(max(0, n)), y+barHeight-4)
			end = max(end, at(n))
		}
		fmt.Fprintf(&b, `<text x="%.1f" y="%d">%s</text>`+"\n", end+8, y+14, figure(x.value))
	}
	b.WriteString("</svg>\n")
	return b.String()
}
