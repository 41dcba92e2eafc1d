// Command growth measures how ambit's costs grow with the number of agents, tools, concurrent clients and journal
// records.
//
//	make build && bench/run growth
//
// The tool servers are cheap HTTP stubs in this process. ambit is the real binary in its own process, whose memory
// the kernel reports. The command prints tables and writes JSON for bench/plot.
//
// Each part is measured for a list of sizes. With -large, the largest sizes are 10,000 agents, 5,000 clients, ten million
// records, 4 gateways and 16 workers. Without it, a run takes some minutes. For a quick run, use -only.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/ambit-run/ambit/bench/plot/chart"
)

// sizes is a flag value: a list of numbers.
type sizes []int

func (s *sizes) String() string {
	var texts []string
	for _, n := range *s {
		texts = append(texts, strconv.Itoa(n))
	}
	return strings.Join(texts, ",")
}

func (s *sizes) Set(text string) error {
	*s = nil
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil || n < 1 {
			return fmt.Errorf("%q is not a positive number", part)
		}
		*s = append(*s, n)
	}
	slices.Sort(*s)
	return nil
}

type setup struct {
	ambit string
	dir   string
	stub  *stub
	span  time.Duration // how long clients make concurrent calls
	idle  time.Duration // how long a daemon without requests is watched
}

// part measures one kind of growth.
type part struct {
	name  string
	sizes *sizes
	run   func(context.Context, *setup, sizes) (chart.Chart, error)
}

func main() {
	agents, tools, clients, records := sizes{10, 100, 1000}, sizes{100, 1000, 10000}, sizes{1, 32, 500}, sizes{10_000, 100_000, 1_000_000}
	shown, gateways, workers := sizes{10_000, 100_000, 1_000_000}, sizes{1, 2}, sizes{1, 4}
	rows := sizes{10_000, 100_000, 1_000_000}
	flag.Var(&agents, "agents", "numbers of `agents` in one daemon")
	flag.Var(&tools, "tools", "numbers of `tools` in one agent")
	flag.Var(&clients, "clients", "numbers of concurrent `clients`")
	flag.Var(&records, "journal", "numbers of `records` in the journal")
	flag.Var(&shown, "console", "numbers of `records` in the journal that the console shows")
	flag.Var(&gateways, "gateways", "numbers of `gateways` on one PostgreSQL server")
	flag.Var(&workers, "workers", "numbers of `workers` on one PostgreSQL server")
	flag.Var(&rows, "postgres", "numbers of `records` in the journal on PostgreSQL")
	large := flag.Bool("large", false, "also measure the largest sizes, which takes about half an hour and 16 GB of temporary files")
	span := flag.Duration("span", 4*time.Second, "how long clients make concurrent calls")
	idle := flag.Duration("idle", 20*time.Second, "how long daemons without requests are watched")
	only := flag.String("only", "", "only these `parts`, separated by commas: agents, tools, clients, journal, console, postgres, gateways, workers")
	out := flag.String("o", "bench/results/growth.json", "the output file; it keeps the results of parts that were not run, or were run with larger sizes")
	ambit := flag.String("ambit", "bin/ambit", "the binary to measure")
	flag.Parse()
	if *large {
		agents, clients, records = append(agents, 10_000), append(clients, 5000), append(records, 10_000_000)
		rows = append(rows, 10_000_000)
		gateways, workers = append(gateways, 4), append(workers, 16)
	}
	parts := []part{
		{"agents", &agents, growAgents},
		{"tools", &tools, growTools},
		{"clients", &clients, growClients},
		{"journal", &records, growJournal},
		{"console", &shown, growConsole},
		{"postgres", &rows, growPostgres},
		{"gateways", &gateways, growGateways},
		{"workers", &workers, growWorkers},
	}
	if err := run(*ambit, *only, *out, setup{span: *span, idle: *idle}, parts); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ambit, only, out string, base setup, parts []part) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	ambit, err := filepath.Abs(ambit)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "growth-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	stub, err := newStub()
	if err != nil {
		return err
	}
	defer stub.close()
	for _, p := range parts {
		if only != "" && !slices.Contains(strings.Split(only, ","), p.name) {
			continue
		}
		s := base
		s.ambit, s.dir, s.stub = ambit, filepath.Join(dir, p.name), stub
		c, err := p.run(ctx, &s, *p.sizes)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		c.Name, c.Measured = p.name, time.Now().Format(time.DateOnly)
		table(c)
		if err := keep(out, c); err != nil {
			return err
		}
		if err := os.RemoveAll(s.dir); err != nil {
			return err
		}
	}
	return nil
}

// table prints the numbers of a chart, one row for each size.
func table(c chart.Chart) {
	fmt.Printf("%s\n", c.Title)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, c.X, "\t")
	for _, panel := range c.Panels {
		for _, l := range panel.Lines {
			fmt.Fprintf(w, "%s, %s\t", l.Name, panel.Unit)
		}
	}
	fmt.Fprintln(w)
	for _, row := range c.Rows() {
		for i, v := range row {
			if i == 0 {
				fmt.Fprintf(w, "%.0f\t", v)
			} else {
				fmt.Fprintf(w, "%s\t", chart.Number(v))
			}
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	fmt.Println()
}

// keep stores a chart in a file. It replaces an older chart with the same name, unless that chart has larger sizes.
func keep(file string, c chart.Chart) error {
	var all []chart.Chart
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &all)
	} else if errors.Is(err, os.ErrNotExist) {
		err = os.MkdirAll(filepath.Dir(file), 0o755)
	}
	if err != nil {
		return err
	}
	switch i := slices.IndexFunc(all, func(old chart.Chart) bool { return old.Name == c.Name }); {
	case i < 0:
		all = append(all, c)
	case largest(all[i]) > largest(c):
		return nil
	default:
		all[i] = c
	}
	if text, err = json.MarshalIndent(all, "", "  "); err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// largest returns the largest size of a chart.
func largest(c chart.Chart) (size float64) {
	for _, row := range c.Rows() {
		size = max(size, row[0])
	}
	return size
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func mib(n int64) float64 { return float64(n) / (1 << 20) }
