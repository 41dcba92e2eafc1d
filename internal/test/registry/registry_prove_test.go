//go:build prove

// Package registry_test runs GPARS agents against the official MCP registry, with a real PostgreSQL and real packages.
package registry_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/cli"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

const namespace = "io.modelcontextprotocol.anonymous"

// official is a running registry.
type official struct {
	t   *testing.T
	url string
	cmd *exec.Cmd
}

// start builds the registry and starts it with a new database.
func start(t *testing.T) *official {
	t.Helper()
	program := filepath.Join(t.TempDir(), "registry")
	build := exec.Command("go", "build", "-C", "tool", "-o", program, "github.com/modelcontextprotocol/registry/cmd/registry")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the registry: %v\n%s", err, out)
	}
	database, err := statetest.Database(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	var key [32]byte
	rand.Read(key[:])
	r := &official{t: t, url: "http://" + address, cmd: exec.Command(program)}
	var log bytes.Buffer
	r.cmd.Stdout, r.cmd.Stderr = &log, &log
	r.cmd.Env = append(os.Environ(), "MCP_REGISTRY_SERVER_ADDRESS="+address, "MCP_REGISTRY_DATABASE_URL="+database,
		"MCP_REGISTRY_JWT_PRIVATE_KEY="+hex.EncodeToString(key[:]), "MCP_REGISTRY_ENABLE_ANONYMOUS_AUTH=true", "MCP_REGISTRY_ENABLE_REGISTRY_VALIDATION=false", "MCP_REGISTRY_SEED_FROM=")
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.stop()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		resp, err := http.Get(r.url + "/v0.1/health")
		if err == nil {
			resp.Body.Close()
			return r
		}
		if time.Now().After(deadline) {
			t.Fatalf("the registry did not start within a minute: %v\n%s", err, log.String())
		}
	}
}

func (r *official) stop() {
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait()
}

func (r *official) send(method, path, token string, body, into any) {
	r.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		r.t.Fatal(err)
	}
	req, err := http.NewRequest(method, r.url+path, bytes.NewReader(text))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		r.t.Fatalf("%s %s: %d %s %v", method, path, resp.StatusCode, got, err)
	}
	if into != nil {
		if err := json.Unmarshal(got, into); err != nil {
			r.t.Fatalf("%s: %v", got, err)
		}
	}
}

// publish publishes versions of one server.
func (r *official) publish(name string, versions ...[2]string) {
	r.t.Helper()
	var auth struct {
		Token string `json:"registry_token"`
	}
	r.send("POST", "/v0.1/auth/none", "", struct{}{}, &auth)
	full := namespace + "/" + name
	for _, v := range versions {
		r.send("POST", "/v0.1/publish", auth.Token, map[string]any{
			"$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json", "name": full, "description": "Remembers.", "version": v[0],
			"packages": []any{map[string]any{
				"registryType": "npm", "identifier": "@modelcontextprotocol/server-memory", "version": "2026.8.31", "transport": map[string]any{"type": "stdio"},
			}},
		}, nil)
		if v[1] != "active" {
			r.send("PATCH", "/v0.1/servers/"+url.PathEscape(full)+"/versions/"+v[0]+"/status", auth.Token, map[string]any{"status": v[1], "statusMessage": "test"}, nil)
		}
	}
}

// ambit runs a command with --json, checks its exit code and decodes its output.
func ambit(t *testing.T, want int, into any, args ...string) {
	t.Helper()
	var out, log bytes.Buffer
	if code := cli.Run(t.Context(), append(args, "--json"), strings.NewReader(""), &out, &log); code != want {
		t.Fatalf("ambit %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), code, want, out.String(), log.String())
	}
	if into != nil {
		if err := json.Unmarshal(out.Bytes(), into); err != nil {
			t.Fatalf("%s: %v", out.String(), err)
		}
	}
}

func place(t *testing.T, name, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// newHome returns a new AMBIT_HOME. The packages in it are read-only, so they are made writable before the test
// removes them.
func newHome(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "home")
	t.Setenv("AMBIT_HOME", dir)
	t.Cleanup(func() {
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, _ error) error {
			if d != nil && d.IsDir() {
				return os.Chmod(path, 0o700)
			}
			return nil
		})
	})
	return dir
}

