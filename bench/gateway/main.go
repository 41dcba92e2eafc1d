// Command gateway compares the cost of a tool call in three cases: directly to the server, through
// httputil.ReverseProxy, and through ambit with journal and guardrails.
//
//	make build && bench/run gateway
//
// The server and the client use the official Go SDK, and the server has one tool. The client, the server, the proxy
// and ambit are separate processes, because the kernel measures CPU time and memory for each process. The columns CPU
// and RSS describe the process between client and server. One proxy runs from the client's own binary, which makes it
// faster. Another proxy writes a block to the disk before each answer. This is the minimum cost of a durable journal.
//
// All cases are measured in turn, 50 calls at a time, in several rounds. Every answer is checked. The server answers in
// JSON, because event streams through ReverseProxy sometimes end without an answer. In ambit, a call to a read tool
// needs one durable commit, and a call to a write tool needs two. A quota adds one more.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ambit-run/ambit/bench/gateway/middle"
)

func main() {
	var size int
	proxy := flag.Bool("proxy", false, "run as a proxy to the given address; only the benchmark itself sets this flag")
	calls := flag.Int("calls", 400, "number of sequential calls in a round")
	span := flag.Duration("span", time.Second, "how long 32 clients make concurrent calls in a round")
	rounds := flag.Int("rounds", 5, "rounds")
	ambit := flag.String("ambit", "bin/ambit", "the binary to measure")
	before := flag.String("before", "", "another ambit binary to compare with")
	only := flag.String("only", "", "measure only the ways whose names contain this text, and their baselines")
	flag.IntVar(&size, "size", 0, "measure only calls with a text of this size, in bytes")
	flag.Parse()
	if size > 0 {
		sizes = []int{size}
	}
	var err error
	if *calls < slice || *calls%slice != 0 || *rounds < 1 {
		fmt.Fprintf(os.Stderr, "bench: -calls must be a multiple of %d, and -rounds at least 1\n", slice)
		os.Exit(2)
	}
	if *proxy {
		err = middle.ServeProxy(flag.Arg(0), nil)
	} else {
		err = run(*ambit, *before, *only, *calls, *rounds, *span)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// sizes lists the sizes of the text in a call and its answer, in bytes.
var sizes = []int{64, 8 << 10}

const together = 32

// key identifies a measurement.
type key struct {
	way  string
	size int
}

// tally collects the measurements of one way, which is one path from the client to the tool.
type tally struct {
	one  *mcp.ClientSession
	text string

	times    []time.Duration // the durations of the sequential calls in this round
	cpu      time.Duration   // the CPU time of the middle process in this round
	made     int64           // the number of calls in this round
	p50, p99 []time.Duration // the 50th and 99th percentile of each round
	rate     []float64       // calls per second of 32 concurrent clients in each round
	cpus     []time.Duration // CPU time per call in each round
	rss      int64           // the maximum resident memory over all rounds
}

// slice is the number of sequential calls in one turn. The ways take turns. The turns are short, so that other load on
// the machine affects all ways equally.
const slice = 50

func run(ambit, before, only string, calls, rounds int, span time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	with := func(do func([]*way) error) error {
		rig, err := build(ctx, ambit, before)
		if rig != nil {
			defer rig.close()
		}
		if err != nil {
			return err
		}
		rig.keep(only)
		return do(rig.ways)
	}
	// A large result changes the memory of a process permanently, so use separate processes for it.
	if err := with(func(ways []*way) error { return large(ctx, ways) }); err != nil {
		return fmt.Errorf("a large result: %w", err)
	}
	return with(func(ways []*way) error {
		tallies := map[key]*tally{}
		for _, size := range sizes {
			if err := measure(ctx, ways, size, calls, rounds, span, tallies); err != nil {
				return fmt.Errorf("%d bytes: %w", size, err)
			}
		}
		report(ways, tallies, calls, rounds)
		return nil
	})
}

// large prints how much more memory a program needs while one large result passes through it.
func large(ctx context.Context, ways []*way) error {
	for _, w := range ways {
		s, err := w.connect(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		defer s.Close()
		if w.middle == nil {
			continue
		}
		for _, mib := range []int{1, 30, 64} {
			if w.shared && mib > 1 {
				continue // the SDK's client reads no longer line
			}
			if err := w.resetPeak(); err != nil {
				return err
			}
			before := w.memory()
			result, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "fill", Arguments: map[string]any{"bytes": mib << 20}})
			if err != nil || result.IsError {
				return fmt.Errorf("%s, %d MiB: %w, %.300v", w.name, mib, err, result)
			}
			fmt.Printf("a result of %2d MiB needs %3d MiB more: %s\n", mib, (w.peak()-before)>>20, w.name)
		}
	}
	return nil
}

// measure measures all ways with one text size. The first round does not count.
func measure(ctx context.Context, ways []*way, size, calls, rounds int, span time.Duration, tallies map[key]*tally) error {
	for _, w := range ways {
		one, err := w.connect(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		defer one.Close()
		tallies[key{w.name, size}] = &tally{one: one, text: strings.Repeat("x", size)}
	}
	for round := range rounds + 1 {
		for range calls / slice {
			for _, w := range ways {
				if err := oneByOne(ctx, w, tallies[key{w.name, size}]); err != nil {
					return fmt.Errorf("%s: %w", w.name, err)
				}
			}
		}
		for _, w := range ways {
			t := tallies[key{w.name, size}]
			if err := crowd(ctx, w, t, span); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			t.close(w, round > 0)
		}
	}
	return nil
}

// oneByOne makes sequential calls.
func oneByOne(ctx context.Context, w *way, t *tally) error {
	before := w.used()
	for range slice {
		start := time.Now()
		if err := echo(ctx, t.one, w.tool, t.text); err != nil {
			return err
		}
		t.times = append(t.times, time.Since(start))
	}
	t.cpu += w.used() - before
	t.made += slice
	return nil
}

// close ends a round. It keeps the round's results only if the round counts.
func (t *tally) close(w *way, counts bool) {
	if counts {
		slices.Sort(t.times)
		t.p50 = append(t.p50, t.times[len(t.times)/2])
		t.p99 = append(t.p99, t.times[len(t.times)*99/100])
		t.cpus = append(t.cpus, t.cpu/time.Duration(t.made))
		t.rss = max(t.rss, w.memory())
	} else {
		t.rate = nil
	}
	t.times, t.cpu, t.made = t.times[:0], 0, 0
}

// crowd makes concurrent calls. Each client has its own session, except on stdio.
func crowd(ctx context.Context, w *way, t *tally, span time.Duration) error {
	sessions := make([]*mcp.ClientSession, together)
	for i := range sessions {
		if w.shared {
			sessions[i] = t.one
			continue
		}
		s, err := w.connect(ctx)
		if err != nil {
			return err
		}
		defer s.Close()
		sessions[i] = s
	}
	var n atomic.Int64
	var wg sync.WaitGroup
	failed := make(chan error, together)
	before, start := w.used(), time.Now()
	for _, s := range sessions {
		wg.Go(func() {
			for time.Since(start) < span {
				if err := echo(ctx, s, w.tool, t.text); err != nil {
					failed <- err
					return
				}
				n.Add(1)
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	select {
	case err := <-failed:
		return err
	default:
	}
	t.cpu += w.used() - before
	t.made += n.Load()
	t.rate = append(t.rate, float64(n.Load())/took.Seconds())
	return nil
}

func echo(ctx context.Context, s *mcp.ClientSession, tool, text string) error {
	result, err := s.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: map[string]any{"text": text}})
	if err != nil {
		return err
	}
	if content, ok := result.Content[0].(*mcp.TextContent); !ok || content.Text != text {
		got, _ := json.Marshal(result)
		return fmt.Errorf("the answer is not the text that was sent: %.300s", got)
	}
	return nil
}

func median[T int64 | float64 | time.Duration](list []T) T {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}

// ratio computes the ratio of each round's value to the baseline's value in the same round, and returns the median.
// Other load on the machine affects both values of a round equally.
func ratio[T int64 | float64 | time.Duration](list, baseline []T) string {
	var ratios []float64
	for i := range list {
		if list[i] == 0 || baseline[i] == 0 {
			return "–"
		}
		ratios = append(ratios, float64(list[i])/float64(baseline[i]))
	}
	return fmt.Sprintf("%.2f", median(ratios))
}

func report(ways []*way, tallies map[key]*tally, calls, rounds int) {
	fmt.Printf("one tool call; %d calls one by one and %d clients at once, %d rounds, medians; %d cores, %s\n", calls, together, rounds, runtime.NumCPU(), runtime.Version())
	for _, size := range sizes {
		fmt.Printf("\n%d bytes\n", size)
		table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(table, "way\tp50 µs\tp99 µs\tcalls/s\tCPU µs\tRSS MiB\tp50 ×\tcalls/s ×\tCPU ×\t")
		for _, w := range ways {
			t := tallies[key{w.name, size}]
			base := tallies[key{w.baseline, size}]
			p50, rate, cpu := median(t.p50), median(t.rate), median(t.cpus)
			fmt.Fprintf(table, "%s\t%d\t%d\t%.0f\t%d\t%.0f\t%s\t%s\t%s\t\n", w.name, p50.Microseconds(), median(t.p99).Microseconds(), rate,
				cpu.Microseconds(), float64(t.rss)/(1<<20),
				ratio(t.p50, base.p50), ratio(t.rate, base.rate), ratio(t.cpus, base.cpus))
		}
		table.Flush()
	}
	fmt.Println("\n× is the ratio to ReverseProxy in the same round, median of the rounds; on stdio, " +
		"the ratio to the direct connection (which has no process in the middle)")
}
