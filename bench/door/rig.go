package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// way is one path from the client to the tool.
type way struct {
	name, beside string
	tool         string
	shared       bool // there is one client only
	connect      func(context.Context) (*mcp.ClientSession, error)
	middle       *os.Process // what is measured; nil if there is nothing between
}

// rig is everything that runs.
type rig struct {
	ways  []*way
	procs []*exec.Cmd
	dir   string
	home  string // of the next process
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

// keep leaves out ways that were not asked for.
func (r *rig) keep(only string) {
	wanted := map[string]bool{}
	for _, w := range r.ways {
		if strings.Contains(w.name, only) {
			wanted[w.name], wanted[w.beside] = true, true
		}
	}
	r.ways = slices.DeleteFunc(r.ways, func(w *way) bool { return !wanted[w.name] })
}

// start runs a process and returns the first line it prints.
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
		said, _ := os.ReadFile(log.Name())
		return nil, "", fmt.Errorf("%s did not start: %w: %.500s", name, err, said)
	}
	return cmd.Process, strings.TrimSpace(line), nil
}

func build(ctx context.Context, ambit, before string) (*rig, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "door-")
	if err != nil {
		return nil, err
	}
	r := &rig{dir: dir, home: filepath.Join(dir, "home")}
	_, echo, err := r.start(ctx, self, "-role", "echo")
	if err != nil {
		return r, err
	}
	proxy, proxied, err := r.start(ctx, self, "-role", "proxy", "-target", echo)
	if err != nil {
		return r, err
	}
	agents := filepath.Join(dir, "agents")
	if err := writeAgents(agents, echo, self); err != nil {
		return r, err
	}
	daemon, url, bearer, err := r.serve(ctx, ambit, agents)
	if err != nil {
		return r, err
	}
	if r.home, err = writeRails(dir); err != nil {
		return r, err
	}
	railed, railedURL, railedBearer, err := r.serve(ctx, ambit, agents)
	if err != nil {
		return r, err
	}
	const floor = "ReverseProxy"
	r.ways = []*way{
		{name: "direct", beside: floor, tool: "echo", connect: overHTTP(echo, "")},
		{name: floor, beside: floor, tool: "echo", connect: overHTTP(proxied, ""), middle: proxy},
		{name: "ambit, HTTP to HTTP, read", beside: floor, tool: "echo", connect: overHTTP(url+"/mcp/reads", bearer), middle: daemon},
		{name: "ambit, HTTP to HTTP, read, every rail", beside: floor, tool: "echo", connect: overHTTP(railedURL+"/mcp/reads", railedBearer), middle: railed},
		{name: "ambit, HTTP to HTTP, write", beside: floor, tool: "echo", connect: overHTTP(url+"/mcp/writes", bearer), middle: daemon},
		{name: "ambit, HTTP to stdio", beside: floor, tool: "echo", connect: overHTTP(url+"/mcp/pipe", bearer), middle: daemon},
	}
	if before != "" {
		r.home = filepath.Join(dir, "home-before")
		older, olderURL, olderBearer, err := r.serve(ctx, before, agents)
		if err != nil {
			return r, err
		}
		for _, class := range []string{"read", "write"} {
			r.ways = append(r.ways, &way{name: "before, HTTP to HTTP, " + class, beside: floor, tool: "echo", connect: overHTTP(olderURL+"/mcp/"+class+"s", olderBearer), middle: older})
		}
	}
	stdio := &way{name: "direct, stdio", beside: "direct, stdio", tool: "echo", shared: true}
	stdio.connect = stdio.overStdio(r, false, self, "-role", "echo-stdio")
	through := &way{name: "ambit, stdio to stdio", beside: "direct, stdio", tool: "echo", shared: true}
	through.connect = through.overStdio(r, true, ambit, "run", filepath.Join(agents, "pipe.json"))
	r.ways = append(r.ways, stdio, through)
	return r, nil
}

