// Command plot writes the results of the benchmarks into docs/benchmarks.md.
//
//	bin/bench/plot            draw the charts and rewrite the tables of the page
//	bin/bench/plot -machine   describe this machine
//
// The page is written by hand, except the text between the comments "bench NAME" and "/bench". The command replaces
// this text with a table, if bench/results/growth.json contains a chart with that name. Otherwise, it uses the
// benchmark's output in bench/results/NAME.txt. Without results, the text stays unchanged.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ambit-run/ambit/bench/plot/chart"
)

func main() {
	machine := flag.Bool("machine", false, "describe this machine")
	results := flag.String("results", "bench/results", "the `folder` with the results")
	page := flag.String("page", "docs/benchmarks.md", "the page to rewrite")
	images := flag.String("images", "docs/images", "the `folder` for the charts")
	flag.Parse()
	var err error
	if *machine {
		err = describe(os.Stdout)
	} else {
		err = run(*results, *page, *images)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "plot:", err)
		os.Exit(1)
	}
}

func run(results, page, images string) error {
	var charts []chart.Chart
	text, err := os.ReadFile(filepath.Join(results, "growth.json"))
	if err == nil {
		err = json.Unmarshal(text, &charts)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(images, 0o755); err != nil {
		return err
	}
	tables := map[string]string{}
	for i := range charts {
		c := &charts[i]
		tables[c.Name] = markdown(c)
		if err := os.WriteFile(filepath.Join(images, "bench-"+c.Name+".svg"), draw(c), 0o644); err != nil {
			return err
		}
	}
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	fresh, err := rewrite(string(old), func(name string) (string, error) {
		if table, ok := tables[name]; ok {
			return table, nil
		}
		text, err := os.ReadFile(filepath.Join(results, name+".txt"))
		if errors.Is(err, fs.ErrNotExist) {
			return "", nil
		}
		return "```text\n" + strings.TrimRight(string(text), "\n") + "\n```\n", err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	return os.WriteFile(page, []byte(fresh), 0o644)
}

const (
	opening = "<!-- bench "
	closing = "<!-- /bench -->"
)

// rewrite replaces the text between the marks of a page. The callback returns the new text for a name, or "" to keep
// the old text.
func rewrite(page string, fresh func(name string) (string, error)) (string, error) {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(page, opening)
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		name, rest, ok := strings.Cut(rest, " -->\n")
		old, rest, closed := strings.Cut(rest, closing)
		if !ok || !closed || strings.Contains(old, opening) {
			return "", fmt.Errorf("the part %.40q has no end mark; add the line %s", name, closing)
		}
		part, err := fresh(name)
		if err != nil {
			return "", err
		}
		if part == "" {
			part = old
		}
		out.WriteString(opening + name + " -->\n" + part + closing)
		page = rest
	}
}

// markdown returns the command that measured a chart, followed by the chart as a Markdown table.
func markdown(c *chart.Chart) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "`%s`", c.Command)
	if c.Measured != "" {
		fmt.Fprintf(&b, ", measured on %s", c.Measured)
	}
	fmt.Fprintf(&b, "\n\n| %s |", c.X)
	rule := "\n|---:|"
	for _, p := range c.Panels {
		for _, l := range p.Lines {
			fmt.Fprintf(&b, " %s, %s |", l.Name, p.Unit)
			rule += "---:|"
		}
	}
	b.WriteString(rule + "\n")
	for _, row := range c.Rows() {
		for i, v := range row {
			if i == 0 {
				fmt.Fprintf(&b, "| %.0f |", v)
			} else {
				fmt.Fprintf(&b, " %s |", chart.Number(v))
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}
