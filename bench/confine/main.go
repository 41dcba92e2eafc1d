// Command confine measures what confinement costs a tool server:
//
//   - start: from the start of a server in node until its tools are known, confined and unconfined;
//   - connect: the time of a new TCP connection to a port of this machine, from inside a sandbox and from outside;
//   - throughput: of one such connection, and ambit's CPU time for each MB;
//   - 100 connections at once;
//   - memory: what ambit and the sandbox's own processes take for each idle server.
//
// All ways are measured in turn. The client is this program itself, started again inside the sandbox.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ambit-run/ambit/agent"
	_ "github.com/ambit-run/ambit/internal/cli" // the sandbox's shim loads all of ambit's packages, as in ambit
	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/store/home"
)

const (
	starts      = 30
	connections = 300
	megabytes   = 200
	passes      = 5
	idleServers = 10
)

func main() {
	err := errors.New("usage: confine")
	switch {
	case len(os.Args) == 3:
		err = client(os.Args[1], os.Args[2])
	case len(os.Args) == 1:
		err = measure()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// sample is what a client measured.
type sample struct {
	Connect []time.Duration
	Read    time.Duration
}

// client connects and reads, and prints its times.
func client(what, address string) error {
	var s sample
	dial := func() (net.Conn, error) {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_, err = c.Write([]byte{what[0]})
		}
		return c, err
	}
	switch what {
	case "connect":
		for range connections {
			begun := time.Now()
			c, err := net.Dial("tcp", address)
			if err != nil {
				return err
			}
			s.Connect = append(s.Connect, time.Since(begun))
			c.Close()
		}
	case "read":
		c, err := dial()
		if err != nil {
			return err
		}
		begun := time.Now()
		if n, err := io.Copy(io.Discard, c); err != nil || n != megabytes<<20 {
			return fmt.Errorf("read %d bytes: %w", n, err)
		}
		s.Read = time.Since(begun)
	case "many":
		var all sync.WaitGroup
		errs := make(chan error, 100)
		begun := time.Now()
		for range 100 {
			all.Go(func() {
				c, err := dial()
				if err == nil {
					_, err = io.ReadFull(c, make([]byte, 1))
				}
				if err != nil {
					errs <- err
				}
			})
		}
		all.Wait()
		s.Read = time.Since(begun)
		if len(errs) > 0 {
			return <-errs
		}
	}
	return json.NewEncoder(os.Stdout).Encode(s)
}

// serve answers clients: "r" gets many bytes, "m" one byte, and others nothing.
func serve(l net.Listener) {
	block := make([]byte, 1<<20)
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			var what [1]byte
			if _, err := io.ReadFull(c, what[:]); err != nil {
				return
			}
			switch what[0] {
			case 'r':
				for range megabytes {
					if _, err := c.Write(block); err != nil {
						return
					}
				}
			case 'm':
				c.Write(what[:])
			}
		}()
	}
}

func measure() error {
	dir, err := os.MkdirTemp("", "ambit-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	if err := measureStart(dir); err != nil {
		return err
	}
	return measureNetwork(dir)
}

const serverText = `
require('readline').createInterface({input: process.stdin}).on('line', line => {
	const m = JSON.parse(line)
	if (m.id === undefined) return
	const result = m.method === 'initialize'
		? {protocolVersion: m.params.protocolVersion, capabilities: {tools: {}}, serverInfo: {name: 'x', version: '1'}}
		: {tools: [{name: 'echo', inputSchema: {type: 'object'}}]}
	console.log(JSON.stringify({jsonrpc: '2.0', id: m.id, result}))
})
`

// start starts a server, confined or not.
func start(dir string, confined bool, number int) (*toolserver.Manager, error) {
	alias := "s" + strconv.Itoa(number)
	a := &agent.Agent{
		ID: "bench", Name: "bench",
		Servers: []agent.Server{{
			Alias: alias, Transport: agent.Stdio, Command: "node", Args: []string{filepath.Join(dir, "server.cjs")},
			Placeholder: true, Version: "1.0.0",
		}},
		Tools: []agent.Tool{{Name: "echo", SideEffect: agent.Read, Binding: agent.OnServer{Alias: alias}}},
	}
	o := toolserver.Options{Home: home.At(filepath.Join(dir, "home")), Folder: dir, Version: "bench"}
	if confined {
		o.Confine = &toolserver.Confinement{
			Agent: "bench", Access: a.Access,
			Files: func(alias string) string { return filepath.Join(dir, "files", alias) },
		}
	}
	m := toolserver.Start(context.Background(), a, o)
	if p := m.Proofs()[0]; !p.OK {
		m.Close()
		return nil, p.Refusal
	}
	return m, nil
}

