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
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ambit-run/ambit/bench/calls"
	"github.com/ambit-run/ambit/bench/gateway/middle"
)

// plan holds the sizes and the numbers of calls. The flags change it.
var plan = calls.Plan{Sizes: []int{64, 8 << 10}, Text: "x", Calls: 400, Rounds: 5, Span: time.Second}

func main() {
	proxy := flag.Bool("proxy", false, "run as a proxy to the given address; only the benchmark itself sets this flag")
	ambit := flag.String("ambit", "bin/ambit", "the binary to measure")
	before := flag.String("before", "", "another ambit binary to compare with")
	only := flag.String("only", "", "measure only the ways whose names contain this text, and their baselines")
	plan.Flags()
	plan.Parse()
	var err error
	if *proxy {
		err = middle.ServeProxy(flag.Arg(0), nil)
	} else {
		err = run(*ambit, *before, *only)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ambit, before, only string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	with := func(do func([]*calls.Way) error) error {
		rig, err := build(ctx, ambit, before)
		if rig != nil {
			defer rig.Close()
		}
		if err != nil {
			return err
		}
		rig.Keep(only)
		return do(rig.Ways)
	}
	// A large result changes the memory of a process permanently, so use separate processes for it.
	if err := with(func(ways []*calls.Way) error { return large(ctx, ways) }); err != nil {
		return fmt.Errorf("a large result: %w", err)
	}
	if err := with(func(ways []*calls.Way) error { return plan.Measure(ctx, ways) }); err != nil {
		return err
	}
	fmt.Println("\n× is the ratio to ReverseProxy in the same round, median of the rounds; on stdio, " +
		"the ratio to the direct connection (which has no process in the middle)")
	return nil
}

// large prints how much more memory a program needs while one large result passes through it.
func large(ctx context.Context, ways []*calls.Way) error {
	for _, w := range ways {
		s, err := w.Connect(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", w.Name, err)
		}
		defer s.Close()
		if w.Middle == nil {
			continue
		}
		for _, mib := range []int{1, 30, 64} {
			if w.Shared && mib > 1 {
				continue // the SDK's client reads no longer line
			}
			if err := w.ResetPeak(); err != nil {
				return err
			}
			before := w.Memory()
			result, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "fill", Arguments: map[string]any{"bytes": mib << 20}})
			if err != nil || result.IsError {
				return fmt.Errorf("%s, %d MiB: %w, %.300v", w.Name, mib, err, result)
			}
			fmt.Printf("a result of %2d MiB needs %3d MiB more: %s\n", mib, (w.Peak()-before)>>20, w.Name)
		}
	}
	return nil
}
