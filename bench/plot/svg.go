package main

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"strconv"

	"github.com/ambit-run/ambit/bench/plot/chart"
)

// These are the dimensions of a chart in pixels.
const (
	width, height = 300.0, 190.0 // the area inside a panel's axes
	left, right   = 62.0, 22.0   // the margins beside a panel
	top, legend   = 58.0, 16.0   // the margin above a panel; the height of a legend line
	below         = 46.0         // the space between a panel and its legend
)

// The colours can be distinguished on white and on black, and by colour-blind readers. Lines also differ in their
// dashes.
var (
	colours = []string{"#3b82c4", "#d9822b", "#2f9e77", "#c2569b", "#8a7f2e", "#6a5acd", "#b8443a", "#5f6b73"}
	dashes  = []string{"", "6 3", "2 3", "8 3 2 3", "1 3"}
)

const style = `<style>
text{font:11px system-ui,sans-serif;fill:#333}.title{font-size:14px;font-weight:600}.panel{font-size:12px;font-weight:600}
.grid{stroke:#888;stroke-opacity:.25}.axis{stroke:#888}.line{fill:none;stroke-width:2}
@media (prefers-color-scheme:dark){text{fill:#ddd}}
</style>
`

// draw renders a chart as SVG, with its panels side by side.
func draw(c *chart.Chart) []byte {
	lines := 0
	for _, p := range c.Panels {
		lines = max(lines, len(p.Lines))
	}
	full := top + height + below + legend*float64(lines)
	wide := float64(len(c.Panels)) * (left + width + right)
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" role="img" aria-label="%s">`+"\n", wide, full, wide, full, html.EscapeString(c.Title))
	b.WriteString(style)
	fmt.Fprintf(&b, `<text class="title" x="12" y="20">%s</text>`+"\n", html.EscapeString(c.Title))
	for i := range c.Panels {
		drawPanel(&b, c, &c.Panels[i], float64(i)*(left+width+right)+left)
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func drawPanel(b *bytes.Buffer, c *chart.Chart, p *chart.Panel, x0 float64) {
	var xs, ys []float64
	for _, l := range p.Lines {
		for _, point := range l.Points {
			xs, ys = append(xs, point[0]), append(ys, point[1])
		}
	}
	x, y := newAxis(xs, true), newAxis(ys, p.Log)
	bottom := top + height
	fmt.Fprintf(b, `<text class="panel" x="%.0f" y="%.0f">%s, %s</text>`+"\n", x0, top-12, html.EscapeString(p.Title), html.EscapeString(p.Unit))
	for _, tick := range y.ticks {
		at := bottom - y.at(tick)*height
		fmt.Fprintf(b, `<line class="grid" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/><text x="%.1f" y="%.1f" text-anchor="end">%s</text>`+"\n", x0, at, x0+width, at, x0-6, at+4, short(tick))
	}
	for _, tick := range x.ticks {
		at := x0 + x.at(tick)*width
		fmt.Fprintf(b, `<line class="grid" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/><text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`+"\n", at, top, at, bottom, at, bottom+16, short(tick))
	}
	fmt.Fprintf(b, `<path class="axis" fill="none" d="M%.1f %.1fV%.1fH%.1f"/><text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`+"\n", x0, top, bottom, x0+width, x0+width/2, bottom+34, html.EscapeString(c.X))
	for i, l := range p.Lines {
		colour, dash := colours[i%len(colours)], dashes[i%len(dashes)]
		fmt.Fprintf(b, `<polyline class="line" stroke="%s" stroke-dasharray="%s" points="`, colour, dash)
		for _, point := range l.Points {
			fmt.Fprintf(b, "%.1f,%.1f ", x0+x.at(point[0])*width, bottom-y.at(point[1])*height)
		}
		b.WriteString(`"/>`)
		for _, point := range l.Points {
			fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"><title>%s: %s %s at %.0f</title></circle>`, x0+x.at(point[0])*width, bottom-y.at(point[1])*height, colour,
				html.EscapeString(l.Name), chart.Number(point[1]), html.EscapeString(p.Unit), point[0])
		}
		at := bottom + below + float64(i)*legend
		fmt.Fprintf(b, "\n"+`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="2" stroke-dasharray="%s"/><text x="%.1f" y="%.1f">%s</text>`+"\n", x0, at, x0+24, at, colour, dash, x0+30, at+4, html.EscapeString(l.Name))
	}
}

// axis maps values to the range from 0 to 1. If log is set, its limits are exponents of ten.
type axis struct {
	log      bool
	from, to float64
	ticks    []float64
}

// newAxis returns an axis that covers the values. A logarithmic axis begins and ends at a power of ten. A linear axis
// begins at 0 and ends at a round number.
func newAxis(values []float64, log bool) axis {
	low, high := math.Inf(1), 0.0
	for _, v := range values {
		if !log || v > 0 {
			low, high = min(low, v), max(high, v)
		}
	}
	a := axis{log: log}
	if high == 0 {
		high, low = 1, 1
	}
	if log {
		a.from, a.to = math.Floor(math.Log10(low)), math.Ceil(math.Log10(high))
		if a.from == a.to {
			a.to++
		}
		for e := a.from; e <= a.to; e++ {
			a.ticks = append(a.ticks, math.Pow(10, e))
		}
		return a
	}
	step := math.Pow(10, math.Floor(math.Log10(high)))
	for high/step < 4 {
		step /= 2
	}
	a.to = math.Ceil(high/step) * step
	for v := 0.0; v <= a.to+step/2; v += step {
		a.ticks = append(a.ticks, v)
	}
	return a
}

func (a axis) at(v float64) float64 {
	if a.log {
		v = math.Log10(max(v, math.Pow(10, a.from)))
	}
	return (v - a.from) / (a.to - a.from)
}

// short formats the value of a tick, such as 10k or 1M.
func short(v float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e6, "M"}, {1e3, "k"}} {
		if v >= unit.size {
			return strconv.FormatFloat(v/unit.size, 'g', 4, 64) + unit.name
		}
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}
