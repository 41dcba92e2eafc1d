// Command confine measures the cost of confining a tool server:
//
//   - start: the time that a Node.js server needs to start and list its tools, confined and unconfined;
//   - connect: the time of a new TCP connection to a port of this machine, from inside a sandbox and from outside;
//   - throughput: the throughput of one such connection, and ambit's CPU time for each MB;
//   - 100 connections: the time to open 100 connections at once;
//   - memory: the memory of ambit and of the sandbox's own processes for each idle server;
//   - observation: the time of a server's work, without and with the recorder of "ambit learn".
//
// The command measures confined and unconfined runs in turn. For the network measurements, it starts itself again as
// the client and the server.
package main

import (
	"bufio"
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
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ambit-run/ambit/agent"
	// The sandbox starts this binary again. It must contain the same packages as ambit's binary.
	_ "github.com/ambit-run/ambit/internal/cli"
	"github.com/ambit-run/ambit/internal/exec/learn"
	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/store/home"
)

const (
	starts      = 30
	connections = 300
	megabytes   = 1000
	passes      = 5
	idleServers = 10
)

func main() {
	err := errors.New("usage: confine")
	switch {
	case len(os.Args) == 1:
		err = measure()
	case len(os.Args) == 2 && os.Args[1] == "serve":
		err = listen()
	case len(os.Args) == 3 && os.Args[1] == "idle":
		err = idle(os.Args[2] == "confined")
	case len(os.Args) == 3:
		err = client(os.Args[1], os.Args[2])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// sample contains the times that one client measured.
type sample struct {
	Connect []time.Duration
	Read    time.Duration
}

// client makes the given measurement against a server, and prints the times as JSON.
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
	case "nothing":
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

// listen prints the address of a new listener, and serves clients until standard input ends.
func listen() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	go serve(l)
	io.Copy(io.Discard, os.Stdin)
	return nil
}

// serve answers clients. A client that sends "r" gets many bytes, a client that sends "m" gets one byte, and any
// other client gets no answer.
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
	exe, err := os.Executable()
	if err == nil {
		exe, err = filepath.EvalSymlinks(exe)
	}
	if err != nil {
		return err
	}
	fmt.Printf("the cost of confinement for a tool server; direct and confined runs alternate; %d cores\n\n", runtime.NumCPU())
	fmt.Printf("%44s  %9s  %9s  %10s  goal\n", "", "direct", "confined", "difference")
	if err := measureStart(); err != nil {
		return err
	}
	if err := measureNetwork(exe); err != nil {
		return err
	}
	if err := measureMemory(exe); err != nil {
		return err
	}
	return measureObserved()
}

// measureObserved compares the time of a confined server's work without and with the recorder of "ambit learn". The
// server is an npm package that reads hundreds of its own files when it starts.
func measureObserved() error {
	dir, err := folder()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	modules, err := filepath.Abs("bench/node_modules")
	if err != nil {
		return err
	}
	program := filepath.Join(modules, "@modelcontextprotocol/server-everything/dist/index.js")
	if _, err := os.Stat(program); err != nil {
		return fmt.Errorf("run npm ci --prefix bench --ignore-scripts: %w", err)
	}
	var took [2][]time.Duration
	used := 0
	for i := range starts + 1 {
		for kind, observed := range []bool{false, true} {
			var r learn.Recorder
			spec := sandbox.Spec{
				Tier: sandbox.Confined, Argv: []string{"/usr/bin/env", "node", program, "stdio"}, Stdin: []byte(greeting),
				Mounts: []sandbox.Mount{{Source: modules, To: modules}},
			}
			if observed {
				spec.Observe = func(use agent.Right, found func() bool) { r.Use("s", use, found) }
			}
			begun := time.Now()
			out, err := sandbox.Run(context.Background(), spec)
			if err == nil && !bytes.Contains(out.Stdout, []byte(`"tools"`)) {
				err = fmt.Errorf("the server answered %q", out.Stdout)
			}
			if err != nil {
				return err
			}
			if i > 0 {
				took[kind] = append(took[kind], time.Since(begun))
			}
			if observed {
				used, _ = r.Used("s")
			}
		}
	}
	without, with := ms(p50(took[0])), ms(p50(took[1]))
	fmt.Printf("\nambit learn: a confined npm server that uses %d files, start to end, p50 of %d\n"+
		"  without the recorder %.0f ms, with it %.0f ms, ratio %.2f (goal: at most 1.15)\n", used, starts, without, with, with/without)
	return nil
}

