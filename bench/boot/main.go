// Command boot measures how long an agent's tool servers take to start and to answer tools/list.
//
//	bench/run boot
//
// The agent is agents/default.json with its four npm servers. The command compares these ways to start the servers:
//
//   - all servers through "ambit run", which uses the lock file in agents and hashes each package before it runs;
//   - each server alone through "ambit run";
//   - all servers at the same time with "npx -y package@version", the usual command in MCP clients, from a warm cache.
//     Even then, npx sends a request to the registry. The command therefore also measures npx with --prefer-offline,
//     which prevents this request.
//
// Every round measures each way once, in a different order. The first round downloads the packages into a temporary
// folder and does not count. The output shows medians. The command needs bin/ambit, which make build creates.
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
	"sync"
	"text/tabwriter"
	"time"

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
	// start starts the servers and returns the time until all of them are ready.
	start func(ctx context.Context) (time.Duration, error)
	took  []time.Duration
}

func (w *way) median() time.Duration {
	slices.Sort(w.took)
	return w.took[len(w.took)/2]
}

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

	together := &way{name: "ambit, together", start: b.together}
	npx := &way{name: "npx, together", start: func(ctx context.Context) (time.Duration, error) { return b.npx(ctx) }}
	offline := &way{name: "npx --prefer-offline, together", start: func(ctx context.Context) (time.Duration, error) { return b.npx(ctx, "--prefer-offline") }}
	ways := []*way{together, npx, offline}
	for _, s := range b.servers {
		ways = append(ways, &way{name: "ambit, " + s.Alias + " alone", start: func(ctx context.Context) (time.Duration, error) { return b.run(ctx, s.Alias) }})
	}
	for round := range rounds + 1 {
		for i := range ways {
			w := ways[(i+round)%len(ways)]
			took, err := w.start(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			if round > 0 {
				w.took = append(w.took, took)
			}
		}
	}
	return report(rounds, together, npx, offline, ways[3:])
}

func report(rounds int, together, npx, offline *way, alone []*way) error {
	fmt.Printf("from start to ready, %d servers; median of %d rounds; %d cores\n\n", len(alone), rounds, runtime.NumCPU())
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\tmedian ms\tleast\tmost\t")
	row := func(w *way) {
		m := w.median()
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t\n", w.name, m.Milliseconds(), w.took[0].Milliseconds(), w.took[len(w.took)-1].Milliseconds())
	}
	var slowest, sum time.Duration
	for _, w := range alone {
		row(w)
		slowest, sum = max(slowest, w.median()), sum+w.median()
	}
	row(together)
	row(npx)
	row(offline)
	if err := table.Flush(); err != nil {
		return err
	}
	ratio := func(a, b time.Duration) float64 { return float64(a) / float64(b) }
	fmt.Printf("\none after the other : together      %.2f (%d ms : %d ms)\n", ratio(sum, together.median()), sum.Milliseconds(), together.median().Milliseconds())
	fmt.Printf("together : the slowest server       %.2f\n", ratio(together.median(), slowest))
	fmt.Printf("npx : ambit, both together          %.2f (goal: at least 2)\n", ratio(npx.median(), together.median()))
	fmt.Printf("npx --prefer-offline : ambit        %.2f\n", ratio(offline.median(), together.median()))
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

// all names the manifest with all servers. A manifest with a single server has the name of the server.
const all = "all servers"

// write writes the manifests and copies the lock file to the temporary folder.
func (b *bench) write(agents string) error {
	text, err := os.ReadFile(filepath.Join(agents, "default.json"))
	if err != nil {
		return err
	}
	var manifest map[string]json.RawMessage
	var each []json.RawMessage
	if err := json.Unmarshal(text, &manifest); err != nil {
		return err
	}
	if err := json.Unmarshal(manifest["servers"], &each); err != nil {
		return err
	}
	if err := json.Unmarshal(manifest["servers"], &b.servers); err != nil {
		return err
	}
	lock, err := os.ReadFile(filepath.Join(agents, "ambit.lock"))
	if err != nil {
		return err
	}
	files := map[string][]byte{"ambit.lock": lock, all + ".json": text}
	for i, s := range b.servers {
		if manifest["servers"], err = json.Marshal(each[i : i+1]); err != nil {
			return err
		}
		if files[s.Alias+".json"], err = json.Marshal(manifest); err != nil {
			return err
		}
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(b.dir, name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) together(ctx context.Context) (time.Duration, error) { return b.run(ctx, all) }

func (b *bench) run(ctx context.Context, name string) (time.Duration, error) {
	return b.ready(ctx, b.ambit, "run", name+".json")
}

// npx starts all servers at the same time with npx and the given options.
func (b *bench) npx(ctx context.Context, options ...string) (time.Duration, error) {
	took, errs := make([]time.Duration, len(b.servers)), make([]error, len(b.servers))
	var wg sync.WaitGroup
	for i, s := range b.servers {
		wg.Go(func() { took[i], errs[i] = b.ready(ctx, s.Command, slices.Concat(options, s.Args)...) })
	}
	wg.Wait()
	return slices.Max(took), errors.Join(errs...)
}

// ready starts a program, waits until it has listed its tools, and stops it. It returns the time until the list
// arrived.
func (b *bench) ready(ctx context.Context, program string, args ...string) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.WaitDelay = b.dir, time.Second
	cmd.Env = append(os.Environ(), "AMBIT_HOME="+filepath.Join(b.dir, "home"), "npm_config_cache="+filepath.Join(b.dir, "npm"))
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	conn := mcpwire.New(mcpwire.Stdio(out, in), mcpwire.Options{Legacy: true})
	if _, err = conn.Negotiate(ctx); err == nil {
		_, err = conn.ListTools(ctx)
	}
	took := time.Since(began)
	conn.Close() // this closes the program's input
	_ = cmd.Wait()
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
