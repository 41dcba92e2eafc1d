// Command peers compares the cost of a tool call through ambit with the cost through other programs that stand between
// MCP clients and tool servers.
//
//	make build && bench/run peers
//
// Client, tool server and measurement are those of bench/gateway. Each program has one tool server, and its default
// settings. Programs in Go are built from the module proxy into bin/peers, and programs in JavaScript come from npm, so
// the first run takes many minutes. If a program cannot be built or started, the output contains its name and the reason.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ambit-run/ambit/bench/calls"
)

func main() {
	plan := calls.Plan{Sizes: []int{64, 8 << 10}, Calls: 150, Rounds: 3, Span: 300 * time.Millisecond}
	ambit := flag.String("ambit", "bin/ambit", "the binary to measure")
	only := flag.String("only", "", "measure only the ways whose names contain this text, and their baselines")
	plan.Flags()
	plan.Parse()
	license, err := os.ReadFile("LICENSE")
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	// English prose without its heading. Some programs read the text, and one repeated letter is the worst case for them.
	_, plan.Text, _ = strings.Cut(string(license), "1. Definitions.")
	if err := run(&plan, *ambit, *only); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(plan *calls.Plan, ambit, only string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Minute)
	defer cancel()
	rig, err := calls.NewRig()
	if err != nil {
		return err
	}
	defer rig.Close()
	ambit, err = filepath.Abs(ambit)
	if err != nil {
		return err
	}
	b := &bench{rig: rig, starters: map[*calls.Way]starter{}, ambit: ambit}
	peers := install(ctx)
	if err := b.prepare(ctx); err != nil {
		return err
	}
	socket := filepath.Join(rig.Dir, "engine")
	if err := engine(socket); err != nil {
		return err
	}
	for name, value := range map[string]string{
		"HOME":                       filepath.Join(rig.Dir, "home"),
		"TOOLHIVE_SKIP_UPDATE_CHECK": "true", // it asks a server on the internet at each start
		"TOOLHIVE_DOCKER_SOCKET":     socket,
	} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	b.add(peers)
	rig.Keep(only)
	if err := b.startAll(ctx); err != nil {
		return err
	}
	fmt.Println()
	if err := plan.Measure(ctx, rig.Ways); err != nil {
		return err
	}
	fmt.Println("\n× is the ratio to ambit with the same transports in the same round, median of the rounds; " +
		"a direct connection has no process in the middle")
	return nil
}

// engine listens in place of a container engine. toolhive starts its proxy only if an engine answers.
func engine(socket string) error {
	l, err := net.Listen("unix", socket)
	if err == nil {
		go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "OK")
		}))
	}
	return err
}

// starter starts the program in the middle of a way, and sets how clients connect to it. The program is nil if each
// client starts its own.
type starter func(context.Context, *calls.Way) (*calls.Program, error)

// bench holds the tool server and the ways to it.
type bench struct {
	rig      *calls.Rig
	starters map[*calls.Way]starter // the ways with a program in the middle
	ambit    string
	server   string // the path of the tool server
	echo     string // the address of the running tool server
	agents   string
}

// prepare starts the tool server, and a reverse proxy, which is the floor for programs that speak HTTP on both sides.
func (b *bench) prepare(ctx context.Context) (err error) {
	if b.server, err = b.rig.Compile(ctx, "echo"); err != nil {
		return err
	}
	proxy, err := b.rig.Compile(ctx, "proxy")
	if err != nil {
		return err
	}
	if _, b.echo, err = b.rig.Start(ctx, nil, b.server); err != nil {
		return err
	}
	program, address, err := b.rig.Start(ctx, nil, proxy, b.echo)
	if err != nil {
		return err
	}
	floor := &calls.Way{Connect: calls.OverHTTP(address, ""), Middle: program.Process()}
	direct := &calls.Way{Connect: calls.OverHTTP(b.echo, "")}
	b.way(direct, "direct", toHTTP, nil)
	b.way(floor, "ReverseProxy", toHTTP, nil)
	b.agents = filepath.Join(b.rig.Dir, "agents")
	return calls.WriteAgents(b.agents, b.echo, b.server)
}

// The transports of a way: between client and program, and between program and tool server.
const (
	toHTTP  = "HTTP to HTTP"
	toStdio = "HTTP to stdio"
	onStdio = "stdio to HTTP"
)

func (b *bench) way(w *calls.Way, name, transports string, start starter) {
	w.Name, w.Baseline = name+", "+transports, "ambit, "+transports
	w.Shared = transports == onStdio
	if w.Tool == "" {
		w.Tool = "echo"
	}
	if start != nil {
		b.starters[w] = start
	}
	b.rig.Ways = append(b.rig.Ways, w)
}

// add adds the ways through ambit and through the peers.
func (b *bench) add(peers []*peer) {
	b.way(&calls.Way{}, "ambit", toHTTP, b.serve("reads"))
	b.way(&calls.Way{}, "ambit, a write", toHTTP, b.serve("writes"))
	b.routes(peers, toHTTP)
	b.way(&calls.Way{}, "ambit", toStdio, b.serve("pipe"))
	b.routes(peers, toStdio)
	b.way(&calls.Way{}, "ambit", onStdio, b.onStdio(b.ambit, "run", filepath.Join(b.agents, "reads.json")))
	b.routes(peers, onStdio)
	for _, w := range b.rig.Ways {
		if _, transports, _ := strings.Cut(w.Name, ", a write, "); transports != "" {
			w.Baseline = "ambit, " + transports
		}
	}
}

