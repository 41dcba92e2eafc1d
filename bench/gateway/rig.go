package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ambit-run/ambit/bench/gateway/middle"
)

// way is one path from the client to the tool.
type way struct {
	name, baseline string // baseline names the way to compare with
	tool           string
	shared         bool // whether all clients share one session
	connect        func(context.Context) (*mcp.ClientSession, error)
	middle         *os.Process // the process between client and server; nil if there is none
}

// rig holds the running processes and the ways through them.
type rig struct {
	ways  []*way
	procs []*exec.Cmd
	dir   string
	home  string // the value of AMBIT_HOME for the next process
}

func (r *rig) close() {
	for _, p := range r.procs {
		_ = p.Process.Signal(os.Interrupt)
	}
	for _, p := range r.procs {
		timer := time.AfterFunc(5*time.Second, func() { _ = p.Process.Kill() })
		_ = p.Wait()
		timer.Stop()
	}
	_ = os.RemoveAll(r.dir)
}

// keep keeps the ways whose names contain the given text, and the baselines of these ways. It removes all other ways.
func (r *rig) keep(only string) {
	wanted := map[string]bool{}
	for _, w := range r.ways {
		if strings.Contains(w.name, only) {
			wanted[w.name], wanted[w.baseline] = true, true
		}
	}
	r.ways = slices.DeleteFunc(r.ways, func(w *way) bool { return !wanted[w.name] })
}

// start starts a process and returns the first line that it prints.
func (r *rig) start(ctx context.Context, name string, args ...string) (*os.Process, string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "AMBIT_HOME="+r.home)
	log, err := os.Create(filepath.Join(r.dir, fmt.Sprintf("log-%d", len(r.procs))))
	if err != nil {
		return nil, "", err
	}
	defer log.Close()
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, "", err
	}
	r.procs = append(r.procs, cmd)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		text, _ := os.ReadFile(log.Name())
		return nil, "", fmt.Errorf("%s did not start: %w: %.500s", name, err, text)
	}
	return cmd.Process, strings.TrimSpace(line), nil
}

// compile builds one of the benchmark's programs as a separate binary. Processes of the same binary share code
// addresses, which makes branch prediction and caches unrealistically good. In production, the proxy and the client
// are different binaries too.
func (r *rig) compile(ctx context.Context, name string) (string, error) {
	path := filepath.Join(r.dir, name)
	out, err := exec.CommandContext(ctx, "go", "build", "-C", "bench", "-o", path, "./gateway/"+name).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building %s: %w: %.500s", name, err, out)
	}
	return path, nil
}

const floor = "ReverseProxy"

func build(ctx context.Context, ambit, before string) (*rig, error) {
	dir, err := os.MkdirTemp("", "gateway-")
	if err != nil {
		return nil, err
	}
	r := &rig{dir: dir, home: filepath.Join(dir, "home")}
	server, err := r.compile(ctx, "echo")
	if err != nil {
		return r, err
	}
	_, echo, err := r.start(ctx, server)
	if err != nil {
		return r, err
	}
	r.ways = []*way{{name: "direct", baseline: floor, tool: "echo", connect: overHTTP(echo, "")}}
	agents := filepath.Join(dir, "agents")
	if err := writeAgents(agents, echo, server); err != nil {
		return r, err
	}
	if err := r.proxies(ctx, echo); err != nil {
		return r, err
	}
	if err := r.gateways(ctx, ambit, before, agents); err != nil {
		return r, err
	}
	stdio := &way{name: "direct, stdio", baseline: "direct, stdio", tool: "echo", shared: true}
	stdio.connect = stdio.overStdio(r, false, server, "-stdio")
	r.ways = append(r.ways, stdio)
	for _, p := range [][2]string{{"ambit", ambit}, {"before", before}} {
		if p[1] != "" {
			through := &way{name: p[0] + ", stdio to stdio", baseline: "direct, stdio", tool: "echo", shared: true}
			through.connect = through.overStdio(r, true, p[1], "run", filepath.Join(agents, "pipe.json"))
			r.ways = append(r.ways, through)
		}
	}
	return r, nil
}

