// Command dispatch measures the queue of intents:
//
//   - the throughput in one process, and with four workers on one PostgreSQL server. It is compared with the throughput
//     of starting the program directly;
//   - the cost of the queue itself, without a program;
//   - how long an urgent intent waits while the queue contains many other intents.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ambit-run/ambit/internal/exec/dispatch"
	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
	"github.com/ambit-run/ambit/manifest"
)

const (
	real    = 200  // intents that run a real program
	nothing = 2000 // intents that run no program
	workers = 4
	flood   = 1000
	many    = 64                   // concurrent callers of the queue
	pace    = 5 * time.Millisecond // how long each intent of the flood takes
)

// few is a number of concurrent callers that is large enough to keep all CPUs busy with programs.
var few = 2 * runtime.NumCPU()

func main() {
	if err := measure(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func measure(ctx context.Context) error {
	if err := sandbox.Check(ctx, sandbox.Standard, ""); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "ambit-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	m, program, err := build(ctx, dir)
	if err != nil {
		return err
	}
	fmt.Printf("dispatch: %d CPUs; a native program that repeats its line\n", runtime.NumCPU())
	if err := bare(ctx, program); err != nil {
		return err
	}
	for _, f := range []func(context.Context, string, *manifest.Manifest) error{onOne, onFour, overhead, urgent} {
		if err := f(ctx, dir, m); err != nil {
			return err
		}
	}
	return nil
}

const source = `package main

import ("bufio"; "encoding/json"; "os")

func main() {
	line, _ := bufio.NewReader(os.Stdin).ReadBytes('\n')
	var i map[string]any
	json.Unmarshal(line, &i)
	json.NewEncoder(os.Stdout).Encode(map[string]any{"intent_id": i["id"], "status": "ok", "text": i["text"], "sources": []string{}})
}
`

const manifestText = `[agent]
id = "echo@bench"
name = "echo"
version = "0.1.0"
runtime = "rust-bin"
entry = "echo"
[resources]
network = "off"
`

// build builds the agent's program. It returns the manifest and the path of the program.
func build(ctx context.Context, dir string) (*manifest.Manifest, string, error) {
	folder := filepath.Join(dir, "echo")
	err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(folder, 0o755),
		os.WriteFile(filepath.Join(folder, "main.go"), []byte(source), 0o644), os.WriteFile(filepath.Join(folder, "agent.toml"), []byte(manifestText), 0o644))
	if err != nil {
		return nil, "", err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", "echo", "main.go")
	cmd.Dir, cmd.Env = folder, append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, "", fmt.Errorf("%w: %s", err, text)
	}
	m, err := manifest.Load(filepath.Join(folder, "agent.toml"), manifest.Options{})
	return m, filepath.Join(folder, "echo"), err
}

// bare measures starting the program directly, without the queue and the sandbox.
func bare(ctx context.Context, program string) error {
	return report("bare spawn", real, few, func(int) error {
		cmd := exec.CommandContext(ctx, program)
		cmd.Env, cmd.Stdin = []string{}, strings.NewReader(`{"id":"x","text":"hello"}`+"\n")
		return cmd.Run()
	})
}

// report calls f the given number of times from concurrent callers and prints the durations.
func report(name string, times, callers int, f func(n int) error) error {
	var mu sync.Mutex
	var took []time.Duration
	var failed error
	turns := make(chan int)
	var wg sync.WaitGroup
	begun := time.Now()
	for range callers {
		wg.Go(func() {
			for n := range turns {
				start := time.Now()
				err := f(n)
				mu.Lock()
				took, failed = append(took, time.Since(start)), errors.Join(failed, err)
				mu.Unlock()
			}
		})
	}
	for n := range times {
		turns <- n
	}
	close(turns)
	wg.Wait()
	print(name, times, time.Since(begun), took)
	return failed
}

func print(name string, times int, all time.Duration, took []time.Duration) {
	slices.Sort(took)
	at := func(p int) time.Duration { return took[len(took)*p/100].Round(100 * time.Microsecond) }
	fmt.Printf("  %-44s %7.0f/s   p50 %-8v p99 %v\n", name, float64(times)/all.Seconds(), at(50), at(99))
}

// onOne measures the queue in one process, with SQLite and the sandbox.
func onOne(ctx context.Context, dir string, m *manifest.Manifest) error {
	d, err := newDesk(ctx, filepath.Join(dir, "one"), "", m, sandboxed, runtime.NumCPU())
	if err != nil {
		return err
	}
	defer d.close()
	return report("in process, SQLite, sandboxed", real, few, d.ask)
}

// onFour measures the queue with four workers on one PostgreSQL server and the sandbox.
func onFour(ctx context.Context, dir string, m *manifest.Manifest) error {
	asker, end, err := four(ctx, filepath.Join(dir, "four"), m, sandboxed, max(1, runtime.NumCPU()/2))
	if err != nil {
		return err
	}
	defer end()
	return report(fmt.Sprintf("%d workers, PostgreSQL, sandboxed", workers), real, few, asker.ask)
}

// overhead measures the queue without programs.
func overhead(ctx context.Context, dir string, m *manifest.Manifest) error {
	d, err := newDesk(ctx, filepath.Join(dir, "alone"), "", m, idle, runtime.NumCPU())
	if err != nil {
		return err
	}
	err = report("in process, SQLite, no program", nothing, many, d.ask)
	d.close()
	if err != nil {
		return err
	}
	asker, end, err := four(ctx, filepath.Join(dir, "queue"), m, idle, 8)
	if err != nil {
		return err
	}
	defer end()
	return report(fmt.Sprintf("%d workers, PostgreSQL, no program", workers), nothing, many, asker.ask)
}

// urgent measures urgent intents while the queue is full of other intents.
func urgent(ctx context.Context, dir string, m *manifest.Manifest) error {
	d, err := newDesk(ctx, filepath.Join(dir, "flood"), "", m, slow, runtime.NumCPU())
	if err != nil {
		return err
	}
	err = d.flooded("in process, SQLite")
	d.close()
	if err != nil {
		return err
	}
	asker, end, err := four(ctx, filepath.Join(dir, "floods"), m, slow, 1)
	if err != nil {
		return err
	}
	defer end()
	return asker.flooded(fmt.Sprintf("%d workers, PostgreSQL", workers))
}

// four starts four workers on one PostgreSQL server. Each worker runs a given number of intents at the same time. The
// returned desk only submits intents.
func four(ctx context.Context, dir string, m *manifest.Manifest, open opener, each int) (*desk, func(), error) {
	url, err := statetest.Database(ctx)
	if err != nil {
		return nil, nil, err
	}
	var all []*desk
	end := func() {
		for _, d := range all {
			d.close()
		}
	}
	for n := range workers + 1 {
		with := open
		if n == 0 {
			with = nil
		}
		d, err := newDesk(ctx, dir, url, m, with, each)
		if err != nil {
			end()
			return nil, nil, err
		}
		all = append(all, d)
	}
	return all[0], end, nil
}

// desk connects one process to the queue.
type desk struct {
	*dispatch.Queue
	ctx   context.Context
	store *store.Store
	end   func()
	m     *manifest.Manifest
}

// newDesk returns a desk. If open is nil, the desk only submits intents.
func newDesk(ctx context.Context, dir, url string, m *manifest.Manifest, open opener, concurrency int) (*desk, error) {
	h := home.At(dir)
	b, err := store.Open(ctx, h, url)
	if err != nil {
		return nil, err
	}
	d := &desk{ctx: ctx, store: b, m: m, end: func() {}}
	o := dispatch.Options{Store: b, URL: url, Concurrency: concurrency}
	if open != nil {
		var g dispatch.Gateway
		g, d.end = open(ctx, h, b, m)
		o.Gateways = one{g}
	}
	if d.Queue, err = dispatch.Open(ctx, o); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return d, nil
}

func (d *desk) close() {
	ctx, cancel := context.WithTimeout(d.ctx, 10*time.Second)
	defer cancel()
	d.Close(ctx)
	d.end()
	_ = d.store.Close() // the store is temporary
}

func (d *desk) request(p dispatch.Priority) dispatch.Request {
	return dispatch.Request{Agent: d.m.Agent(), Name: "echo", Text: "hello", Priority: p, Principal: "bench@local"}
}

// ask submits an intent and waits for its answer.
func (d *desk) ask(int) error {
	i, err := d.Call(d.ctx, d.request(""), nil)
	if err == nil && i.Refusal != nil {
		err = i.Refusal
	}
	if err == nil && !json.Valid(i.Answer()) {
		err = errors.New("the intent has no answer")
	}
	return err
}

// flooded submits many intents with low priority and then some with high priority. It prints how long the intents
// waited.
func (d *desk) flooded(name string) error {
	begun := time.Now()
	var mu sync.Mutex
	var low, high []string
	put := func(ids *[]string, p dispatch.Priority) error {
		i, err := d.Submit(d.ctx, d.request(p))
		if err == nil {
			mu.Lock()
			*ids = append(*ids, i.ID)
			mu.Unlock()
		}
		return err
	}
	if err := report(name+", submit", flood, many, func(int) error { return put(&low, dispatch.Low) }); err != nil {
		return err
	}
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for range 50 {
		<-ticker.C
		if err := put(&high, dispatch.High); err != nil {
			return err
		}
	}
	var waited [2][]time.Duration
	for n, ids := range [][]string{low, high} {
		for _, id := range ids {
			i, err := d.Wait(d.ctx, id, nil)
			if err != nil {
				return err
			}
			waited[n] = append(waited[n], i.Started.Sub(i.Asked))
		}
	}
	all := time.Since(begun)
	print(name+", low priority waits", len(low), all, waited[0])
	print(name+", high priority waits", len(high), all, waited[1])
	return nil
}