func (b *bench) routes(peers []*peer, transports string) {
	for _, p := range peers {
		for _, r := range p.routes {
			if r.transports != transports {
				continue
			}
			name := strings.TrimSpace(p.name + " " + r.name)
			if transports == onStdio {
				command := append(slices.Clone(p.command), b.fill(r.args, "", "")...)
				b.way(&calls.Way{Tool: r.tool}, name, transports, b.onStdio(command[0], command[1:]...))
			} else {
				b.way(&calls.Way{Tool: r.tool}, name, transports, b.launch(p, r))
			}
		}
	}
}

// onStdio returns a starter for a program that each client starts.
func (b *bench) onStdio(name string, args ...string) starter {
	return func(_ context.Context, w *calls.Way) (*calls.Program, error) {
		w.Connect, w.Middle = w.OverStdio(b.rig, true, name, args...), nil
		return nil, nil
	}
}

// serve returns a starter for an ambit daemon with one agent.
func (b *bench) serve(agent string) starter {
	return func(ctx context.Context, w *calls.Way) (*calls.Program, error) {
		dir := filepath.Join(b.rig.Dir, "only-"+agent)
		err := os.MkdirAll(dir, 0o700)
		text, readErr := os.ReadFile(filepath.Join(b.agents, agent+".json"))
		err = errors.Join(err, readErr, os.WriteFile(filepath.Join(dir, agent+".json"), text, 0o600))
		if err != nil {
			return nil, err
		}
		program, url, bearer, err := b.rig.Serve(ctx, filepath.Join(b.rig.Dir, "home-"+agent), b.ambit, dir)
		if err != nil {
			return nil, err
		}
		w.Connect, w.Middle = calls.OverHTTP(url+"/mcp/"+agent, bearer), program.Process()
		return program, nil
	}
}

// launch returns a starter for a peer that listens on a port.
func (b *bench) launch(p *peer, r route) starter {
	return func(ctx context.Context, w *calls.Way) (*calls.Program, error) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		_, port, _ := net.SplitHostPort(l.Addr().String())
		l.Close()
		config := filepath.Join(b.rig.Dir, "config-"+port+".json")
		if err := os.WriteFile(config, []byte(b.fill([]string{r.config}, port, "")[0]), 0o600); err != nil {
			return nil, err
		}
		command := append(slices.Clone(p.command), b.fill(r.args, port, config)...)
		program, err := b.rig.Launch(ctx, nil, nil, command[0], command[1:]...)
		if err != nil {
			return nil, err
		}
		w.Connect, w.Middle = calls.OverHTTP("http://127.0.0.1:"+port+r.path, ""), program.Process()
		return program, nil
	}
}

// fill replaces the placeholders in the arguments or the configuration of a peer.
func (b *bench) fill(texts []string, port, config string) []string {
	values := strings.NewReplacer("{port}", port, "{config}", config, "{server}", b.server,
		"{echo}", b.echo, "{host}", strings.TrimSuffix(b.echo, "/mcp"))
	var filled []string
	for _, text := range texts {
		filled = append(filled, values.Replace(text))
	}
	return filled
}

// starts is the number of times that each program is started.
const starts = 4

// startAll starts each program several times, in turn, and prints how long it takes to list its tools. The first start
// does not count, and the programs of the last start keep running. A way whose program does not start is removed.
func (b *bench) startAll(ctx context.Context) error {
	took := map[*calls.Way][]time.Duration{}
	for round := range starts {
		for _, w := range slices.Clone(b.rig.Ways) {
			start := b.starters[w]
			if start == nil {
				continue
			}
			began := time.Now()
			program, err := start(ctx, w)
			if err == nil {
				err = listed(ctx, w)
			}
			if err != nil {
				if program != nil {
					program.Stop(2 * time.Second)
					err = fmt.Errorf("%w\n%s", err, program.Output())
				}
				if strings.HasPrefix(w.Name, "ambit") {
					return fmt.Errorf("%s: %w", w.Name, err)
				}
				fmt.Printf("not measured: %s: %s\n", w.Name, reason(err.Error()))
				b.rig.Ways = slices.DeleteFunc(b.rig.Ways, func(other *calls.Way) bool { return other == w })
				continue
			}
			if round > 0 {
				took[w] = append(took[w], time.Since(began))
			}
			if program != nil && round < starts-1 {
				program.Stop(2 * time.Second)
			}
		}
	}
	fmt.Printf("\nfrom the start to the list of tools, median of %d; %d cores\n", starts-1, runtime.NumCPU())
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "way\tms\tleast\tmost\t")
	for _, w := range b.rig.Ways {
		if t := took[w]; t != nil {
			least, most := slices.Min(t).Milliseconds(), slices.Max(t).Milliseconds()
			fmt.Fprintf(table, "%s\t%d\t%d\t%d\t\n", w.Name, calls.Median(t).Milliseconds(), least, most)
		}
	}
	return table.Flush()
}

// listed waits until the program in the middle lists the tool.
func listed(ctx context.Context, w *calls.Way) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var failed error
	for ctx.Err() == nil {
		if w.Middle != nil && w.Memory() == 0 { // a process that has ended has no memory
			return errors.New("it ended")
		}
		s, err := w.Connect(ctx)
		if err == nil {
			var tools *mcp.ListToolsResult
			tools, err = s.ListTools(ctx, nil)
			_ = s.Close()
			if err == nil && slices.ContainsFunc(tools.Tools, func(t *mcp.Tool) bool { return t.Name == w.Tool }) {
				return nil
			}
		}
		if err != nil && ctx.Err() == nil {
			failed = err
		}
		time.Sleep(5 * time.Millisecond)
	}
	return fmt.Errorf("no tool %s after 30 seconds: %w", w.Tool, failed)
}
