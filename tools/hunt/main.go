// Command hunt draws what runs of examples/hunt wrote down, beside each other and
// in the same scales: how full Redis was, how long the queues were, how many were
// let in, and who saw the board freeze. It judges nothing: the run does.
//
//	go -C tools/hunt run . FILE.png TITLE=RUN.csv …
package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"image/color"
	"os"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// A run is a CSV, by its columns.
type run struct {
	title   string
	columns map[string][]float64
}

// A line is one of a panel.
type line struct {
	name, column string
	scale        float64
	colour       color.Color
	none         bool // 0 says that there is none
}

// A panel is one kind of diagram; there is one of it for each run.
type panel struct {
	y     string
	lines []line
	marks []float64 // levels to draw
	least float64   // the scale goes so far at least
	most  float64   // and at most; 0: as far as it must
}

var (
	blue   = color.RGBA{0x00, 0x72, 0xb2, 0xff}
	red    = color.RGBA{0xd5, 0x5e, 0x00, 0xff}
	green  = color.RGBA{0x00, 0x9e, 0x73, 0xff}
	purple = color.RGBA{0xcc, 0x79, 0xa7, 0xff}
	grey   = color.RGBA{0x99, 0x99, 0x99, 0xff}
)

var panels = []panel{
	{y: "Redis, % of maxmemory", marks: []float64{82, 95}, least: 105, lines: []line{{name: "used", column: "memory", scale: 100, colour: blue}}},
	{y: "players", most: 12_000, lines: []line{
		{name: "in the waiting room", column: "waiting", scale: 1, colour: grey}, {name: "play", column: "playing", scale: 1, colour: blue}, {name: "have live updates", column: "streams", scale: 1, colour: green},
		{name: "refused them", column: "throttled", scale: 1, colour: red}, {name: "admitted maximum", column: "admitted_maximum", scale: 1, colour: purple, none: true},
	}},
	{y: "waiting events", least: 100, lines: []line{{name: "in the game", column: "outbox", scale: 1, colour: red}, {name: "behind in a gateway", column: "tail_lag", scale: 1, colour: blue}}},
	{y: "players whose board is frozen", lines: []line{{name: "frozen", column: "frozen", scale: 1, colour: red}}, least: 100},
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: hunt FILE.png TITLE=RUN.csv …")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "hunt:", err)
		os.Exit(1)
	}
}

func write(file string, args []string) error {
	var runs []run
	for _, arg := range args {
		title, name, ok := strings.Cut(arg, "=")
		if !ok {
			return fmt.Errorf("%q isn't of the form TITLE=RUN.csv", arg)
		}
		r, err := read(title, name)
		if err != nil {
			return err
		}
		runs = append(runs, r)
	}
	rows := make([][]*plot.Plot, len(panels))
	for i, p := range panels {
		for k, r := range runs {
			rows[i] = append(rows[i], p.draw(r, i == 0, k == 0, i == len(panels)-1))
		}
		align(rows[i], p.most)
	}
	width := vg.Length(3.6*float64(len(runs))+0.6) * vg.Inch
	img := vgimg.NewWith(vgimg.UseWH(width, 10.5*vg.Inch), vgimg.UseDPI(96))
	tiles := draw.Tiles{Rows: len(rows), Cols: len(runs), PadTop: vg.Points(6), PadBottom: vg.Points(6), PadLeft: vg.Points(6), PadRight: vg.Points(12), PadX: vg.Points(6), PadY: vg.Points(6)}
	for i, canvases := range plot.Align(rows, tiles, draw.New(img)) {
		for k, canvas := range canvases {
			rows[i][k].Draw(canvas)
		}
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = vgimg.PngCanvas{Canvas: img}.WriteTo(out)
	return errors.Join(err, out.Close())
}

// draw makes the panel for one run. The titles stand at the top, the names of the
// axes at the left and at the bottom.
func (p panel) draw(r run, top, left, bottom bool) *plot.Plot {
	d := plot.New()
	d.BackgroundColor = color.White
	d.X.Min, d.Y.Min = 0, 0
	d.Y.Max = p.least
	d.Add(plotter.NewGrid())
	if top {
		d.Title.Text = r.title
	}
	if left {
		d.Y.Label.Text = p.y
		d.Legend.Top, d.Legend.Left = true, true
		d.Legend.TextStyle.Font.Size = vg.Points(9)
	}
	if bottom {
		d.X.Label.Text = "seconds"
	}
	at := r.columns["seconds"]
	for _, l := range p.lines {
		var points plotter.XYs
		for i, v := range r.columns[l.column] {
			if v > 0 || !l.none {
				points = append(points, plotter.XY{X: at[i], Y: max(v, 0) * l.scale})
			}
		}
		drawn := &plotter.Line{XYs: points, LineStyle: draw.LineStyle{Color: l.colour, Width: vg.Points(1.5)}}
		d.Add(drawn)
		if left {
			d.Legend.Add(l.name, drawn)
		}
	}
	for _, level := range p.marks {
		d.Add(&plotter.Line{XYs: plotter.XYs{{X: 0, Y: level}, {X: at[len(at)-1], Y: level}}, LineStyle: draw.LineStyle{Color: red, Width: vg.Points(0.8), Dashes: []vg.Length{vg.Points(4), vg.Points(3)}}})
	}
	return d
}

// align gives all the same scales, so that they can be compared.
func align(all []*plot.Plot, most float64) {
	var x, y float64
	for _, d := range all {
		x, y = max(x, d.X.Max), max(y, d.Y.Max)
	}
	if most > 0 {
		y = min(y, most)
	}
	for _, d := range all {
		d.X.Max, d.Y.Max = x, y*1.02
	}
}

func read(title, name string) (r run, err error) {
	file, err := os.Open(name)
	if err != nil {
		return r, err
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		return r, fmt.Errorf("%s: %w", name, err)
	}
	if len(rows) < 2 {
		return r, fmt.Errorf("%s holds no run", name)
	}
	r = run{title, make(map[string][]float64)}
	for _, row := range rows[1:] {
		for i, text := range row {
			v, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return r, fmt.Errorf("%s: %w", name, err)
			}
			r.columns[rows[0][i]] = append(r.columns[rows[0][i]], v)
		}
	}
	return r, nil
}
