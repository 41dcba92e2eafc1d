package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ambit-run/ambit/bench/plot/chart"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// callers is the number of concurrent callers of each gateway.
const callers = 8

// fleet is a set of processes on one PostgreSQL server.
type fleet struct {
	s        *setup
	agents   string // the folder of the agents
	url      string
	conn     *pgx.Conn
	server   int // the id of the server's first process
	gateways []*daemon
	workers  []*exec.Cmd
}

// newFleet creates a database. The caller must close the fleet.
func (s *setup) newFleet(ctx context.Context, agents string) (f *fleet, err error) {
	f = &fleet{s: s, agents: agents}
	if f.url, err = statetest.Database(ctx); err != nil {
		return nil, err
	}
	if f.conn, err = pgx.Connect(ctx, f.url); err != nil {
		return nil, err
	}
	var folder string
	if err := f.conn.QueryRow(ctx, `SHOW data_directory`).Scan(&folder); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(folder, "postmaster.pid"))
	if err == nil {
		first, _, _ := strings.Cut(string(text), "\n")
		f.server, err = strconv.Atoi(first)
	}
	return f, err
}

func (f *fleet) close() {
	for _, w := range f.workers {
		_ = w.Process.Signal(os.Interrupt)
	}
	for _, w := range f.workers {
		_ = w.Wait()
	}
	for _, d := range f.gateways {
		d.close()
	}
	_ = f.conn.Close(context.Background())
}

// home returns a new home folder, with the root key of the first gateway.
func (f *fleet) home() (string, error) {
	home, err := os.MkdirTemp(f.s.dir, "home-")
	if err != nil || len(f.gateways) == 0 {
		return home, err
	}
	keys := filepath.Join(home, "keys")
	key, err := os.ReadFile(filepath.Join(f.gateways[0].home, "keys", "root"))
	return home, errors.Join(err, os.Mkdir(keys, 0o700), os.WriteFile(filepath.Join(keys, "root"), key, 0o600))
}

func (f *fleet) addGateway(ctx context.Context) error {
	home, err := f.home()
	if err != nil {
		return err
	}
	d, err := f.s.serveIn(ctx, home, f.agents, 1, "--store", f.url)
	if err == nil {
		f.gateways = append(f.gateways, d)
	}
	return err
}

func (f *fleet) addWorker(ctx context.Context) error {
	home, err := f.home()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, f.s.ambit, "worker", "--store", f.url, "--agents", f.agents, "--concurrency", "2", "--json")
	cmd.Env = append(os.Environ(), "AMBIT_HOME="+home)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	f.workers = append(f.workers, cmd)
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return fmt.Errorf("the worker did not start: %w: %.500s", err, stderr.String())
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return nil
}

// usage is what a fleet has used since its start.
type usage struct {
	ambit, server      time.Duration // CPU time
	commits, rollbacks int64
	connections        int64
}

// statsDelay is the time after which the server's statistics contain everything. The server updates them once a second.
const statsDelay = 1500 * time.Millisecond

func (f *fleet) usage(ctx context.Context) (u usage, err error) {
	time.Sleep(statsDelay)
	for _, d := range f.gateways {
		u.ambit += cpuOfTree(d.cmd.Process.Pid)
	}
	for _, w := range f.workers {
		u.ambit += cpuOfTree(w.Process.Pid)
	}
	u.server = cpuOfTree(f.server)
	err = f.conn.QueryRow(ctx, `SELECT xact_commit, xact_rollback, (SELECT count(*) FROM pg_stat_activity WHERE datname = d.datname) - 1
FROM pg_stat_database d WHERE datname = current_database()`).Scan(&u.commits, &u.rollbacks, &u.connections)
	return u, err
}

// spent contains the chart lines for the cost of one operation of a fleet.
type spent struct{ ambit, server, commits, rollbacks chart.Line }

func newSpent(what string) *spent {
	return &spent{chart.Line{Name: what + ", ambit"}, chart.Line{Name: what + ", PostgreSQL"}, chart.Line{Name: what + ", commits"}, chart.Line{Name: what + ", rollbacks"}}
}

func (s *spent) add(size, n int, before, after usage) {
	s.ambit.Add(size, ms(after.ambit-before.ambit)/float64(n))
	s.server.Add(size, ms(after.server-before.server)/float64(n))
	s.commits.Add(size, float64(after.commits-before.commits)/float64(n))
	s.rollbacks.Add(size, float64(after.rollbacks-before.rollbacks)/float64(n))
}