func measureStart(dir string) error {
	if err := os.WriteFile(filepath.Join(dir, "server.cjs"), []byte(serverText), 0o644); err != nil {
		return err
	}
	var took [2][]time.Duration
	for i := range starts + 1 { // the first start of each kind is not counted
		for kind, confined := range []bool{false, true} {
			begun := time.Now()
			m, err := start(dir, confined, 0)
			if err != nil {
				return err
			}
			if i > 0 {
				took[kind] = append(took[kind], time.Since(begun))
			}
			m.Close()
		}
	}
	out, in := p50(took[0]), p50(took[1])
	fmt.Printf("start of a node server, p50 of %d: unconfined %.1f ms, confined %.1f ms (%+.1f ms)\n", starts,
		ms(out), ms(in), ms(in)-ms(out))
	before, err := memory()
	if err != nil {
		return err
	}
	for i := range idleServers {
		m, err := start(dir, true, i+1)
		if err != nil {
			return err
		}
		defer m.Close()
	}
	time.Sleep(time.Second) // the servers become idle
	after, err := memory()
	if err != nil {
		return err
	}
	fmt.Printf("memory of ambit and its sandboxes without the servers themselves: %.2f MB for each of %d idle servers\n",
		float64(after-before)/idleServers/1024, idleServers)
	return nil
}

// memory returns the proportional set size of this process and of its descendants except node, in KB.
func memory() (total int64, err error) {
	out, err := exec.Command("ps", "-eo", "pid=,ppid=,comm=").Output()
	if err != nil {
		return 0, err
	}
	parent, name := map[int]int{}, map[int]string{}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		pid, _ := strconv.Atoi(f[0])
		parent[pid], _ = strconv.Atoi(f[1])
		name[pid] = f[2]
	}
	for pid := range parent {
		mine := pid
		for mine != os.Getpid() && mine > 1 {
			mine = parent[mine]
		}
		if mine <= 1 || name[pid] == "node" || name[pid] == "ps" {
			continue
		}
		text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/smaps_rollup")
		if err != nil {
			continue // the process has ended
		}
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); f[0] == "Pss:" {
				kb, _ := strconv.ParseInt(f[1], 10, 64)
				total += kb
			}
		}
	}
	return total, nil
}

func measureNetwork(dir string) error {
	exe, err := os.Executable()
	if err == nil {
		exe, err = filepath.EvalSymlinks(exe)
	}
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	go serve(l)
	address := l.Addr().String()
	outside := func(what string) (s sample, err error) {
		out, err := exec.Command(exe, what, address).Output()
		if err == nil {
			err = json.Unmarshal(out, &s)
		}
		return s, err
	}
	inside := func(what string) (s sample, err error) {
		var said bytes.Buffer
		out, err := sandbox.Run(context.Background(), sandbox.Spec{
			Tier: sandbox.Confined, Argv: []string{exe, what, address},
			Mounts:   []sandbox.Mount{{Source: filepath.Dir(exe), To: filepath.Dir(exe)}},
			OnStderr: func(line string) { said.WriteString(line) },
			Network: egress.NewNetwork(egress.NewDialer(egress.Switches{}),
				egress.Policy{Mode: egress.ModeHosts, Private: []string{address}, LongRunning: true}, func(egress.Decision) {}),
		})
		if err == nil && out.ExitCode != 0 {
			err = errors.New(said.String())
		}
		if err == nil {
			err = json.Unmarshal(out.Stdout, &s)
		}
		return s, err
	}
	var connect, read, many [2][]time.Duration
	var cpu []time.Duration
	for range passes {
		for kind, run := range []func(string) (sample, error){outside, inside} {
			for _, what := range []string{"connect", "read", "many"} {
				busy := usage()
				s, err := run(what)
				if err != nil {
					return fmt.Errorf("%s: %w", what, err)
				}
				switch what {
				case "connect":
					connect[kind] = append(connect[kind], s.Connect...)
				case "many":
					many[kind] = append(many[kind], s.Read)
				case "read":
					read[kind] = append(read[kind], s.Read)
					if kind == 1 {
						cpu = append(cpu, usage()-busy)
					} else {
						cpu = append(cpu, -(usage() - busy))
					}
				}
			}
		}
	}
	speed := func(d time.Duration) float64 { return megabytes / d.Seconds() }
	fmt.Printf("connect, p50 of %d: direct %.0f µs, confined %.0f µs (%+.0f µs)\n", passes*connections,
		us(p50(connect[0])), us(p50(connect[1])), us(p50(connect[1]))-us(p50(connect[0])))
	direct, confined := speed(p50(read[0])), speed(p50(read[1]))
	fmt.Printf("throughput of %d MB, p50 of %d: direct %.0f MB/s, confined %.0f MB/s (%.2fx)\n", megabytes, passes,
		direct, confined, confined/direct)
	var extra time.Duration
	for _, d := range cpu {
		extra += d
	}
	fmt.Printf("CPU of ambit for each MB: %.3f ms\n", ms(extra)/passes/megabytes)
	fmt.Printf("100 connections at once, p50 of %d: direct %.1f ms, confined %.1f ms\n", passes, ms(p50(many[0])), ms(p50(many[1])))
	return nil
}

// usage returns the CPU time of this process.
func usage() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func p50(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
func us(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