func (r *rig) proxies(ctx context.Context, echo string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	proxy, err := r.compile(ctx, "proxy")
	if err != nil {
		return err
	}
	for _, p := range []struct {
		name, program string
		args          []string
	}{
		{floor, proxy, nil},
		{floor + ", the client's binary", self, []string{"-proxy"}},
		{floor + ", a block synced", proxy, []string{"-sync", filepath.Join(r.dir, "synced")}},
	} {
		process, address, err := r.start(ctx, p.program, append(p.args, echo)...)
		if err != nil {
			return err
		}
		r.ways = append(r.ways, &way{name: p.name, baseline: floor, tool: "echo", connect: overHTTP(address, ""), middle: process})
	}
	return nil
}

// gateways starts two ambit daemons: one with only the mandatory checks, and one with all guardrails. If before is
// the path of another ambit binary, gateways also starts a daemon from that binary.
func (r *rig) gateways(ctx context.Context, ambit, before, agents string) error {
	guarded, err := writeGuardrails(r.dir)
	if err != nil {
		return err
	}
	for _, d := range []struct {
		program, home string
		ways          [][2]string // the names of the ways and of their agents
	}{
		{ambit, filepath.Join(r.dir, "home"), [][2]string{
			{"ambit, HTTP to HTTP, read", "reads"}, {"ambit, HTTP to HTTP, write", "writes"}, {"ambit, HTTP to stdio", "pipe"},
		}},
		{ambit, guarded, [][2]string{
			{"ambit, HTTP to HTTP, read, all guardrails", "reads"}, {"ambit, HTTP to HTTP, write, all guardrails", "writes"},
		}},
		{before, filepath.Join(r.dir, "home-before"), [][2]string{
			{"before, HTTP to HTTP, read", "reads"}, {"before, HTTP to HTTP, write", "writes"},
		}},
	} {
		if d.program == "" {
			continue
		}
		r.home = d.home
		daemon, url, bearer, err := r.serve(ctx, d.program, agents)
		if err != nil {
			return err
		}
		for _, w := range d.ways {
			r.ways = append(r.ways, &way{name: w[0], baseline: floor, tool: "echo", connect: overHTTP(url+"/mcp/"+w[1], bearer), middle: daemon})
		}
	}
	return nil
}

// serve starts an ambit daemon with the home folder r.home.
func (r *rig) serve(ctx context.Context, ambit, agents string) (p *os.Process, url, bearer string, err error) {
	p, line, err := r.start(ctx, ambit, "serve", "--listen", "127.0.0.1:0", "--agents", agents, "--json")
	if err != nil {
		return nil, "", "", err
	}
	var ready struct {
		URL     string `json:"url"`
		KeyFile string `json:"key_file"`
	}
	if err := json.Unmarshal([]byte(line), &ready); err != nil {
		return nil, "", "", fmt.Errorf("ambit printed %q: %w", line, err)
	}
	secret, err := os.ReadFile(ready.KeyFile)
	return p, ready.URL, strings.TrimSpace(string(secret)), err
}

// writeGuardrails writes a home folder with a policy, a quota and all guardrails that an operator can set. They allow
// every call of the benchmark, but ambit has to check them.
func writeGuardrails(dir string) (home string, err error) {
	home = filepath.Join(dir, "home-guarded")
	err = os.MkdirAll(home, 0o700)
	for name, text := range map[string]string{
		"guardrails.json": `{"input": {"max_length": 100000, "deny_patterns": ["drop table", "rm -rf"], "deny_defaults": true, "pii_redaction": ["email", "phone", "credit_card", "iban"]}, "output": {"on_leak": "block"}}`,
		"policy.cedar":    `forbid (principal, action, resource) when { context.arguments has path && context.arguments.path like "/etc/*" };`,
		"config.toml":     "[quota]\ncalls_per_minute = 1000000000\ncalls_per_day = 1000000000\n",
	} {
		if err == nil {
			err = os.WriteFile(filepath.Join(home, name), []byte(text), 0o600)
		}
	}
	return home, err
}

