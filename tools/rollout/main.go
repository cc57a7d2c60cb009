// Command rollout draws what TestRollout saw (test/e2e, -rollout.data): the
// connections of each gateway, and how many devices came back each second, of
// both runs below each other and in the same scale. It judges nothing: the test
// does.
//
//	go -C tools/rollout run . DIRECTORY FILE.png
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"image/color"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// A run is what the test has written.
type run struct {
	Rate        int              `json:"drain_rate"`
	Devices     int              `json:"devices"`
	Most        int              `json:"most_reconnects_per_second"`
	Connections []map[string]int `json:"connections"` // by gateway, each second
	Reconnects  []int            `json:"reconnects"`  // each second
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: rollout DIRECTORY FILE.png")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "rollout:", err)
		os.Exit(1)
	}
}

func write(dir, file string) error {
	turns, err := read(filepath.Join(dir, "turns.json"))
	if err != nil {
		return err
	}
	atOnce, err := read(filepath.Join(dir, "at-once.json"))
	if err != nil {
		return err
	}
	rows := [][]*plot.Plot{
		{connections(fmt.Sprintf("in turns, %d a second: connections of each gateway", turns.Rate), turns)},
		{reconnects(fmt.Sprintf("in turns: reconnects per second (most: %d)", turns.Most), turns, turns.Rate)},
		{connections("all at once: connections of each gateway", atOnce)},
		{reconnects(fmt.Sprintf("all at once: reconnects per second (most: %d)", atOnce.Most), atOnce, 0)},
	}
	align(rows[0][0], rows[2][0])
	align(rows[1][0], rows[3][0])
	img := vgimg.NewWith(vgimg.UseWH(9*vg.Inch, 11*vg.Inch), vgimg.UseDPI(96))
	tiles := draw.Tiles{Rows: len(rows), Cols: 1, PadTop: vg.Points(6), PadBottom: vg.Points(6), PadLeft: vg.Points(6), PadRight: vg.Points(12), PadY: vg.Points(8)}
	for i, canvases := range plot.Align(rows, tiles, draw.New(img)) {
		rows[i][0].Draw(canvases[0])
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = vgimg.PngCanvas{Canvas: img}.WriteTo(out)
	return errors.Join(err, out.Close())
}

func read(file string) (r run, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return r, fmt.Errorf("the run's data (go test -rollout.data): %w", err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("%s: %w", file, err)
	}
	if len(r.Connections) == 0 || len(r.Connections) != len(r.Reconnects) {
		return r, fmt.Errorf("%s holds no run", file)
	}
	return r, nil
}

// align gives both the same scales, so that they can be compared.
func align(a, b *plot.Plot) {
	a.X.Max = max(a.X.Max, b.X.Max)
	a.Y.Max = max(a.Y.Max, b.Y.Max)
	b.X.Max, b.Y.Max = a.X.Max, a.Y.Max
}

func axes(title, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, "seconds", y
	p.BackgroundColor = color.White
	p.X.Min, p.Y.Min = 0, 0
	p.Add(plotter.NewGrid())
	return p
}

// connections draws a line for each place behind the load balancer.
func connections(title string, r run) *plot.Plot {
	p := axes(title, "connections")
	p.Legend.Top, p.Legend.Left = true, true
	p.Y.Max = float64(r.Devices) * 0.75 // room for the legend
	colours := []color.Color{color.RGBA{0x00, 0x72, 0xb2, 0xff}, color.RGBA{0xd5, 0x5e, 0x00, 0xff}, color.RGBA{0x00, 0x9e, 0x73, 0xff}, color.RGBA{0xcc, 0x79, 0xa7, 0xff}}
	places := make(map[string]bool)
	for _, moment := range r.Connections {
		for name := range moment {
			places[name] = true
		}
	}
	for i, name := range slices.Sorted(maps.Keys(places)) {
		points := make(plotter.XYs, len(r.Connections))
		for k, moment := range r.Connections {
			points[k] = plotter.XY{X: float64(k), Y: float64(moment[name])}
		}
		line := &plotter.Line{XYs: points, LineStyle: draw.LineStyle{Color: colours[i%len(colours)], Width: vg.Points(1.5)}}
		p.Add(line)
		p.Legend.Add(name, line)
	}
	return p
}

// reconnects draws a bar for each second, and the rate that was set.
func reconnects(title string, r run, rate int) *plot.Plot {
	p := axes(title, "per second")
	points := make(plotter.XYs, 0, 2*len(r.Reconnects))
	for k, n := range r.Reconnects {
		points = append(points, plotter.XY{X: float64(k), Y: float64(n)}, plotter.XY{X: float64(k + 1), Y: float64(n)})
	}
	p.Add(&plotter.Line{XYs: points, LineStyle: draw.LineStyle{Color: color.RGBA{0x00, 0x72, 0xb2, 0xff}, Width: vg.Points(1)}, FillColor: color.RGBA{0x56, 0xb4, 0xe9, 0xff}})
	if rate > 0 {
		end := float64(len(r.Reconnects))
		p.Add(&plotter.Line{XYs: plotter.XYs{{X: 0, Y: float64(rate)}, {X: end, Y: float64(rate)}}, LineStyle: draw.LineStyle{Color: color.RGBA{0xd5, 0x5e, 0x00, 0xff}, Width: vg.Points(1), Dashes: []vg.Length{vg.Points(4), vg.Points(3)}}})
	}
	return p
}
