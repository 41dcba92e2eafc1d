package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/bench/plot/chart"
)

// A run with smaller sizes does not replace the results of a run with larger ones.
func TestKeepLargerSizes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "growth.json")
	for _, run := range []struct {
		title string
		sizes []int
		want  string
	}{{"small", []int{10, 100}, "small"}, {"large", []int{10, 1000}, "large"}, {"small again", []int{10, 100}, "large"}, {"large again", []int{1000}, "large again"}} {
		var l chart.Line
		for _, n := range run.sizes {
			l.Add(n, 1)
		}
		if err := keep(file, chart.Chart{Name: "agents", Title: run.title, Panels: []chart.Panel{{Lines: []chart.Line{l}}}}); err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), `"title": "`+run.want+`"`) {
			t.Errorf("after the run %q, the file contains %s, %v", run.title, text, err)
		}
	}
}