// serve starts a daemon in the home that is next.
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
		return nil, "", "", fmt.Errorf("ambit said %q: %w", line, err)
	}
	secret, err := os.ReadFile(ready.KeyFile)
	return p, ready.URL, strings.TrimSpace(string(secret)), err
}

// writeRails makes a home with every rail that an operator can set for all agents,
// and with rules: nothing of what is sent here meets one, and all of it is held
// against each.
func writeRails(dir string) (home string, err error) {
	home = filepath.Join(dir, "home-rails")
	err = os.MkdirAll(home, 0o700)
	for name, text := range map[string]string{
		"guardrails.json": `{"input": {"max_length": 100000, "deny_patterns": ["drop table", "rm -rf"], "deny_defaults": true, "pii_redaction": ["email", "phone", "credit_card", "iban"]}, "output": {"on_leak": "block"}}`,
		"policy.cedar":    `forbid (principal, action, resource) when { context.arguments has path && context.arguments.path like "/etc/*" };`,
	} {
		if err == nil {
			err = os.WriteFile(filepath.Join(home, name), []byte(text), 0o600)
		}
	}
	return home, err
}

// writeAgents writes one agent for each way through the daemon.
func writeAgents(dir, echo, self string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	remote := func(class string) map[string]any {
		return map[string]any{
			"alias": "echo", "transport": "http", "endpoint": echo, "version": "1.0.0",
			"tools": []any{map[string]any{"name": "echo", "side_effect_class": class}},
		}
	}
	pipe := map[string]any{
		"alias": "echo", "transport": "stdio", "command": self, "args": []string{"-role", "echo-stdio"}, "version": "1.0.0",
		"package_digest": "sha256:" + strings.Repeat("0", 64),
		"tools":          []any{map[string]any{"name": "echo", "side_effect_class": "read"}},
	}
	for name, server := range map[string]any{"reads": remote("read"), "writes": remote("write"), "pipe": pipe} {
		text, err := json.Marshal(map[string]any{
			"schema_version": 1, "agent": "matrix://agent/" + name, "description": "Says what it is told.",
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
	client := &http.Client{Transport: withKey{&http.Transport{MaxIdleConnsPerHost: together * 2}, bearer}}
	return func(ctx context.Context) (*mcp.ClientSession, error) {
		return newClient().Connect(ctx, &mcp.StreamableClientTransport{Endpoint: address, HTTPClient: client, DisableStandaloneSSE: true}, older)
	}
}

// withKey adds the API key.
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

// used is the processor time that the middle has used.
func (w *way) used() time.Duration {
	if w.middle == nil {
		return 0
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", w.middle.Pid))
	if err != nil {
		return 0
	}
	// The name in parentheses may hold spaces; utime and stime are the 12th and
	// 13th fields after it, in ticks of 10 ms.
	_, rest, _ := strings.Cut(string(stat), ") ")
	f := strings.Fields(rest)
	user, _ := strconv.ParseInt(f[11], 10, 64)
	system, _ := strconv.ParseInt(f[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond
}

// memory is the middle's resident memory.
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

type echoArgs struct {
	Text string `json:"text"`
}

func echoServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "echo", Version: "1.0.0"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "echo", Description: "Says what it is told."}, func(_ context.Context, _ *mcp.CallToolRequest, in echoArgs) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.Text}}}, nil, nil
	})
	return s
}

func serveEcho() error {
	s := echoServer()
	return listen(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{JSONResponse: true}), "/mcp")
}

func serveProxy(target string) error {
	to, err := url.Parse(target)
	if err != nil {
		return err
	}
	to.Path = ""
	transport := &http.Transport{MaxIdleConnsPerHost: together * 2}
	return listen(&httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			// Without this, larger answers break off now and then.
			if body, err := io.ReadAll(r.In.Body); err == nil {
				r.Out.Body = io.NopCloser(bytes.NewReader(body))
			}
		},
	}, "/mcp")
}

// listen serves on a free port and prints the address.
func listen(h http.Handler, path string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("http://%s%s\n", l.Addr(), path)
	return http.Serve(l, h)
}