// crowd lets n callers repeat an operation for the given time. It returns the sorted durations of the operations, and
// the elapsed time.
func (f *fleet) crowd(n int, span time.Duration, do func(caller int) error) ([]time.Duration, time.Duration, error) {
	times, failed := make([][]time.Duration, n), make([]error, n)
	var wg sync.WaitGroup
	start := time.Now()
	for i := range n {
		wg.Go(func() {
			for time.Since(start) < span && failed[i] == nil {
				began := time.Now()
				failed[i] = do(i)
				times[i] = append(times[i], time.Since(began))
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	all := slices.Concat(times...)
	slices.Sort(all)
	return all, took, errors.Join(failed...)
}

// quietAfter is the time after which a fleet has finished the work of the last calls.
const quietAfter = 10 * time.Second

// watch measures an idle fleet, and adds the cost of one process in one second.
func (f *fleet) watch(ctx context.Context, size int, s *spent) error {
	time.Sleep(quietAfter)
	before, err := f.usage(ctx)
	if err != nil {
		return err
	}
	time.Sleep(f.s.idle - statsDelay)
	after, err := f.usage(ctx)
	if err == nil {
		s.add(size, int(f.s.idle.Seconds())*(len(f.gateways)+len(f.workers)), before, after)
	}
	return err
}

// growGateways measures more and more gateways on one PostgreSQL server. Each gateway has the same number of callers.
func growGateways(ctx context.Context, s *setup, sizes sizes) (chart.Chart, error) {
	dir := filepath.Join(s.dir, "agents")
	if err := s.writeAgent(dir, "echo", 2, "read", "write"); err != nil {
		return chart.Chart{}, err
	}
	kinds := []string{"read", "write"}
	costs := []*spent{newSpent("read"), newSpent("write")}
	var rate, p50, p99 [2]chart.Line
	idle, connections := newSpent("idle second"), chart.Line{Name: "connections"}
	for i, kind := range kinds {
		rate[i].Name, p50[i].Name, p99[i].Name = kind, kind+", p50", kind+", p99"
	}
	for _, n := range sizes {
		err := func() error {
			f, err := s.newFleet(ctx, dir)
			if err != nil {
				return err
			}
			defer f.close()
			for range n {
				if err := f.addGateway(ctx); err != nil {
					return err
				}
			}
			clients := make([]*session, n*callers)
			for i := range clients {
				if clients[i], err = f.gateways[i%n].connect(ctx, "echo"); err != nil {
					return err
				}
			}
			for kind := range kinds {
				before, err := f.usage(ctx)
				if err != nil {
					return err
				}
				took, span, err := f.crowd(len(clients), s.span, func(i int) error { return clients[i].call(ctx, toolName(kind)) })
				if err != nil {
					return err
				}
				after, err := f.usage(ctx)
				if err != nil {
					return err
				}
				costs[kind].add(n, len(took), before, after)
				rate[kind].Add(n, float64(len(took))/span.Seconds())
				p50[kind].Add(n, ms(took[len(took)/2]))
				p99[kind].Add(n, ms(took[len(took)*99/100]))
				if kind == len(kinds)-1 {
					connections.Add(n, float64(after.connections))
				}
			}
			return f.watch(ctx, n, idle)
		}()
		if err != nil {
			return chart.Chart{}, err
		}
	}
	return chart.Chart{
		Title: fmt.Sprintf("Gateways on one PostgreSQL server, with %d callers each", callers), X: "gateways", Command: "bench/run growth -only gateways",
		Panels: []chart.Panel{
			{Title: "Throughput", Unit: "calls/s", Lines: rate[:]},
			{Title: "One call", Unit: "ms", Log: true, Lines: []chart.Line{p50[0], p99[0], p50[1], p99[1]}},
			{Title: "CPU of one call", Unit: "ms", Lines: []chart.Line{costs[0].ambit, costs[0].server, costs[1].ambit, costs[1].server}},
			{Title: "Transactions of one call", Unit: "per call", Lines: []chart.Line{costs[0].commits, costs[0].rollbacks, costs[1].commits, costs[1].rollbacks}},
			{Title: "An idle gateway", Unit: "ms of CPU in a second", Lines: []chart.Line{idle.ambit, idle.server}},
			{Title: "An idle gateway", Unit: "commits in a second", Lines: []chart.Line{idle.commits}},
			{Title: "Connections to PostgreSQL", Unit: "in use", Lines: []chart.Line{connections}},
		},
	}, nil
}

const programText = `[agent]
id = "echo@bench"
name = "echo"
version = "0.1.0"
runtime = "rust-bin"
entry = "echo"
[resources]
network = "off"
`

const programSource = `package main

import ("bufio"; "encoding/json"; "os")

func main() {
	line, _ := bufio.NewReader(os.Stdin).ReadBytes('\n')
	var i map[string]any
	json.Unmarshal(line, &i)
	json.NewEncoder(os.Stdout).Encode(map[string]any{"intent_id": i["id"], "status": "ok", "text": i["text"], "sources": []string{}})
}
`

// writeProgram builds a program that repeats its line. Other users must be able to read it, because it runs in a sandbox.
func (s *setup) writeProgram(ctx context.Context, dir string) error {
	err := errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(filepath.Dir(s.dir), 0o755),
		os.WriteFile(filepath.Join(dir, "main.go"), []byte(programSource), 0o644), os.WriteFile(filepath.Join(dir, "agent.toml"), []byte(programText), 0o644))
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", "echo", "main.go")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, text)
	}
	return nil
}

// intent sends a task to a program and waits for the answer.
func (d *daemon) intent(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url+"/api/v1/intents", strings.NewReader(`{"agent":"echo","text":"hello"}`))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+d.bearer)
	r.Header.Set("Content-Type", "application/json")
	answer, err := d.client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && (answer.StatusCode != http.StatusOK || !json.Valid(text)) {
		err = fmt.Errorf("%w: %s: %.300s", errWrong, answer.Status, text)
	}
	return err
}

