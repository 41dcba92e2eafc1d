//go:build linux

// Package faults makes the disk, the store, the tool server and the database fail while ambit works. No call may be
// lost or repeated, and every caller must learn the outcome of its call. The tests of package gateway kill ambit at
// every stage of a call.
package faults

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/cli"
	"github.com/ambit-run/ambit/internal/test/output"
)

const (
	envAmbit  = "AMBIT_TEST_BE_AMBIT"
	effector  = "effect-tool-server"
	neighbour = "neighbour-of-the-store"
	// patience is the longest time that a test waits for an expected event.
	patience = 60 * time.Second
)

func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == effector {
		serveEffects(os.Args[2], os.Args[3])
		return
	}
	if len(os.Args) > 2 && os.Args[1] == neighbour {
		if err := keepLocked(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if os.Getenv(envAmbit) != "" {
		os.Exit(cli.Main())
	}
	os.Exit(m.Run())
}

// serveEffects is a tool server. Each call to its tool pay adds a line to the file effects. The server answers
// when the test writes a byte to gate, which is a named pipe. If gate is "dies", the server exits instead. If
// gate is "-", the server answers at once.
func serveEffects(effects, gate string) {
	var opened *os.File
	if filepath.IsAbs(gate) {
		var err error
		if opened, err = os.OpenFile(gate, os.O_RDWR, 0); err != nil { // open the pipe for writing too, so that a read never returns the end of the file
			return
		}
	}
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct{ Name string }
		}
		if json.Unmarshal(line, &m) != nil || m.ID == nil {
			continue
		}
		reply := map[string]any{"jsonrpc": "2.0", "id": m.ID}
		switch m.Method + m.Params.Name {
		case "tools/callpay":
			f, err := os.OpenFile(effects, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			if err != nil {
				return
			}
			fmt.Fprintln(f, "paid")
			f.Close()
			if gate == "dies" {
				return
			}
			if opened != nil {
				if _, err := opened.Read(make([]byte, 1)); err != nil {
					return
				}
			}
			reply["result"] = map[string]any{"content": []any{map[string]any{"type": "text", "text": "paid"}}}
		default:
			introduce(m.Method, reply)
		}
		out, err := json.Marshal(reply)
		if err != nil {
			return
		}
		fmt.Printf("%s\n", out)
	}
}

// introduce answers the messages that come before the first call, and calls to the tool look.
func introduce(method string, reply map[string]any) {
	switch method {
	case "initialize":
		reply["result"] = map[string]any{
			"protocolVersion": "2025-11-25", "capabilities": map[string]any{"tools": map[string]any{}},
			"serverInfo": map[string]any{"name": "effects", "version": "1"},
		}
	case "tools/list":
		var tools []any
		for _, name := range []string{"pay", "look"} {
			tools = append(tools, map[string]any{"name": name, "inputSchema": map[string]any{"type": "object"}})
		}
		reply["result"] = map[string]any{"tools": tools}
	case "tools/call":
		reply["result"] = map[string]any{"content": []any{map[string]any{"type": "text", "text": "seen"}}}
	default:
		reply["error"] = map[string]any{"code": -32601, "message": "no such method"}
	}
}

// fixture is an AMBIT_HOME with one agent. The agent has two tools: pay has an effect, and look only reads.
type fixture struct {
	t       *testing.T
	dir     string
	agent   string
	effects string
	gate    string
	binary  string // the path of the ambit binary to run
	env     []string
}

