package calls

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
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

// Rig holds the running processes and the ways through them.
type Rig struct {
	Ways     []*Way
	Dir      string // a temporary folder
	programs []*Program
}

// Program is a running process.
type Program struct {
	cmd *exec.Cmd
	log string // the file with its output
}

// Process returns the process of the program.
func (p *Program) Process() *os.Process { return p.cmd.Process }

// Output returns what the program has printed.
func (p *Program) Output() []byte {
	text, _ := os.ReadFile(p.log)
	return text
}

// Stop interrupts the program, and kills it if it does not end in time.
func (p *Program) Stop(patience time.Duration) {
	_ = p.cmd.Process.Signal(os.Interrupt)
	timer := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	_ = p.cmd.Wait()
	timer.Stop()
}

// NewRig returns a rig without processes.
func NewRig() (*Rig, error) {
	dir, err := os.MkdirTemp("", "calls-")
	return &Rig{Dir: dir}, err
}

// Close stops all processes and removes their files.
func (r *Rig) Close() {
	for _, p := range r.programs {
		_ = p.cmd.Process.Signal(os.Interrupt)
	}
	for _, p := range r.programs {
		p.Stop(5 * time.Second)
	}
	_ = os.RemoveAll(r.Dir)
}

// Keep keeps the ways whose names contain the given text, and the baselines of these ways. It removes all other ways.
func (r *Rig) Keep(only string) {
	wanted := map[string]bool{}
	for _, w := range r.Ways {
		if strings.Contains(w.Name, only) {
			wanted[w.Name], wanted[w.Baseline] = true, true
		}
	}
	r.Ways = slices.DeleteFunc(r.Ways, func(w *Way) bool { return !wanted[w.Name] })
}

// Launch starts a process with more environment variables. Its output goes to a file, except stdout if out is set.
func (r *Rig) Launch(
	ctx context.Context, out *io.ReadCloser, env []string, name string, args ...string,
) (*Program, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	log, err := os.Create(filepath.Join(r.Dir, fmt.Sprintf("log-%d", len(r.programs))))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if out != nil {
		cmd.Stdout = nil
		if *out, err = cmd.StdoutPipe(); err != nil {
			return nil, err
		}
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Program{cmd, log.Name()}
	r.programs = append(r.programs, p)
	return p, nil
}

// Start starts a process with more environment variables, and returns the first line that it prints.
func (r *Rig) Start(ctx context.Context, env []string, name string, args ...string) (*Program, string, error) {
	var out io.ReadCloser
	p, err := r.Launch(ctx, &out, env, name, args...)
	if err != nil {
		return nil, "", err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, "", fmt.Errorf("%s did not start: %w: %.500s", name, err, p.Output())
	}
	return p, strings.TrimSpace(line), nil
}

// Compile builds one of the programs of bench/gateway as a separate binary. Processes of the same binary share code
// addresses, which makes branch prediction and caches unrealistically good. In production, the proxy and the client
// are different binaries too.
func (r *Rig) Compile(ctx context.Context, name string) (string, error) {
	path := filepath.Join(r.Dir, name)
	out, err := exec.CommandContext(ctx, "go", "build", "-C", "bench", "-o", path, "./gateway/"+name).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building %s: %w: %.500s", name, err, out)
	}
	return path, nil
}

// Serve starts an ambit daemon with a home folder.
func (r *Rig) Serve(ctx context.Context, home, ambit, agents string) (p *Program, url, bearer string, err error) {
	p, line, err := r.Start(ctx, []string{"AMBIT_HOME=" + home}, ambit,
		"serve", "--listen", "127.0.0.1:0", "--agents", agents, "--json")
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

// WriteAgents writes three agents for ambit. Their tool servers are the one at the address echo, with its tools
// declared as reads or as writes, and the program on stdio.
func WriteAgents(dir, echo, program string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	tools := func(class string) []any {
		return []any{
			map[string]any{"name": "echo", "side_effect_class": class},
			map[string]any{"name": "fill", "side_effect_class": class},
		}
	}
	remote := func(class string) map[string]any {
		return map[string]any{
			"alias": "echo", "transport": "http", "endpoint": echo, "version": "1.0.0", "tools": tools(class),
		}
	}
	pipe := map[string]any{
		"alias": "echo", "transport": "stdio", "command": program, "args": []string{"-stdio"}, "version": "1.0.0",
		"package_digest": "sha256:" + strings.Repeat("0", 64), "tools": tools("read"),
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

// OverHTTP returns a function that connects to an address.
func OverHTTP(address, bearer string) Connector {
	// Servers in Node.js close idle connections after five seconds. A call must not meet a connection that closes.
	transport := &http.Transport{MaxIdleConnsPerHost: middle.MaxIdle, IdleConnTimeout: 3 * time.Second}
	client := &http.Client{Transport: withKey{transport, bearer}}
	return func(ctx context.Context) (*mcp.ClientSession, error) {
		transport := &mcp.StreamableClientTransport{Endpoint: address, HTTPClient: client, DisableStandaloneSSE: true}
		return newClient().Connect(ctx, transport, older)
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

// OverStdio returns a function that starts a program and connects to it over stdio. If measured is true, the program
// is the process that is measured.
func (w *Way) OverStdio(r *Rig, measured bool, name string, args ...string) Connector {
	return func(ctx context.Context) (*mcp.ClientSession, error) {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Env = append(os.Environ(), "AMBIT_HOME="+filepath.Join(r.Dir, "home-"+w.Name))
		s, err := newClient().Connect(ctx, &mcp.CommandTransport{Command: cmd}, older)
		if err == nil && measured {
			w.Middle = cmd.Process
		}
		return s, err
	}
}

// used returns the CPU time of the middle process as the sum of its threads' times, because the time of a whole
// process has a resolution of only 10 ms. Threads of Go programs do not exit, so the sum is complete.
func (w *Way) used() (total time.Duration) {
	if w.Middle == nil {
		return 0
	}
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", w.Middle.Pid))
	for _, file := range threads {
		text, err := os.ReadFile(file)
		if f := strings.Fields(string(text)); err == nil && len(f) > 0 {
			ns, _ := strconv.ParseInt(f[0], 10, 64)
			total += time.Duration(ns)
		}
	}
	return total
}

// Peak returns the largest resident memory of the middle process in bytes since the last call of ResetPeak.
func (w *Way) Peak() int64 {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.Middle.Pid))
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	var kib int64
	_, _ = fmt.Sscan(rest, &kib)
	return kib << 10
}

// ResetPeak forgets the largest resident memory of the middle process.
func (w *Way) ResetPeak() error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", w.Middle.Pid), []byte("5"), 0)
}

// Memory returns the resident memory of the middle process in bytes.
func (w *Way) Memory() int64 {
	if w.Middle == nil {
		return 0
	}
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", w.Middle.Pid))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(statm))
	pages, _ := strconv.ParseInt(f[1], 10, 64)
	return pages * int64(os.Getpagesize())
}
