package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// peer is another program between MCP clients and tool servers.
type peer struct {
	name    string   // with its version, after install
	module  string   // the Go module, with the version
	program string   // the package of the module, or the script in the folder of the npm package
	command []string // the program and its first arguments, after install
	routes  []route
}

// route is one way through a peer. In its arguments and its configuration, {port} is the port to listen on, {config}
// the file with the configuration, {echo} the address of the tool server, {host} the same without its path, and
// {server} the program of the tool server.
type route struct {
	name       string // set if the peer has several ways with the same transports
	transports string
	args       []string
	config     string
	path, tool string
}

// peers lists the peers whose source was found. Peers without routes could not be built when this was written.
var peers = []*peer{
	{name: "tbxark/mcp-proxy", module: "github.com/TBXark/mcp-proxy@v0.43.2", program: ".", routes: []route{
		{transports: toHTTP, args: []string{"--config", "{config}"}, path: "/echo/mcp", config: `{
			"mcpProxy": {"baseURL": "http://127.0.0.1:{port}", "addr": "127.0.0.1:{port}",
				"name": "bench", "version": "1", "type": "streamable-http"},
			"mcpServers": {"echo": {"url": "{echo}", "transportType": "streamable-http"}}}`},
		{transports: toStdio, args: []string{"--config", "{config}"}, path: "/echo/mcp", config: `{
			"mcpProxy": {"baseURL": "http://127.0.0.1:{port}", "addr": "127.0.0.1:{port}",
				"name": "bench", "version": "1", "type": "streamable-http"},
			"mcpServers": {"echo": {"command": "{server}", "args": ["-stdio"]}}}`},
	}},
	{name: "gridctl", module: "github.com/gridctl/gridctl@v0.1.0-rc.3", program: "./cmd/gridctl", routes: []route{
		{
			transports: toHTTP, args: []string{"apply", "{config}", "-f", "-p", "{port}"}, path: "/mcp", tool: "echo__echo",
			config: `{"version": "1", "name": "bench-{port}",
				"mcp-servers": [{"name": "echo", "url": "{echo}", "transport": "http"}]}`,
		},
		{
			transports: toStdio, args: []string{"apply", "{config}", "-f", "-p", "{port}"}, path: "/mcp", tool: "echo__echo",
			config: `{"version": "1", "name": "bench-{port}",
				"mcp-servers": [{"name": "echo", "command": ["{server}", "-stdio"]}]}`,
		},
	}},
	{name: "toolhive", module: "github.com/stacklok/toolhive@v0.47.0", program: "./cmd/thv", routes: []route{
		{
			name: "vMCP", transports: toHTTP, path: "/mcp", tool: "echo_echo",
			args: []string{"vmcp", "serve", "--config", "{config}", "--port", "{port}"}, config: `{
			"name": "bench", "groupRef": "bench", "incomingAuth": {"type": "anonymous"},
			"outgoingAuth": {"source": "inline", "default": {"type": "unauthenticated"}},
			"backends": [{"name": "echo", "url": "{echo}", "transport": "streamable-http"}],
			"aggregation": {"conflictResolution": "prefix", "conflictResolutionConfig": {"prefixFormat": "{workload}_"}}}`,
		},
		{
			name: "proxy", transports: toHTTP, path: "/mcp",
			args: []string{"proxy", "bench", "--target-uri", "{host}", "--port", "{port}"},
		},
	}},
	{name: "supergateway", program: "dist/index.js", routes: []route{
		{transports: toStdio, path: "/mcp", args: []string{
			"--stdio", "{server} -stdio", "--outputTransport", "streamableHttp", "--stateful", "--port", "{port}",
		}},
	}},
	{name: "mcp-proxy", program: "dist/bin/mcp-proxy.mjs", routes: []route{
		{transports: toStdio, args: []string{"--port", "{port}", "--", "{server}", "-stdio"}, path: "/mcp"},
	}},
	{name: "mcp-remote", program: "dist/proxy.js", routes: []route{
		{transports: onStdio, args: []string{"{echo}", "--allow-http"}},
	}},
	{name: "docker/mcp-gateway", module: "github.com/docker/mcp-gateway@v0.43.3", program: "./cmd/docker-mcp"},
	{name: "mcpproxy-go", module: "github.com/smart-mcp-proxy/mcpproxy-go@v0.60.0", program: "./cmd/mcpproxy"},
	{name: "pipelock", module: "github.com/luckyPipewrench/pipelock@v2.3.0", program: "./cmd/pipelock"},
	{name: "muster", module: "github.com/giantswarm/muster@v1.7.8", program: "."},
}

// install installs all peers, and returns those that can be measured. It prints why others cannot.
func install(ctx context.Context) []*peer {
	var ready []*peer
	for _, p := range peers {
		var err error
		if p.module != "" {
			err = p.build(ctx)
		} else {
			err = p.fetch(ctx)
		}
		if err == nil && p.routes == nil {
			err = errors.New("it can be built here, but the benchmark does not know how to start it")
		}
		if err != nil {
			fmt.Printf("not measured: %s: %s\n", p.name, reason(err.Error()))
			continue
		}
		ready = append(ready, p)
	}
	return ready
}

// build builds a peer in the folder of its module, because go install needs the list of all versions of the module.
func (p *peer) build(ctx context.Context) error {
	_, version, _ := strings.Cut(p.module, "@")
	p.name += " " + version
	path, err := filepath.Abs(filepath.Join("bin/peers", strings.NewReplacer("/", "-", " ", "-").Replace(p.name)))
	if err != nil {
		return err
	}
	p.command = []string{path}
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	download := exec.CommandContext(ctx, "go", "mod", "download", "-json", p.module)
	download.Dir = os.TempDir()  // outside of this module
	text, _ := download.Output() // a failure is in the output
	var got struct{ Dir, Error string }
	if err := json.Unmarshal(text, &got); err != nil || got.Error != "" {
		return fmt.Errorf("%s%.0w", got.Error, err)
	}
	fmt.Fprintln(os.Stderr, "building", p.name)
	build := exec.CommandContext(ctx, "go", "build", "-C", got.Dir, "-mod=readonly", "-o", path, p.program)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	text, err = build.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s\n%w", text, err)
	}
	return nil
}

// fetch installs the npm packages of bench/peers once.
func (p *peer) fetch(ctx context.Context) error {
	dir := filepath.Join("bench/peers/node_modules", p.name)
	if _, err := os.Stat(dir); err != nil {
		npm := exec.CommandContext(ctx, "npm", "ci", "--prefix", "bench/peers", "--ignore-scripts", "--silent")
		text, err := npm.CombinedOutput()
		if err != nil {
			return fmt.Errorf("npm ci: %w: %s", err, text)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "package.json"))
	if err != nil {
		return err
	}
	var about struct{ Version string }
	if err := json.Unmarshal(text, &about); err != nil {
		return err
	}
	script, err := filepath.Abs(filepath.Join(dir, p.program))
	p.name, p.command = p.name+" "+about.Version+" (npm)", []string{"node", script}
	return err
}

var address = regexp.MustCompile(`reading https?://\S+: `)

// reason returns the line of an error that says what failed, without the addresses of servers.
func reason(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	line := lines[len(lines)-1]
	for _, l := range lines {
		if strings.Contains(l, ": reading ") {
			line = l
			break
		}
	}
	if i := strings.LastIndex(line, ".go:"); i >= 0 { // the place of an import
		_, line, _ = strings.Cut(line[i:], ": ")
	}
	return address.ReplaceAllString(strings.TrimSpace(line), "")
}