type shown struct {
	Version, From string
	Package       struct{ Kind, Name, Version string }
}

func TestOfficialRegistry(t *testing.T) {
	home := newHome(t)
	r := start(t)
	r.publish("notes", [2]string{"1.9.0", "active"}, [2]string{"1.10.0", "active"}, [2]string{"1.2.0", "active"}, [2]string{"2.0.0", "deprecated"},
		[2]string{"1.11.0", "deleted"}, [2]string{"nightly-build", "active"}, [2]string{"3.0.0-beta.1", "active"})
	place(t, filepath.Join(home, "config.toml"), fmt.Sprintf("[registry.\"registry.openmcp.org\"]\nurl = %q\nnamespace = %q\n\n"+
		"[scopes.\"registry.openmcp.org/notes\"]\nread = [\"read_graph\", \"search_nodes\", \"open_nodes\"]\n", r.url, namespace))
	for constraint, want := range map[string]string{
		"*": "1.10.0", ">=1.0.0": "1.10.0", "^1.2.0 <1.10": "1.9.0", "1.2.x || 7": "1.2.0", ">=3.0.0-alpha": "3.0.0-beta.1", "2.x": "", "1.11.0": "",
	} {
		if want == "" {
			ambit(t, 1, nil, "catalog", "show", "registry.openmcp.org/notes", "--version", constraint)
			continue
		}
		var got shown
		if ambit(t, 0, &got, "catalog", "show", "registry.openmcp.org/notes", "--version", constraint); got.Version != want || got.From != "registry" {
			t.Errorf("the constraint %s selects %+v, want %s", constraint, got, want)
		}
	}
	var list struct{ Servers []struct{ Name string } }
	if ambit(t, 0, &list, "catalog", "list", "--registry", "registry.openmcp.org", "--search", "notes"); len(list.Servers) != 1 {
		t.Errorf("searching the registry: got %v, want one server", list.Servers)
	}
	// Servers that the registry does not know come from the catalogue.
	var got shown
	if ambit(t, 0, &got, "catalog", "show", "registry.openmcp.org/bash"); got.From != "catalogue" {
		t.Errorf("the server bash comes from %s, want the catalogue", got.From)
	}

	// An agent requires the server. Its calls are refused until the scope is granted and the server is locked.
	file := place(t, filepath.Join(t.TempDir(), "keeper.json"), `{"id": "org:example/agent:keeper-v1", "required_mcp_servers": [
		{"server_id": "registry.openmcp.org/notes", "version": "^1.0.0", "permission_scopes": ["read"]}]}`)
	ambit(t, 1, nil, "call", file, "read_graph")
	ambit(t, 0, nil, "grant", "keeper", "--server", "registry.openmcp.org/notes", "--scope", "read")
	ambit(t, 1, nil, "call", file, "read_graph") // the tool is not known yet
	var locked struct {
		Servers []struct{ Alias, Version string }
	}
	if ambit(t, 0, &locked, "lock", file); len(locked.Servers) != 1 || locked.Servers[0].Version != "1.10.0" {
		t.Errorf("the lock contains %+v, want version 1.10.0", locked)
	}
	ambit(t, 0, nil, "call", file, "read_graph")
	ambit(t, 1, nil, "call", file, "create_entities", "--input", `{"entities":[]}`)

	// A newer version is published, but the locked version is still used.
	r.publish("notes", [2]string{"1.20.0", "active"})
	if err := os.RemoveAll(filepath.Join(home, "registry", "cache")); err != nil {
		t.Fatal(err)
	}
	type inspected struct {
		Required []struct{ Resolved, From string } `json:"required_servers"`
	}
	var in inspected
	if ambit(t, 0, &in, "inspect", file); in.Required[0].Resolved != "1.10.0" || in.Required[0].From != "lock" {
		t.Errorf("with a lock: got %+v", in)
	}
	if ambit(t, 0, &locked, "lock", "--update", file); locked.Servers[0].Version != "1.20.0" {
		t.Errorf("after the update, the lock contains %+v", locked)
	}
	// Without the registry, a server comes from the lock or from the cache. Otherwise it is unavailable.
	r.stop()
	ambit(t, 0, nil, "call", file, "read_graph")
	if ambit(t, 0, &got, "catalog", "show", "registry.openmcp.org/notes", "--version", "^1"); got.Version != "1.20.0" {
		t.Errorf("offline: got %+v", got)
	}
	ambit(t, 3, nil, "catalog", "show", "registry.openmcp.org/other")
}

