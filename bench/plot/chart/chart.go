// Package chart is the format between bench/growth and bench/plot: panels of lines over one x axis, which is always
// logarithmic because sizes grow by factors.
package chart

import (
	"fmt"
	"math"
)

// Chart shows how measurements grow with x.
type Chart struct {
	Name    string  `json:"name"`
	Title   string  `json:"title"`
	X       string  `json:"x"`
	Command string  `json:"command"`
	Panels  []Panel `json:"panels"`
}

// Panel has lines of one unit. Its y axis starts at 0 unless it is logarithmic.
type Panel struct {
	Title string `json:"title"`
	Unit  string `json:"unit"`
	Log   bool   `json:"log,omitempty"`
	Lines []Line `json:"lines"`
}

// Line is a number as a function of x.
type Line struct {
	Name   string       `json:"name"`
	Points [][2]float64 `json:"points"`
}

// Add adds a point.
func (l *Line) Add(x int, y float64) { l.Points = append(l.Points, [2]float64{float64(x), y}) }

// Rows returns the chart as a table: x, then the value of every line. All lines of a chart have the same x.
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
