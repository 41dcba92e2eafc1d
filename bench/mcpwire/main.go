// Command mcpwire compares tool calls through two MCP clients: ambit's client and the official Go SDK's client.
//
//	bench/run mcpwire
//
// Both clients call the same tool of the same server process with the same arguments. They take turns of a few
// hundred calls. The columns show what one call costs the client: CPU time, allocations, allocated bytes, and the
// time until the answer. Part of the difference is by design: the SDK decodes the result into Go types, while ambit
// only checks that the result is JSON and passes it on.
//
// The server is the small echoserver. The command also measures @modelcontextprotocol/server-everything, with one
// process for each client. It skips this server if node or the package is missing.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/ambit-run/ambit/bench/cpu"
)

func main() {
	calls := flag.Int("calls", 300, "number of calls in one turn")
	turns := flag.Int("turns", 12, "number of turns of each client")
	flag.Parse()
	if err := run(*calls, *turns); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// client is an MCP client. Its method echo calls a tool once and checks that the answer contains the text.
type client interface {
	echo(ctx context.Context, arguments json.RawMessage, text []byte) error
	close()
}

var errAnotherText = errors.New("the answer is not the text that was sent")

type setting struct {
	name  string
	size  int // the size of the text in bytes
	ours  client
	peers client
}

// tally collects the costs of one client.
type tally struct {
	calls     int
	cpu       time.Duration
	allocs    uint64
	bytes     uint64
	latencies []time.Duration
}

func run(calls, turns int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	settings, closeAll, err := connect(ctx)
	if err != nil {
		return err
	}
	defer closeAll()

	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Printf("one tool call; %d calls through each client, in %d turns each; %d cores, %s\n\n",
		calls*turns, turns, runtime.NumCPU(), runtime.Version())
	fmt.Fprintln(table, "\tbytes\tclient\tCPU µs\tallocs\tB\tp50 µs\tp99 µs\t")
	worst := map[string]float64{}
	for _, s := range settings {
		ours, peers, err := s.measure(ctx, calls, turns)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		a, b := ours.perCall(), peers.perCall()
		row(table, s, "ambit", a)
		row(table, s, "go-sdk", b)
		fmt.Fprintf(table, "\t\tambit : go-sdk")
		for i, column := range columns {
			ratio := a[i] / b[i]
			fmt.Fprintf(table, "\t%.2f", ratio)
			worst[column] = max(worst[column], ratio)
		}
		fmt.Fprintln(table, "\t")
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Println("\nworst ratio, ambit : go-sdk (below 1 is better):")
	for _, column := range columns {
		fmt.Printf("  %-7s %.2f\n", column, worst[column])
	}
	fmt.Printf("  go-sdk allocates at least %.1f times the bytes\n", 1/worst["B"])
	return nil
}

var columns = []string{"CPU µs", "allocs", "B", "p50 µs", "p99 µs"}

func row(table *tabwriter.Writer, s setting, who string, values []float64) {
	fmt.Fprintf(table, "%s\t%d\t%s", s.name, s.size, who)
	for i, v := range values {
		if columns[i] == "allocs" || columns[i] == "B" {
			fmt.Fprintf(table, "\t%.0f", v)
		} else {
			fmt.Fprintf(table, "\t%.1f", v)
		}
	}
	fmt.Fprintln(table, "\t")
}

func (t *tally) perCall() []float64 {
	slices.Sort(t.latencies)
	at := func(q float64) float64 {
		return float64(t.latencies[int(q*float64(len(t.latencies)-1))].Nanoseconds()) / 1e3
	}
	n := float64(t.calls)
	return []float64{
		float64(t.cpu.Nanoseconds()) / 1e3 / n, float64(t.allocs) / n, float64(t.bytes) / n, at(0.50), at(0.99),
	}
}

// measure measures the two clients in turn. The order of the clients changes from round to round.
func (s setting) measure(ctx context.Context, calls, turns int) (ours, peers *tally, err error) {
	text := strings.Repeat("ambit ", s.size/6+1)[:s.size]
	arguments, err := json.Marshal(map[string]string{"message": text})
	if err != nil {
		return nil, nil, err
	}
	ours, peers = new(tally), new(tally)
	sides := []struct {
		client
		*tally
	}{{s.ours, ours}, {s.peers, peers}}
	for turn := range turns + 1 {
		for _, side := range sides {
			kept := side.tally
			if turn == 0 {
				kept = new(tally) // the first turn is for warm-up, so drop its results
			}
			if err := kept.turn(ctx, side.client, arguments, []byte(text), calls); err != nil {
				return nil, nil, err
			}
		}
		slices.Reverse(sides)
	}
	return ours, peers, nil
}

// turn makes the calls of one turn. It first collects the garbage of the previous turn, so that each turn includes
// only the cost of its own garbage.
func (t *tally) turn(ctx context.Context, c client, arguments json.RawMessage, text []byte, calls int) error {
	runtime.GC()
	debug.FreeOSMemory()
	latencies := make([]time.Duration, 0, calls)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	used := cpu.Used()
	for range calls {
		began := time.Now()
		err := c.echo(ctx, arguments, text)
		latencies = append(latencies, time.Since(began))
		if err != nil {
			return err
		}
	}
	t.cpu += cpu.Used() - used
	runtime.ReadMemStats(&after)
	t.calls += calls
	t.allocs += after.Mallocs - before.Mallocs
	t.bytes += after.TotalAlloc - before.TotalAlloc
	t.latencies = append(t.latencies, latencies...)
	return nil
}