// client is an MCP client of an agent in this process.
type client struct {
	t    *testing.T
	in   io.WriteCloser
	out  *bufio.Scanner
	next int
}

type answer struct {
	ID     int             `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code int `json:"code"`
		Data struct {
			Code string `json:"gpars_code"`
		} `json:"data"`
	} `json:"error"`
}

func run(t *testing.T, file string) *client {
	t.Helper()
	in, toIn := io.Pipe()
	fromOut, out := io.Pipe()
	done := make(chan int, 1)
	var log bytes.Buffer
	go func() { done <- cli.Run(context.WithoutCancel(t.Context()), []string{"run", file}, in, out, &log) }()
	c := &client{t: t, in: toIn, out: bufio.NewScanner(fromOut)}
	c.out.Buffer(nil, 16<<20)
	t.Cleanup(func() {
		toIn.Close()
		go func() { _, _ = io.Copy(io.Discard, fromOut) }()
		if code := <-done; code != 0 || t.Failed() {
			t.Logf("ambit run exited with %d\n%s", code, log.String())
		}
	})
	c.wait(c.ask("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`))
	return c
}

func (c *client) ask(method, params string) int {
	c.t.Helper()
	c.next++
	if _, err := fmt.Fprintf(c.in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", c.next, method, params); err != nil {
		c.t.Fatal(err)
	}
	return c.next
}

func (c *client) wait(id int) answer {
	c.t.Helper()
	for c.out.Scan() {
		var a answer
		if err := json.Unmarshal(c.out.Bytes(), &a); err != nil {
			c.t.Fatal(err)
		}
		if a.ID == id {
			return a
		}
	}
	c.t.Fatalf("the agent closed its output: %v", c.out.Err())
	return answer{}
}

