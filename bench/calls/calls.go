// Package calls compares ways from an MCP client to the tool of a server: directly, through ambit, or through another
// program. The ways take turns, and every answer is checked.
package calls

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
)

// Connector connects a new client.
type Connector func(context.Context) (*mcp.ClientSession, error)

// Way is one path from the client to the tool.
type Way struct {
	Name, Baseline string // Baseline names the way to compare with
	Tool           string
	Shared         bool // whether all clients share one session
	Connect        Connector
	Middle         *os.Process // the process between client and server; nil if there is none
}

// Plan says how many calls to make.
type Plan struct {
	Sizes         []int  // the sizes of the text in a call and its answer, in bytes
	Text          string // the text of a call: repeated, and cut to the size
	Calls, Rounds int
	Span          time.Duration
}

// Flags adds the flags of a plan to the command line. They are parsed only when Parse is called.
func (p *Plan) Flags() {
	flag.IntVar(&p.Calls, "calls", p.Calls, "number of sequential calls in a round")
	flag.DurationVar(&p.Span, "span", p.Span, "how long 32 clients make concurrent calls in a round")
	flag.IntVar(&p.Rounds, "rounds", p.Rounds, "rounds")
	flag.Func("size", "measure only calls with a text of this size, in bytes", func(text string) error {
		p.Sizes = make([]int, 1)
		_, err := fmt.Sscan(text, &p.Sizes[0])
		return err
	})
}

// Parse parses the command line, and exits if the plan is impossible.
func (p *Plan) Parse() {
	flag.Parse()
	if p.Calls < slice || p.Calls%slice != 0 || p.Rounds < 1 {
		fmt.Fprintf(os.Stderr, "bench: -calls must be a multiple of %d, and -rounds at least 1\n", slice)
		os.Exit(2)
	}
}

// together is the number of concurrent clients.
const together = 32

// slice is the number of sequential calls in one turn. The ways take turns. The turns are short, so that other load on
// the machine affects all ways equally.
const slice = 50

// key identifies a measurement.
type key struct {
	way  string
	size int
}

// tally collects the measurements of one way.
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

// Measure measures all ways with each text size, and prints the results.
func (p *Plan) Measure(ctx context.Context, ways []*Way) error {
	tallies := map[key]*tally{}
	for _, size := range p.Sizes {
		if err := p.measure(ctx, ways, size, tallies); err != nil {
			return fmt.Errorf("%d bytes: %w", size, err)
		}
	}
	p.report(ways, tallies)
	return nil
}

// measure measures all ways with one text size. The first round does not count.
func (p *Plan) measure(ctx context.Context, ways []*Way, size int, tallies map[key]*tally) error {
	for _, w := range ways {
		one, err := w.Connect(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", w.Name, err)
		}
		defer one.Close()
		tallies[key{w.Name, size}] = &tally{one: one, text: strings.Repeat(p.Text, size/len(p.Text)+1)[:size]}
	}
	for round := range p.Rounds + 1 {
		for range p.Calls / slice {
			for _, w := range ways {
				if err := oneByOne(ctx, w, tallies[key{w.Name, size}]); err != nil {
					return fmt.Errorf("%s: %w", w.Name, err)
				}
			}
		}
		for _, w := range ways {
			t := tallies[key{w.Name, size}]
			if err := crowd(ctx, w, t, p.Span); err != nil {
				return fmt.Errorf("%s: %w", w.Name, err)
			}
			t.close(w, round > 0)
		}
	}
	return nil
}

// oneByOne makes sequential calls.
func oneByOne(ctx context.Context, w *Way, t *tally) error {
	before := w.used()
	for range slice {
		start := time.Now()
		if err := echo(ctx, t.one, w.Tool, t.text); err != nil {
			return err
		}
		t.times = append(t.times, time.Since(start))
	}
	t.cpu += w.used() - before
	t.made += slice
	return nil
}

// close ends a round. It keeps the round's results only if the round counts.
func (t *tally) close(w *Way, counts bool) {
	if counts {
		slices.Sort(t.times)
		t.p50 = append(t.p50, t.times[len(t.times)/2])
		t.p99 = append(t.p99, t.times[len(t.times)*99/100])
		t.cpus = append(t.cpus, t.cpu/time.Duration(t.made))
		t.rss = max(t.rss, w.Memory())
	} else {
		t.rate = nil
	}
	t.times, t.cpu, t.made = t.times[:0], 0, 0
}

// crowd makes concurrent calls. Each client has its own session, except on stdio.
func crowd(ctx context.Context, w *Way, t *tally, span time.Duration) error {
	sessions := make([]*mcp.ClientSession, together)
	for i := range sessions {
		if w.Shared {
			sessions[i] = t.one
			continue
		}
		s, err := w.Connect(ctx)
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
				if err := echo(ctx, s, w.Tool, t.text); err != nil {
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
	if len(result.Content) == 1 && !result.IsError {
		if content, ok := result.Content[0].(*mcp.TextContent); ok && content.Text == text {
			return nil
		}
	}
	got, _ := json.Marshal(result)
	return fmt.Errorf("the answer is not the text that was sent: %.300s", got)
}

// Median returns the median of a list.
func Median[T int64 | float64 | time.Duration](list []T) T {
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
	return fmt.Sprintf("%.2f", Median(ratios))
}

func (p *Plan) report(ways []*Way, tallies map[key]*tally) {
	fmt.Printf("one tool call; %d calls one by one and %d clients at once, %d rounds, medians; %d cores, %s\n",
		p.Calls, together, p.Rounds, runtime.NumCPU(), runtime.Version())
	for _, size := range p.Sizes {
		fmt.Printf("\n%d bytes\n", size)
		table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(table, "way\tp50 µs\tp99 µs\tcalls/s\tCPU µs\tRSS MiB\tp50 ×\tcalls/s ×\tCPU ×\t")
		for _, w := range ways {
			t := tallies[key{w.Name, size}]
			base := tallies[key{w.Baseline, size}]
			p50, rate, cpu := Median(t.p50), Median(t.rate), Median(t.cpus)
			fmt.Fprintf(table, "%s\t%d\t%d\t%.0f\t%d\t%.0f\t%s\t%s\t%s\t\n",
				w.Name, p50.Microseconds(), Median(t.p99).Microseconds(), rate, cpu.Microseconds(), float64(t.rss)/(1<<20),
				ratio(t.p50, base.p50), ratio(t.rate, base.rate), ratio(t.cpus, base.cpus))
		}
		table.Flush()
	}
}
