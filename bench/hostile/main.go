// Command hostile measures how expensive a hostile schema or value can make a check. It generates schemas and values
// that take as much work as possible, and compares each of them with a plain value of the same size.
//
//	bench/run hostile
//
// The first two rows are checks of arguments, as the gateway makes them. The first row checks hostile values against
// a tool's ordinary schema. The second row compiles a hostile schema of a tool server, and checks a value that is
// expensive for this schema. The third row reads the hostile schemas as parts of a manifest. CPU time includes the
// garbage collector. Each case runs a few times, and its fastest run counts, because other work on the machine slows
// some runs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/ambit-run/ambit/bench/cpu"
	"github.com/ambit-run/ambit/internal/gateway/guard/validate"
	"github.com/ambit-run/ambit/internal/gateway/guard/validate/validatetest"
	"github.com/ambit-run/ambit/manifest"
)

// These are the limits for one check.
const (
	maxCPU   = 250 * time.Millisecond
	maxBytes = 32 << 20
	maxStop  = 100 * time.Millisecond
)

func main() {
	cases := flag.Int("cases", 200, "number of generated schemas, and of generated values")
	seed := flag.Uint64("seed", 1, "the seed of the generator; equal seeds generate equal cases")
	rounds := flag.Int("rounds", 3, "number of runs of each case")
	flag.Parse()
	if *cases < 1 || *rounds < 1 {
		fmt.Fprintln(os.Stderr, "hostile: -cases and -rounds must be at least 1")
		os.Exit(2)
	}
	if err := run(os.Stdout, *seed, *cases, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "hostile:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, seed uint64, n, rounds int) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "%d cases, seed %d\tCPU p50\tCPU worst\tallocated, worst\tstopped after, worst\tCPU to plain, p50\tworst\tover a limit\n", n, seed)
	schemas := validatetest.Schemas(seed, n)
	for _, set := range []struct {
		name  string
		cases []validatetest.Case
		check func(c validatetest.Case) func(context.Context) error
		stops bool
	}{
		{"hostile values", validatetest.Values(seed, n), check, true},
		{"hostile schemas", schemas, check, true},
		{"hostile schemas in a manifest", schemas, parse, false},
	} {
		var all []measured
		for _, c := range set.cases {
			m := measure(rounds, set.check(c))
			plain := measure(rounds, check(validatetest.Plain(len(c.Schema)+len(c.Value))))
			m.ratio = float64(m.cpu) / float64(plain.cpu)
			if set.stops {
				m.stop = leave(rounds, m.took/2, set.check(c))
			}
			if m.over() {
				fmt.Fprintf(os.Stderr, "%s: %s takes %v of CPU and %d bytes, and stops after %v\n", set.name, c.Name, m.cpu, m.bytes, m.stop)
			}
			all = append(all, m)
		}
		row(w, set.name, all)
	}
	fmt.Fprintf(w, "limits\t\t%v\t%d MiB\t%v\n", maxCPU, maxBytes>>20, maxStop)
	return w.Flush()
}

func check(c validatetest.Case) func(context.Context) error {
	value := []byte(c.Value)
	return func(ctx context.Context) error {
		_, err := validate.New(c.Schema).Check(ctx, value)
		return err
	}
}

// parse reads a manifest that contains the given schema as the schema of a tool.
func parse(c validatetest.Case) func(context.Context) error {
	text := []byte(`{"name":"Hostile","system_prompt":"You are an agent whose only tool has a schema that is slow on purpose.","example_prompts":["Go."],
		"kind":"mcp-tool","tools":[{"name":"t","description":"d","action":{"type":"prompt-template","template":"x"},"input_schema":` + c.Schema + `}]}`)
	return func(context.Context) error {
		_, err := manifest.Parse("findagent.json", text, manifest.Options{})
		return err
	}
}

type measured struct {
	cpu, took, stop time.Duration
	bytes           uint64
	ratio           float64
}

func (m measured) over() bool { return m.cpu > maxCPU || m.bytes > maxBytes || m.stop > maxStop }

// measure returns the best of several runs.
func measure(rounds int, do func(context.Context) error) measured {
	best := measured{cpu: time.Hour}
	for range rounds {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		used, start := cpu.Used(), time.Now()
		_ = do(context.Background()) // ignore whether the value matches
		took := time.Since(start)
		used = cpu.Used() - used
		runtime.ReadMemStats(&after)
		if used < best.cpu {
			best = measured{cpu: used, took: took, bytes: after.TotalAlloc - before.TotalAlloc}
		}
	}
	return best
}

// leave cancels a check after the given time, and measures how long the check continues to run after that. It returns
// the best of several runs, or 0 if the check always ends before it is cancelled.
func leave(rounds int, after time.Duration, do func(context.Context) error) time.Duration {
	best := time.Duration(0)
	for range rounds {
		ctx, cancel := context.WithCancel(context.Background())
		var left time.Time
		timer := time.AfterFunc(after, func() { left = time.Now(); cancel() })
		err := do(ctx)
		end := time.Now()
		timer.Stop()
		if errors.Is(err, context.Canceled) && (best == 0 || end.Sub(left) < best) {
			best = end.Sub(left)
		}
		cancel()
	}
	return best
}

func row(w io.Writer, name string, all []measured) {
	over := 0
	var cpus, stops []time.Duration
	var ratios []float64
	var bytes []uint64
	for _, m := range all {
		cpus, stops, ratios, bytes = append(cpus, m.cpu), append(stops, m.stop), append(ratios, m.ratio), append(bytes, m.bytes)
		if m.over() {
			over++
		}
	}
	slices.Sort(cpus)
	slices.Sort(ratios)
	stopped := "-"
	if s := slices.Max(stops); s > 0 {
		stopped = fmt.Sprintf("%.1f ms", s.Seconds()*1e3)
	}
	fmt.Fprintf(w, "%s\t%.1f ms\t%.0f ms\t%.1f MiB\t%s\t%.2f\t%.0f\t%d\n", name, cpus[len(cpus)/2].Seconds()*1e3, cpus[len(cpus)-1].Seconds()*1e3,
		float64(slices.Max(bytes))/(1<<20), stopped, ratios[len(ratios)/2], ratios[len(ratios)-1], over)
}