func (c *client) call(tool, arguments string) answer {
	c.t.Helper()
	return c.wait(c.ask("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, arguments)))
}

// TestServerIsKilled kills a real server between calls. Calls to this server are refused until it is restarted,
// and calls to the other server succeed.
func TestServerIsKilled(t *testing.T) {
	newHome(t)
	file := place(t, filepath.Join(t.TempDir(), "reader.json"), `{"id": "org:example/agent:reader-v1", "required_mcp_servers": [
		{"server_id": "registry.openmcp.org/filesystem", "version": ">=1.0.0", "permission_scopes": ["read"]},
		{"server_id": "registry.openmcp.org/memory", "version": ">=1.0.0", "permission_scopes": ["read"]}]}`)
	ambit(t, 0, nil, "grant", "reader", "--server", "registry.openmcp.org/filesystem", "--scope", "read")
	ambit(t, 0, nil, "grant", "reader", "--server", "registry.openmcp.org/memory", "--scope", "read")
	ambit(t, 0, nil, "lock", file)
	c := run(t, file)
	if a := c.call("list_allowed_directories", `{}`); a.Error != nil {
		t.Fatalf("the first call failed: %+v", a.Error)
	}
	if a := c.call("write_file", `{"path":"x","content":"y"}`); a.Error == nil || a.Error.Code != -32001 {
		t.Errorf("calling a tool that is not granted: got %s %+v", a.Result, a.Error)
	}
	for round := range 3 {
		began := time.Now()
		kill(t, "server-filesystem")
		refused := 0
		for {
			a := c.call("list_allowed_directories", `{}`)
			if a.Error == nil {
				break
			}
			if refused++; a.Error.Code != -32002 || a.Error.Data.Code != "SERVER_UNAVAILABLE" {
				t.Fatalf("got error %+v, want SERVER_UNAVAILABLE", a.Error)
			}
			if b := c.call("read_graph", `{}`); b.Error != nil {
				t.Errorf("a call of the other server failed: %+v", b.Error)
			}
			if time.Since(began) > 2*time.Minute {
				t.Fatal("the server was not restarted within 2 minutes")
			}
		}
		t.Logf("round %d: %d calls were refused; the server was restarted after %v", round, refused, time.Since(began).Round(time.Millisecond))
	}
}

// TestServerIsKilledInFlight kills a real server during a call. That call and the next are refused, and calls succeed
// after the restart.
func TestServerIsKilledInFlight(t *testing.T) {
	newHome(t)
	const id, slow = "example.com/everything", "trigger-long-running-operation"
	ambit(t, 0, nil, "catalog", "add", id, "npm:@modelcontextprotocol/server-everything@2026.8.31", "--effect", slow+"=read", "--effect", "echo=read", "--scope", "use=echo,"+slow)
	file := place(t, filepath.Join(t.TempDir(), "worker.json"), fmt.Sprintf(
		`{"id": "org:example/agent:worker-v1", "required_mcp_servers": [{"server_id": %q, "version": "*", "permission_scopes": ["use"]}]}`, id))
	ambit(t, 0, nil, "grant", "worker", "--server", id, "--scope", "use")
	ambit(t, 0, nil, "lock", file)
	c := run(t, file)
	if a := c.call("echo", `{"message":"hello"}`); a.Error != nil || !strings.Contains(string(a.Result), "hello") {
		t.Fatalf("the first call returned %s %+v", a.Result, a.Error)
	}
	unavailable := func(what string, a answer) {
		t.Helper()
		if a.Error == nil || a.Error.Code != -32002 || a.Error.Data.Code != "SERVER_UNAVAILABLE" {
			t.Fatalf("%s: got %s %+v, want SERVER_UNAVAILABLE", what, a.Result, a.Error)
		}
	}
	for round := range 3 {
		inFlight := c.ask("tools/call", fmt.Sprintf(`{"name":%q,"arguments":{"duration":60,"steps":600},"_meta":{"progressToken":"p%d"}}`, slow, round))
		for !strings.Contains(c.out.Text(), "notifications/progress") { // wait until the server works on the call
			if !c.out.Scan() {
				t.Fatalf("the agent closed its output: %v", c.out.Err())
			}
		}
		killed := time.Now()
		kill(t, "server-everything")
		unavailable("the call in flight", c.wait(inFlight))
		refused := 0
		for {
			a := c.call("echo", `{"message":"again"}`)
			if a.Error == nil {
				break
			}
			unavailable("the next call", a)
			if refused++; time.Since(killed) > 2*time.Minute {
				t.Fatal("the server was not restarted within 2 minutes")
			}
		}
		t.Logf("round %d: the call in flight and %d more were refused; the server was restarted after %v", round, refused, time.Since(killed).Round(time.Millisecond))
	}
}

// waitUntil polls until the condition is true.
func waitUntil(t *testing.T, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("timed out")
		}
	}
}

// kill kills the Node.js processes below this process that have the given text in their command
// line.
func kill(t *testing.T, text string) {
	t.Helper()
	below := []int{os.Getpid()}
	killed := 0
	for i := 0; i < len(below); i++ {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", below[i]))
		for _, file := range threads {
			children, _ := os.ReadFile(file)
			for _, word := range strings.Fields(string(children)) {
				pid, err := strconv.Atoi(word)
				if err != nil || slices.Contains(below, pid) {
					continue
				}
				below = append(below, pid)
				line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
				if name, _, _ := strings.Cut(string(line), "\x00"); strings.HasSuffix(name, "node") && strings.Contains(string(line), text) {
					if err := syscall.Kill(pid, syscall.SIGKILL); err == nil {
						killed++
					}
				}
			}
		}
	}
	if killed == 0 {
		t.Fatalf("no process of %s is running", text)
	}
}