func writeAgents(dir, echo, program string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	remote := func(class string) map[string]any {
		return map[string]any{
			"alias": "echo", "transport": "http", "endpoint": echo, "version": "1.0.0",
			"tools": []any{map[string]any{"name": "echo", "side_effect_class": class}, map[string]any{"name": "fill", "side_effect_class": class}},
		}
	}
	pipe := map[string]any{
		"alias": "echo", "transport": "stdio", "command": program, "args": []string{"-stdio"}, "version": "1.0.0",
		"package_digest": "sha256:" + strings.Repeat("0", 64),
		"tools":          []any{map[string]any{"name": "echo", "side_effect_class": "read"}, map[string]any{"name": "fill", "side_effect_class": "read"}},
	}
	for name, server := range map[string]any{"reads": remote("read"), "writes": remote("write"), "pipe": pipe} {
		text, err := json.Marshal(map[string]any{
			"schema_version": 1, "agent": "matrix://agent/" + name, "description": "Repeats its input.",
			"allowed_side_effects": []string{"read", "write"}, "servers": []any{server},
		})
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name+".json"), text, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func newClient() *mcp.Client {
	return mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
}

var older = &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"}

func overHTTP(address, bearer string) func(context.Context) (*mcp.ClientSession, error) {
	client := &http.Client{Transport: withKey{&http.Transport{MaxIdleConnsPerHost: middle.MaxIdle}, bearer}}
	return func(ctx context.Context) (*mcp.ClientSession, error) {
		return newClient().Connect(ctx, &mcp.StreamableClientTransport{Endpoint: address, HTTPClient: client, DisableStandaloneSSE: true}, older)
	}
}

// withKey adds the API key to requests.
type withKey struct {
	http.RoundTripper
	bearer string
}

func (w withKey) RoundTrip(r *http.Request) (*http.Response, error) {
	if w.bearer != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+w.bearer)
	}
	return w.RoundTripper.RoundTrip(r)
}

// overStdio returns a function that starts a server and connects to it over stdio. If measured is true, the server is
// the process that is measured.
func (w *way) overStdio(r *rig, measured bool, name string, args ...string) func(context.Context) (*mcp.ClientSession, error) {
	return func(ctx context.Context) (*mcp.ClientSession, error) {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Env = append(os.Environ(), "AMBIT_HOME="+filepath.Join(r.dir, "home-"+w.name))
		s, err := newClient().Connect(ctx, &mcp.CommandTransport{Command: cmd}, older)
		if err == nil && measured {
			w.middle = cmd.Process
		}
		return s, err
	}
}

// used returns the CPU time of the middle process as the sum of its threads' times, because the time of a whole
// process has a resolution of only 10 ms. Threads of Go programs do not exit, so the sum is complete.
func (w *way) used() (total time.Duration) {
	if w.middle == nil {
		return 0
	}
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", w.middle.Pid))
	for _, file := range threads {
		text, err := os.ReadFile(file)
		if f := strings.Fields(string(text)); err == nil && len(f) > 0 {
			ns, _ := strconv.ParseInt(f[0], 10, 64)
			total += time.Duration(ns)
		}
	}
	return total
}

// peak returns the largest resident memory of the middle process in bytes since the last call of resetPeak.
func (w *way) peak() int64 {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.middle.Pid))
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	var kib int64
	_, _ = fmt.Sscan(rest, &kib)
	return kib << 10
}

func (w *way) resetPeak() error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", w.middle.Pid), []byte("5"), 0)
}

// memory returns the resident memory of the middle process in bytes.
func (w *way) memory() int64 {
	if w.middle == nil {
		return 0
	}
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", w.middle.Pid))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(statm))
	pages, _ := strconv.ParseInt(f[1], 10, 64)
	return pages * int64(os.Getpagesize())
}
