package console

import (
	"fmt"
	"html/template"
	"math"
	"strings"
	"time"
)

// These constants are the dimensions of a chart. A chart is an SVG image without scripts. Its colours come from the
// style sheet.
const (
	chartWidth  = 720
	chartHeight = 160
	chartLeft   = 56
	chartBottom = 22
)

// chart draws lines over the 24 hours that begin at start. It appends the unit to the numbers on the axis.
func chart(title, unit string, start time.Time, lines []series) template.HTML {
	top := 0.0
	for _, l := range lines {
		for _, v := range l.Values {
			top = max(top, v)
		}
	}
	top = roundUp(top)
	var b strings.Builder
	title = template.HTMLEscapeString(title)
	fmt.Fprintf(&b, `<svg class="chart" viewBox="0 0 %d %d" role="img" aria-label="%s"><title>%s</title>`,
		chartWidth, chartHeight, title, title)
	y := func(v float64) float64 {
		return float64(chartHeight-chartBottom) - v/top*float64(chartHeight-chartBottom-10)
	}
	for i := range 3 {
		v := top * float64(i) / 2
		fmt.Fprintf(&b, `<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`, chartLeft, chartWidth, y(v), y(v))
		fmt.Fprintf(&b, `<text class="tick" x="%d" y="%.1f" text-anchor="end">%s%s</text>`,
			chartLeft-6, y(v)+4, brief(v), unit)
	}
	n := len(lines[0].Values)
	x := func(i int) float64 { return chartLeft + float64(i)*float64(chartWidth-chartLeft)/float64(n-1) }
	for i := n / 8; i < n; i += n / 4 {
		at := start.Add(time.Duration(i) * span)
		fmt.Fprintf(&b, `<text class="tick" x="%.1f" y="%d" text-anchor="middle">%s</text>`,
			x(i), chartHeight-6, at.Format("15:04"))
	}
	for _, l := range lines {
		b.WriteString(`<polyline class="line ` + l.Class + `" points="`)
		for i, v := range l.Values {
			fmt.Fprintf(&b, "%.1f,%.1f ", x(i), y(v))
		}
		b.WriteString(`"/>`)
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String()) // safe, because it contains only our own markup, numbers and escaped text
}

// roundUp rounds v up to the next number that is 1, 2 or 5 times a power of ten. It returns 1 if v is not positive.
func roundUp(v float64) float64 {
	if v <= 0 {
		return 1
	}
	p := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5, 10} {
		if v <= m*p {
			return m * p
		}
	}
	return 10 * p
}

func brief(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%gM", math.Round(v/1e5)/10)
	case v >= 1e4:
		return fmt.Sprintf("%gk", math.Round(v/1e2)/10)
	}
	return fmt.Sprintf("%g", math.Round(v*100)/100)
}
