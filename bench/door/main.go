// Command door measures one tool call that goes straight to a server, through
// httputil.ReverseProxy, and through ambit with the journal and every guard on.
//
//	make build && go run ./bench/door
//
// The server is the official Go SDK's, with one tool, echo; the client is the
// SDK's too. Server, proxy and ambit are processes of their own, so that what
// each costs can be read from the kernel: the columns CPU and RSS are those of
// the process in the middle. Ways take turns, several rounds in one run, and
// every answer is checked. The server answers in JSON: its event streams, through
// ReverseProxy, now and then end without an answer. A read costs ambit one durable commit, a write two.
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
)

func main() {
	var size int
	role := flag.String("role", "", "what this process is; for the benchmark's own use")
	target := flag.String("target", "", "where a proxy forwards to")
	calls := flag.Int("calls", 400, "calls one after another in a turn")
	span := flag.Duration("span", time.Second, "how long 32 clients call at once in a turn")
	rounds := flag.Int("rounds", 5, "turns of each way")
	ambit := flag.String("ambit", "bin/ambit", "the binary to measure")
	before := flag.String("before", "", "another ambit, which takes turns with the one to measure")
	only := flag.String("only", "", "measure the ways whose names hold this, and what they are held against")
	flag.IntVar(&size, "size", 0, "measure with so many bytes only")
	flag.Parse()
	if size > 0 {
		sizes = []int{size}
	}
	var err error
	switch *role {
	case "echo":
		err = serveEcho()
	case "echo-stdio":
		err = echoServer().Run(context.Background(), &mcp.StdioTransport{})
	case "proxy":
		err = serveProxy(*target)
	default:
		err = run(*ambit, *before, *only, *calls, *rounds, *span)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// sizes are how many bytes go there and back.
var sizes = []int{64, 8 << 10}

const together = 32

// key tells measurements apart.
type key struct {
	way  string
	size int
}

// tally is what the turns of one way added up to.
type tally struct {
	p50, p99 []time.Duration // of each turn
	rate     []float64       // calls a second, 32 at once
	cpu      []time.Duration // per call, in the middle
	rss      int64
}

func run(ambit, before, only string, calls, rounds int, span time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	rig, err := build(ctx, ambit, before)
	if err != nil {
		return err
	}
	defer rig.close()
	rig.keep(only)
	tallies := map[key]*tally{}
	for range rounds {
		for _, w := range rig.ways {
			for _, size := range sizes {
				k := key{w.name, size}
				if tallies[k] == nil {
					tallies[k] = &tally{}
				}
				if err := turn(ctx, w, size, calls, span, tallies[k]); err != nil {
					return fmt.Errorf("%s, %d bytes: %w", w.name, size, err)
				}
			}
		}
	}
	report(rig.ways, tallies, calls, rounds)
	return nil
}

// turn lets one way be called, one by one and then by many at once.
func turn(ctx context.Context, w *way, size, calls int, span time.Duration, t *tally) error {
	text := strings.Repeat("x", size)
	one, err := w.connect(ctx)
	if err != nil {
		return err
	}
	defer one.Close()
	before := w.used()
	times := make([]time.Duration, 0, calls)
	for i := range calls + calls/10 {
		start := time.Now()
		if err := echo(ctx, one, w.tool, text); err != nil {
			return err
		}
		if i >= calls/10 { // the first ones warm up
			times = append(times, time.Since(start))
		}
	}
	made := int64(calls + calls/10)
	slices.Sort(times)
	t.p50 = append(t.p50, times[len(times)/2])
	t.p99 = append(t.p99, times[len(times)*99/100])
	n, rate, err := crowd(ctx, w, one, text, span)
	if err != nil {
		return err
	}
	made += n
	t.rate = append(t.rate, rate)
	t.cpu = append(t.cpu, (w.used()-before)/time.Duration(made))
	t.rss = max(t.rss, w.memory())
	return nil
}

// crowd has many clients call at once, each with a session of its own; where a
// way has one client only, as on stdio, they share it.
func crowd(ctx context.Context, w *way, one *mcp.ClientSession, text string, span time.Duration) (int64, float64, error) {
	sessions := make([]*mcp.ClientSession, together)
	for i := range sessions {
		if w.shared {
			sessions[i] = one
			continue
		}
		s, err := w.connect(ctx)
		if err != nil {
			return 0, 0, err
		}
		defer s.Close()
		sessions[i] = s
	}
	var n atomic.Int64
	var wg sync.WaitGroup
	failed := make(chan error, together)
	start := time.Now()
	for _, s := range sessions {
		wg.Go(func() {
			for time.Since(start) < span {
				if err := echo(ctx, s, w.tool, text); err != nil {
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
		return 0, 0, err
	default:
	}
	return n.Load(), float64(n.Load()) / took.Seconds(), nil
}

func echo(ctx context.Context, s *mcp.ClientSession, tool, text string) error {
	result, err := s.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: map[string]any{"text": text}})
	if err != nil {
		return err
	}
	if content, ok := result.Content[0].(*mcp.TextContent); !ok || content.Text != text {
		said, _ := json.Marshal(result)
		return fmt.Errorf("the answer is another text: %.300s", said)
	}
	return nil
}

func median[T int64 | float64 | time.Duration](list []T) T {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}

// ratio is the median of the ratios in each round: whatever else the machine
// does meets both sides of one.
func ratio[T int64 | float64 | time.Duration](list, beside []T) string {
	var ratios []float64
	for i := range list {
		if list[i] == 0 || beside[i] == 0 {
			return "–"
		}
		ratios = append(ratios, float64(list[i])/float64(beside[i]))
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
			base := tallies[key{w.beside, size}]
			p50, rate, cpu := median(t.p50), median(t.rate), median(t.cpu)
			fmt.Fprintf(table, "%s\t%d\t%d\t%.0f\t%d\t%.0f\t%s\t%s\t%s\t\n", w.name, p50.Microseconds(), median(t.p99).Microseconds(), rate,
				cpu.Microseconds(), float64(t.rss)/(1<<20),
				ratio(t.p50, base.p50), ratio(t.rate, base.rate), ratio(t.cpu, base.cpu))
		}
		table.Flush()
	}
	fmt.Println("\n× is beside the ReverseProxy in the same round, median of the rounds; for ways on stdio, beside the direct one (whose CPU is not in the middle)")
}
