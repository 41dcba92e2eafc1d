package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/bench/plot/chart"
)

func sample() chart.Chart {
	slow := chart.Line{Name: "slow & <big>"}
	flat := chart.Line{Name: "flat"}
	for i, n := range []int{10, 100, 1000} {
		slow.Add(n, float64(n)*1.5)
		flat.Add(n, float64(3+i))
	}
	return chart.Chart{
		Name: "things", Title: `More "things"`, X: "things", Command: "bench/run growth -only things",
		Panels: []chart.Panel{{Title: "Time", Unit: "ms", Log: true, Lines: []chart.Line{slow}}, {Title: "Memory", Unit: "MiB", Lines: []chart.Line{flat}}},
	}
}

// TestPage checks that a page keeps its text and gets new tables and charts.
func TestPage(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	growth, err := json.Marshal([]chart.Chart{sample()})
	if err != nil {
		t.Fatal(err)
	}
	write("growth.json", string(growth))
	write("gateway.txt", "way  p50\nambit  1\n")
	page := write("page.md", "# Words\n<!-- bench things -->\nold\n<!-- /bench -->\nmore\n<!-- bench gateway -->\n<!-- /bench -->\n<!-- bench never -->\nstays\n<!-- /bench -->\nend\n")
	want := "# Words\n<!-- bench things -->\n`bench/run growth -only things`\n\n| things | slow & <big>, ms | flat, MiB |\n|---:|---:|---:|\n| 10 | 15.0 | 3.00 |\n| 100 | 150 | 4.00 |\n| 1000 | 1500 | 5.00 |\n<!-- /bench -->\nmore\n" +
		"<!-- bench gateway -->\n```text\nway  p50\nambit  1\n```\n<!-- /bench -->\n<!-- bench never -->\nstays\n<!-- /bench -->\nend\n"
	for range 2 { // a second run changes nothing
		if err := run(dir, page, dir); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Fatalf("got\n%s\nwant\n%s", got, want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "bench-things.svg")); err != nil {
		t.Error(err)
	}
}

func TestPageWithoutEnd(t *testing.T) {
	for _, page := range []string{"<!-- bench a -->\ntext\n", "<!-- bench a -->\n<!-- bench b -->\n<!-- /bench -->\n", "<!-- bench a"} {
		if got, err := rewrite(page, func(string) (string, error) { return "", nil }); err == nil {
			t.Errorf("rewrite(%q) returned %q, want an error", page, got)
		}
	}
}

// TestPicture checks that a picture is well-formed XML and contains every point and name.
func TestPicture(t *testing.T) {
	c := sample()
	picture := draw(&c)
	circles, texts := 0, ""
	d := xml.NewDecoder(strings.NewReader(string(picture)))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			if token.Name.Local == "circle" {
				circles++
			}
		case xml.CharData:
			texts += string(token) + "\n"
		}
	}
	if circles != 6 {
		t.Errorf("the picture has %d points, want 6", circles)
	}
	for _, want := range []string{"slow & <big>", "flat", `More "things"`, "Time, ms", "1k", "prefers-color-scheme"} {
		if !strings.Contains(texts, want) {
			t.Errorf("the picture does not contain %s", want)
		}
	}
}

func TestAxis(t *testing.T) {
	log := newAxis([]float64{3, 5000}, true)
	if log.at(1) != 0 || log.at(10000) != 1 || len(log.ticks) != 5 {
		t.Errorf("the logarithmic axis goes from 10^%v to 10^%v with the ticks %v, want 1 to 10000 with 5 ticks", log.from, log.to, log.ticks)
	}
	linear := newAxis([]float64{3, 165}, false)
	if linear.at(0) != 0 || linear.at(175) != 1 {
		t.Errorf("the linear axis goes from %v to %v with the ticks %v, want 0 to 175", linear.from, linear.to, linear.ticks)
	}
}