// greeting makes a server start, list its tools, and exit. It omits the notification that the client is initialized,
// because the notification would make this server wait for a timer.
const greeting = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},` +
	`"clientInfo":{"name":"bench","version":"1"}}}
{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{}}
`

// row prints a measurement and whether it reaches its goal.
func row(what, unit string, direct, confined float64, difference, goal string, reached bool) {
	if !reached {
		goal += ": missed"
	}
	number := func(f float64) string { return strconv.FormatFloat(f, 'f', digits(f), 64) + " " + unit }
	fmt.Printf("%44s  %9s  %9s  %10s  %s\n", what, number(direct), number(confined), difference, goal)
}

// digits returns the number of digits after the point for three significant digits.
func digits(f float64) int {
	switch {
	case f >= 100:
		return 0
	case f >= 10:
		return 1
	}
	return 2
}

// folder makes a folder with the program of a tool server.
func folder() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "ambit-bench"); err != nil {
		return "", err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return "", err
	}
	return dir, errors.Join(os.Chmod(dir, 0o755), os.WriteFile(filepath.Join(dir, "server.cjs"), []byte(serverText), 0o644))
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
	o := toolserver.Options{Home: home.At(filepath.Join(dir, "home")), Manifest: filepath.Join(dir, "agent.json"), Version: "bench"}
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

func measureStart() error {
	dir, err := folder()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
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
	direct, confined := ms(p50(took[0])), ms(p50(took[1]))
	row(fmt.Sprintf("start of a node server, p50 of %d", starts), "ms", direct, confined,
		fmt.Sprintf("%+.1f ms", confined-direct), "at most +15 ms", confined-direct <= 15)
	return nil
}

// measureMemory measures the memory for each idle server, once confined and once unconfined, each in a new process.
func measureMemory(exe string) error {
	var kb [2]float64
	for kind, how := range []string{"direct", "confined"} {
		cmd := exec.Command(exe, "idle", how)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err == nil {
			kb[kind], err = strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
		}
		if err != nil {
			return err
		}
	}
	direct, confined := kb[0]/1024, kb[1]/1024
	row(fmt.Sprintf("memory for each of %d idle servers", idleServers), "MB", direct, confined,
		fmt.Sprintf("%+.2f MB", confined-direct), "at most 2 MB", confined <= 2)
	return nil
}

// idle prints how much memory, in KB, each additional idle server takes. It does not count the memory of the server's
// own process.
func idle(confined bool) error {
	dir, err := folder()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var before int64
	for i := range idleServers + 1 {
		m, err := start(dir, confined, i)
		if err != nil {
			return err
		}
		defer m.Close()
		if i == 0 { // the memory of the first server includes the memory that all servers share
			if before, err = memory(); err != nil {
				return err
			}
		}
	}
	after, err := memory()
	if err != nil {
		return err
	}
	fmt.Println(float64(after-before) / idleServers)
	return nil
}

// memory returns the proportional set size of this process and of its descendants except node, in KB.
func memory() (total int64, err error) {
	debug.FreeOSMemory() // otherwise the result depends on the time of the last garbage collection
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
			continue // the process has exited in the meantime
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

func measureNetwork(exe string) error {
	server := exec.Command(exe, "serve")
	hold, err := server.StdinPipe()
	if err != nil {
		return err
	}
	out, err := server.StdoutPipe()
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return err
	}
	defer server.Wait()
	defer hold.Close()
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return err
	}
	address = strings.TrimSpace(address)
	outside := func(address string) func(string) (sample, error) {
		return func(what string) (s sample, err error) {
			out, err := exec.Command(exe, what, address).Output()
			if err == nil {
				err = json.Unmarshal(out, &s)
			}
			return s, err
		}
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
	bare, err := startBareRelay(address)
	if err != nil {
		return err
	}
	defer bare.Close()
	var connect, read, many, cpu [3][]time.Duration
	for range passes {
		for kind, run := range []func(string) (sample, error){outside(address), inside, outside(bare.Addr().String())} {
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
					busy = usage() - busy
					// A client that reads nothing measures the CPU time of the start alone.
					before := usage()
					if _, err := run("nothing"); err != nil {
						return err
					}
					cpu[kind] = append(cpu[kind], busy-(usage()-before))
				}
			}
		}
	}
	direct, confined := us(p50(connect[0])), us(p50(connect[1]))
	row(fmt.Sprintf("connection, p50 of %d", passes*connections), "µs", direct, confined,
		fmt.Sprintf("%+.0f µs", confined-direct), "at most +200 µs", confined-direct <= 200)
	speed := func(d time.Duration) float64 { return megabytes / d.Seconds() }
	direct, confined = speed(p50(read[0])), speed(p50(read[1]))
	row(fmt.Sprintf("throughput of %d MB, p50 of %d", megabytes, passes), "MB/s", direct, confined,
		fmt.Sprintf("%.2f x", confined/direct), "at least 0.5 x", confined/direct >= 0.5)
	bareCPU, confinedCPU := ms(p50(cpu[2]))/megabytes, ms(p50(cpu[1]))/megabytes
	row("CPU of ambit for each MB", "ms", 0, confinedCPU,
		fmt.Sprintf("%+.2f ms", confinedCPU), "at most 0.15 ms", confinedCPU <= 0.15)
	row("CPU of a relay that only copies, for each MB", "ms", 0, bareCPU, fmt.Sprintf("%+.2f ms", bareCPU), "", true)
	direct, confined = ms(p50(many[0])), ms(p50(many[1]))
	row(fmt.Sprintf("100 connections at once, p50 of %d", passes), "ms", direct, confined,
		fmt.Sprintf("%+.1f ms", confined-direct), "all succeed", true) // an error would have ended the benchmark
	return nil
}

// startBareRelay accepts connections, connects each of them to the address, and copies data in both directions. It
// does nothing else, so its CPU time is the minimum that any relay needs.
func startBareRelay(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				to, err := net.Dial("tcp", address)
				if err != nil {
					return
				}
				defer to.Close()
				go io.Copy(to, c)
				io.Copy(c, to)
			}()
		}
	}()
	return l, nil
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