// newFixture returns a fixture. The parameter gate controls the answers of the server. The value "-" means
// answers without delay. The value "dies" means that the server exits during a call. If gate is empty, a
// named pipe holds answers back until [fixture.open] is called.
func newFixture(t *testing.T, gate string, timeoutMS int) *fixture {
	t.Helper()
	dir := t.TempDir()
	h := &fixture{t: t, dir: dir, effects: filepath.Join(dir, "effects"), gate: gate, agent: filepath.Join(dir, "agents", "till.json"), binary: os.Args[0]}
	if err := os.WriteFile(h.effects, nil, 0o600); err != nil { // only the server itself can see a file that it creates
		t.Fatal(err)
	}
	if gate == "" {
		h.gate = filepath.Join(dir, "gate")
		if err := syscall.Mkfifo(h.gate, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h.env = []string{envAmbit + "=1", "HOME=" + dir, "AMBIT_HOME=" + h.home(), "PATH=" + os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0"}
	h.declare(map[string]any{
		"transport": "stdio", "command": os.Args[0], "args": []string{effector, h.effects, h.gate}, "package_digest": "sha256:" + strings.Repeat("0", 64),
	}, timeoutMS)
	return h
}

// declare writes the agent's manifest with the given server.
func (h *fixture) declare(server map[string]any, timeoutMS int) {
	h.t.Helper()
	pay, look := map[string]any{"name": "pay", "side_effect_class": "write"}, map[string]any{"name": "look", "side_effect_class": "read"}
	if timeoutMS > 0 {
		pay["timeout_ms"], look["timeout_ms"] = timeoutMS, timeoutMS
	}
	server["alias"], server["version"], server["tools"] = "till", "1.0.0", []any{pay, look}
	doc, err := json.Marshal(map[string]any{
		"schema_version": 1, "agent": "matrix://agent/till", "allowed_side_effects": []string{"read", "write"}, "servers": []any{server},
	})
	if err == nil {
		err = os.MkdirAll(filepath.Dir(h.agent), 0o700)
	}
	if err == nil {
		err = os.WriteFile(h.agent, doc, 0o600)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *fixture) home() string { return filepath.Join(h.dir, "home") }

// done returns the number of effects so far.
func (h *fixture) done() int {
	text, err := os.ReadFile(h.effects)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		h.t.Fatal(err)
	}
	return bytes.Count(text, []byte("\n"))
}

// open lets the server send one answer.
func (h *fixture) open() {
	h.t.Helper()
	f, err := os.OpenFile(h.gate, os.O_WRONLY, 0)
	if err != nil {
		h.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write([]byte{1}); err != nil {
		h.t.Fatal(err)
	}
}

// until waits until the function happened returns true.
func (h *fixture) until(what string, happened func() bool) {
	h.t.Helper()
	for end := time.Now().Add(patience); !happened(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			h.t.Fatalf("timed out waiting until %s", what)
		}
	}
}

// ambit runs a command and returns its output and exit code.
func (h *fixture) ambit(args ...string) (stdout, stderr string, code int) {
	h.t.Helper()
	return h.run(exec.CommandContext(h.t.Context(), h.binary, args...))
}

func (h *fixture) run(c *exec.Cmd) (stdout, stderr string, code int) {
	h.t.Helper()
	var out, errs bytes.Buffer
	c.Env, c.Dir, c.Stdout, c.Stderr = h.env, h.dir, &out, &errs
	err := c.Run()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		code = failed.ExitCode()
	} else if err != nil {
		h.t.Fatal(err)
	}
	return out.String(), errs.String(), code
}

// whole checks that the journal passes verification, and returns the number of its records.
func (h *fixture) whole(args ...string) int {
	h.t.Helper()
	stdout, stderr, _ := h.ambit(append([]string{"journal", "verify", "--json"}, args...)...)
	var r struct {
		OK      bool
		Records int
	}
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || !r.OK {
		h.t.Fatalf("the journal does not verify: %s %s", stdout, stderr)
	}
	return r.Records
}

// decisions returns the journal's decisions about calls, oldest first.
func (h *fixture) decisions(args ...string) (list []string) {
	h.t.Helper()
	stdout, stderr, code := h.ambit(append([]string{"journal", "show", "--json"}, args...)...)
	var doc struct {
		Records []struct{ Decision, Stage string }
	}
	if err := json.Unmarshal([]byte(stdout), &doc); err != nil || code != 0 {
		h.t.Fatalf("ambit journal show failed: %s %s", stdout, stderr)
	}
	for _, r := range doc.Records {
		if r.Decision != "allow" || r.Stage != "approve" { // approvals are not calls
			list = append([]string{r.Decision}, list...)
		}
	}
	return list
}

type daemon struct {
	h        *fixture
	url, key string
	pid      int
	printed  *output.Buffer
}

// seenBy returns the path of the root directory that a process sees. The process may have its own disks.
// If the process is bwrap, seenBy returns the root directory of its child process.
func seenBy(pid int) string {
	if children, err := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", pid)); err == nil {
		if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil && string(comm) == "bwrap\n" && len(children) > 0 {
			return fmt.Sprintf("/proc/%s/root", strings.Fields(string(children))[0])
		}
	}
	return fmt.Sprintf("/proc/%d/root", pid)
}

// serving returns the command line that serves the agent.
func (h *fixture) serving(args ...string) []string {
	return append([]string{h.binary, "serve", "--json", "--listen", "127.0.0.1:0", "--agents", filepath.Dir(h.agent)}, args...)
}

// serve starts a daemon that stops when the test ends.
func (h *fixture) serve(args ...string) *daemon {
	h.t.Helper()
	return h.start(h.serving(args...))
}

// start starts a daemon with a command line.
func (h *fixture) start(argv []string) *daemon {
	h.t.Helper()
	cmd := exec.CommandContext(h.t.Context(), argv[0], argv[1:]...)
	printed := &output.Buffer{}
	cmd.Env, cmd.Dir, cmd.Stderr = h.env, h.dir, printed
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		timer := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		timer.Stop()
		if h.t.Failed() {
			h.t.Logf("the daemon printed: %s", printed.String())
		}
	})
	var ready struct {
		URL     string
		KeyFile string `json:"key_file"`
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil || json.Unmarshal(line, &ready) != nil {
		h.t.Fatalf("the daemon printed %q, %v: %s", line, err, printed.String())
	}
	key, err := os.ReadFile(seenBy(cmd.Process.Pid) + ready.KeyFile)
	if err != nil {
		h.t.Fatal(err)
	}
	return &daemon{h, ready.URL, strings.TrimSpace(string(key)), cmd.Process.Pid, printed}
}

// answer is the outcome of a call.
type answer struct {
	status int
	text   string
	Error  struct{ Code, Message, Hint, Effect string }
}

// pay calls a tool that has a side effect. It is safe for concurrent use.
func (d *daemon) pay() (answer, error) { return d.call("pay") }

func (d *daemon) call(tool string) (answer, error) {
	return d.send("POST", "/api/v1/agents/till/call", `{"tool":"`+tool+`","arguments":{}}`)
}

func (d *daemon) send(method, path, body string) (a answer, err error) {
	req, err := http.NewRequestWithContext(d.h.t.Context(), method, d.url+path, strings.NewReader(body))
	if err != nil {
		return a, err
	}
	req.Header.Set("Authorization", "Bearer "+d.key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return a, err
	}
	a.status, a.text = resp.StatusCode, string(text)
	return a, json.Unmarshal(text, &a)
}
