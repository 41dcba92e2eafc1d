package console

import (
	"fmt"
	"html/template"
	"math"
	"strings"
	"time"
)

// drawing is a chart. Its lines are an SVG image that the page stretches. The labels are ordinary text, so that they
// have the same size on every screen.
type drawing struct {
	Title string
	Lines []series
	SVG   template.HTML
	// Y contains the labels of the vertical axis from top to bottom. X contains the labels of the time axis.
	Y, X []string
}

// These constants are the coordinates of a chart.
const chartWidth, chartHeight = 1000, 100

// draw draws lines over the period that ends at now. It appends the unit to the numbers on the vertical axis.
func draw(title, unit string, now time.Time, p period, lines []series) drawing {
	d := drawing{Title: title, Lines: lines}
	top := 0.0
	for i, l := range lines {
		lines[i].Unit = unit
		for _, v := range l.Values {
			top = max(top, v)
		}
	}
	top = roundUp(top)
	for _, v := range []float64{top, top / 2, 0} {
		d.Y = append(d.Y, brief(v)+unit)
	}
	layout, steps := "15:04", 4
	if p.whole > 24*time.Hour {
		layout, steps = "Jan 2", 7
	}
	for i := range steps + 1 {
		back := p.whole * time.Duration(steps-i) / time.Duration(steps)
		d.X = append(d.X, now.Add(-back).Format(layout))
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" preserveAspectRatio="none" aria-hidden="true">`, chartWidth, chartHeight)
	for i, l := range lines {
		if i > 0 && l.Most() == "0" {
			continue // this line would hide the lines that were drawn before
		}
		b.WriteString(`<polyline class="` + l.Class + `" points="`)
		for i, v := range l.Values {
			x := float64(i) * chartWidth / float64(len(l.Values)-1)
			fmt.Fprintf(&b, "%.0f,%.1f ", x, chartHeight-v/top*chartHeight)
		}
		b.WriteString(`"/>`)
	}
	b.WriteString(`</svg>`)
	d.SVG = template.HTML(b.String()) // the markup is safe, because it contains only our own elements and numbers
	return d
}

// Most returns the highest value of a line, for people who cannot see the chart.
func (s series) Most() string {
	most := 0.0
	for _, v := range s.Values {
		most = max(most, v)
	}
	return brief(most)
}

// roundUp rounds v up to the next number that is 2, 4 or 10 times a power of ten, so that half of the result is a round
// number too. It returns 2 if v is not positive.
func roundUp(v float64) float64 {
	if v <= 0 {
		return 2
	}
	p := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{2, 4, 10} {
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
	case v >= 1e3:
		return fmt.Sprintf("%gk", math.Round(v/1e2)/10)
	}
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%g", math.Round(v*100)/100)
}