// growWorkers measures more and more workers on one PostgreSQL server, beside one gateway.
func growWorkers(ctx context.Context, s *setup, sizes sizes) (chart.Chart, error) {
	dir := filepath.Join(s.dir, "programs")
	if err := s.writeProgram(ctx, filepath.Join(dir, "echo")); err != nil {
		return chart.Chart{}, err
	}
	var rate, p50, p99 chart.Line
	rate.Name, p50.Name, p99.Name = "tasks", "p50", "p99"
	cost, idle, connections := newSpent("task"), newSpent("idle second"), chart.Line{Name: "connections"}
	for _, n := range sizes {
		err := func() error {
			f, err := s.newFleet(ctx, dir)
			if err != nil {
				return err
			}
			defer f.close()
			if err := f.addGateway(ctx); err != nil {
				return err
			}
			for range n {
				if err := f.addWorker(ctx); err != nil {
					return err
				}
			}
			do := func(int) error { return f.gateways[0].intent(ctx) }
			if _, _, err := f.crowd(4, time.Millisecond, do); err != nil { // starts the sandboxes
				return err
			}
			before, err := f.usage(ctx)
			if err != nil {
				return err
			}
			took, span, err := f.crowd(4, 2*s.span, do)
			if err != nil {
				return err
			}
			after, err := f.usage(ctx)
			if err != nil {
				return err
			}
			cost.add(n, len(took), before, after)
			rate.Add(n, float64(len(took))/span.Seconds())
			p50.Add(n, ms(took[len(took)/2]))
			p99.Add(n, ms(took[len(took)*99/100]))
			connections.Add(n, float64(after.connections))
			return f.watch(ctx, n, idle)
		}()
		if err != nil {
			return chart.Chart{}, err
		}
	}
	return chart.Chart{
		Title: "Workers on one PostgreSQL server, beside one gateway with four callers", X: "workers", Command: "bench/run growth -only workers",
		Panels: []chart.Panel{
			{Title: "Throughput", Unit: "tasks/s", Lines: []chart.Line{rate}},
			{Title: "One task", Unit: "ms", Log: true, Lines: []chart.Line{p50, p99}},
			{Title: "CPU of one task", Unit: "ms", Lines: []chart.Line{cost.ambit, cost.server}},
			{Title: "Transactions of one task", Unit: "per task", Lines: []chart.Line{cost.commits, cost.rollbacks}},
			{Title: "An idle process", Unit: "ms of CPU in a second", Lines: []chart.Line{idle.ambit, idle.server}},
			{Title: "An idle process", Unit: "commits in a second", Lines: []chart.Line{idle.commits}},
			{Title: "Connections to PostgreSQL", Unit: "in use", Lines: []chart.Line{connections}},
		},
	}, nil
}
