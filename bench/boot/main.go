// Command boot measures how long an agent's tool servers take to answer tools/list and a first call.
//
//	bench/run boot
//
// The agent is agents/default.json with its four npm servers. The command compares these ways to start the servers:
//
//   - "ambit run", which takes the list of tools from the lock file and starts a server at its first call;
//   - "ambit run --lazy=false", which starts all servers at once. Both hash a package before they run it;
//   - all servers at the same time with "npx -y package@version", the usual command in MCP clients, from a warm cache.
//     Even then, npx sends a request to the registry. The command therefore also measures npx with --prefer-offline,
//     which prevents this request.
//
// The first call is list_allowed_directories of the server fs, made as soon as the tools are listed. Every round
// measures each way once, in a different order. The first round downloads the packages into a temporary folder and does
// not count. The output shows medians. The command needs bin/ambit, which make build creates.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/exec/mcpwire"
)

func main() {
	rounds := flag.Int("rounds", 7, "number of rounds")
	ambit := flag.String("ambit", "bin/ambit", "the binary to measure")
	flag.Parse()
	if err := run(*ambit, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// way is one way to start servers.
type way struct {
	name string
	// start starts the servers, calls a tool and stops the servers.
	start         func(ctx context.Context) (times, error)
	listed, first []time.Duration
}

// times contains two durations since the start of a program: until all tools are listed, and until the first call is
// answered.
type times struct{ listed, first time.Duration }

func median(took []time.Duration) time.Duration { return took[len(took)/2] }

func run(ambit string, rounds int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	ambit, err := filepath.Abs(ambit)
	if err != nil {
		return err
	}
	b := &bench{ambit: ambit}
	if b.dir, err = os.MkdirTemp("", "ambit-boot-"); err != nil {
		return err
	}
	defer removeAll(b.dir)
	if err := b.write("agents"); err != nil {
		return err
	}

	lazy := &way{name: "ambit run", start: func(ctx context.Context) (times, error) { return b.run(ctx) }}
	eager := &way{name: "ambit run --lazy=false", start: func(ctx context.Context) (times, error) { return b.run(ctx, "--lazy=false") }}
	npx := &way{name: "npx", start: func(ctx context.Context) (times, error) { return b.npx(ctx) }}
	offline := &way{name: "npx --prefer-offline", start: func(ctx context.Context) (times, error) { return b.npx(ctx, "--prefer-offline") }}
	ways := []*way{lazy, eager, npx, offline}
	for round := range rounds + 1 {
		for i := range ways {
			w := ways[(i+round)%len(ways)]
			took, err := w.start(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			if round > 0 {
				w.listed, w.first = append(w.listed, took.listed), append(w.first, took.first)
			}
		}
	}
	return report(rounds, len(b.servers), ways)
}

// report prints the times of the given ways. The first way is lazy, and the third is npx.
func report(rounds, servers int, ways []*way) error {
	fmt.Printf("milliseconds from the start, %d servers; median of %d rounds; %d cores\n\n", servers, rounds, runtime.NumCPU())
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\ttools/list\tleast\tmost\tfirst call\tleast\tmost\t")
	for _, w := range ways {
		slices.Sort(w.listed)
		slices.Sort(w.first)
		fmt.Fprintf(table, "%s", w.name)
		for _, took := range [][]time.Duration{w.listed, w.first} {
			fmt.Fprintf(table, "\t%d\t%d\t%d", median(took).Milliseconds(), took[0].Milliseconds(), took[len(took)-1].Milliseconds())
		}
		fmt.Fprintln(table, "\t")
	}
	if err := table.Flush(); err != nil {
		return err
	}
	ratio := func(a, b []time.Duration) float64 { return float64(median(a)) / float64(median(b)) }
	lazy, npx := ways[0], ways[2]
	fmt.Printf("\nnpx : ambit, tools/list   %.1f (goal: at least 5)\n", ratio(npx.listed, lazy.listed))
	fmt.Printf("npx : ambit, first call   %.1f (goal: at least 2)\n", ratio(npx.first, lazy.first))
	return nil
}

// bench holds a temporary folder with the manifests of the agents to start.
type bench struct {
	ambit, dir string
	servers    []server
}

type server struct {
	Alias   string   `json:"alias"`
	Command string   `json:"command"`
	Args    []string `json:"args"`
}

// write copies the manifest and the lock file to the temporary folder.
func (b *bench) write(agents string) error {
	for _, name := range []string{"default.json", "ambit.lock"} {
		text, err := os.ReadFile(filepath.Join(agents, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(b.dir, name), text, 0o600); err != nil {
			return err
		}
	}
	text, err := os.ReadFile(filepath.Join(b.dir, "default.json"))
	if err != nil {
		return err
	}
	var manifest struct {
		Servers []server `json:"servers"`
	}
	err = json.Unmarshal(text, &manifest)
	b.servers = manifest.Servers
	return err
}

func (b *bench) run(ctx context.Context, options ...string) (times, error) {
	return b.start(ctx, true, b.ambit, append([]string{"run", "default.json"}, options...)...)
}

// npx starts all servers at the same time with npx and the given options.
func (b *bench) npx(ctx context.Context, options ...string) (times, error) {
	took, errs := make([]times, len(b.servers)), make([]error, len(b.servers))
	var wg sync.WaitGroup
	for i, s := range b.servers {
		wg.Go(func() {
			took[i], errs[i] = b.start(ctx, s.Alias == calledServer, s.Command, slices.Concat(options, s.Args)...)
		})
	}
	wg.Wait()
	var all times
	for _, t := range took {
		all.listed, all.first = max(all.listed, t.listed), max(all.first, t.first)
	}
	return all, errors.Join(errs...)
}

// The server and the tool of the first call.
const (
	calledServer = "fs"
	calledTool   = "list_allowed_directories"
)

// start starts a program, waits until it has listed its tools, makes the first call if call is set, and stops the
// program.
func (b *bench) start(ctx context.Context, call bool, program string, args ...string) (took times, err error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.WaitDelay = b.dir, time.Second
	cmd.Env = append(os.Environ(), "AMBIT_HOME="+filepath.Join(b.dir, "home"), "npm_config_cache="+filepath.Join(b.dir, "npm"))
	in, err := cmd.StdinPipe()
	if err != nil {
		return took, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return took, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return took, err
	}
	defer cmd.Wait() // the exit code does not matter
	conn := mcpwire.New(mcpwire.Stdio(out, in), mcpwire.Options{Legacy: true})
	defer conn.Close() // this closes the program's input
	if _, err := conn.Negotiate(ctx); err != nil {
		return took, err
	}
	tools, err := conn.ListTools(ctx)
	took.listed = time.Since(began)
	if err != nil || !call {
		return took, err
	}
	i := slices.IndexFunc(tools, func(t mcpwire.Tool) bool { return strings.HasSuffix(t.Name, calledTool) })
	if i < 0 {
		return took, fmt.Errorf("%s has no tool %s", program, calledTool)
	}
	result, err := conn.CallTool(ctx, mcpwire.ToolCall{Name: tools[i].Name, Arguments: jsontext.Value(`{}`)})
	took.first = time.Since(began)
	if err == nil && !strings.Contains(string(result), "Allowed directories") {
		err = fmt.Errorf("%s answered %s", program, result)
	}
	return took, err
}

// removeAll removes a folder, including the read-only folders of the package store.
func removeAll(dir string) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			return os.Chmod(path, 0o700)
		}
		return nil
	})
	_ = os.RemoveAll(dir)
}
