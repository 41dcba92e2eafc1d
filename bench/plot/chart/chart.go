// Package chart defines the file format that bench/growth writes and bench/plot reads. A chart consists of panels,
// and each panel contains lines. All panels have the same x axis, which is logarithmic, because sizes grow by
// factors.
package chart

import (
	"fmt"
	"math"
)

// Chart shows how measurements grow with x.
type Chart struct {
	Name    string `json:"name"`
	Title   string `json:"title"`
	X       string `json:"x"`
	Command string `json:"command"`
	// Measured is the date of the measurement.
	Measured string  `json:"measured,omitempty"`
	Panels   []Panel `json:"panels"`
}

// Panel contains lines with the same unit. Its y axis is logarithmic if Log is set. Otherwise, it starts at 0.
type Panel struct {
	Title string `json:"title"`
	Unit  string `json:"unit"`
	Log   bool   `json:"log,omitempty"`
	Lines []Line `json:"lines"`
}

// Line is a list of points (x, y).
type Line struct {
	Name   string       `json:"name"`
	Points [][2]float64 `json:"points"`
}

// Add appends a point to the line.
func (l *Line) Add(x int, y float64) { l.Points = append(l.Points, [2]float64{float64(x), y}) }

// Rows returns the chart as a table. Each row contains x and the value of every line at x. All lines must have the
// same x values.
func (c *Chart) Rows() [][]float64 {
	var rows [][]float64
	for _, p := range c.Panels {
		for _, l := range p.Lines {
			for i, point := range l.Points {
				if i == len(rows) {
					rows = append(rows, []float64{point[0]})
				}
				rows[i] = append(rows[i], point[1])
			}
		}
	}
	return rows
}

// Number formats a measurement with about three digits.
func Number(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}
