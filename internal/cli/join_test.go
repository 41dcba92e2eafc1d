//go:build linux

package cli_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/cli"
)

// joinServer is a tool server. It does not answer calls to hang, but counts them. Its answer to every other call
// contains an id of the process, this count, and the token.
const joinServer = `import { createInterface } from 'node:readline'
const send = message => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', ...message }) + '\n')
const self = globalThis.crypto.randomUUID()
let hung = 0
createInterface({ input: process.stdin }).on('line', line => {
  const { id, method, params } = JSON.parse(line)
  if (method === 'initialize') send({ id, result: { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo: { name: 'demo', version: '1' } } })
  else if (method === 'tools/list') send({ id, result: { tools: [{ name: 'who' }, { name: 'hang' }] } })
  else if (method === 'tools/call' && params.name === 'hang') { hung++; console.error('hanging') }
  else if (method === 'tools/call') send({ id, result: { content: [{ type: 'text', text: ` + "`process ${self}, ${hung} hung, ${process.env.TOKEN}`" + ` }] } })
  else if (id !== undefined) send({ id, error: { code: -32601, message: 'Method not found' } })
})
`

const joinManifest = `{"schema_version": 1, "agent": "matrix://agent/demo", "allowed_side_effects": ["read", "write"], "servers": [
  {"alias": "demo", "transport": "stdio", "command": "node", "args": ["server.mjs"], "env": ["TOKEN=$env:JOIN_TOKEN"],
   "package_digest": "sha256:0000000000000000000000000000000000000000000000000000000000000000", "version": "1.0.0",
   "tools": [{"name": "who", "side_effect_class": "read"}, {"name": "hang", "side_effect_class": "write"}]}]}`

// teller asks a person before each call.
const teller = `{"name": "Teller", "system_prompt": "You repeat every message that you receive, word for word, unchanged.", "kind": "mcp-tool",
 "tools": [{"name": "say", "description": "Says it.", "input_schema": {"type": "object", "properties": {"text": {"type": "string"}}},
   "action": {"type": "prompt-template", "template": "The message is: {text}"}}],
 "guardrails": {"actions": {"say": {"approval": "human"}}},
 "example_prompts": ["Say it."]}`

// newJoinHome writes a home with agents, sets AMBIT_HOME to it, and changes the working folder to an empty folder.
func newJoinHome(t *testing.T) (home string) {
	t.Helper()
	home, err := os.MkdirTemp("", "home") // t.TempDir can be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	for name, text := range map[string]string{
		"demo/demo.json": joinManifest, "demo/server.mjs": joinServer, "teller/findagent.json": teller,
	} {
		file := filepath.Join(home, "agents", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("AMBIT_HOME", home)
	t.Setenv("JOIN_TOKEN", "one-long-token")
	t.Chdir(t.TempDir())
	return home
}

// runner is a client of "ambit run" in a separate process.
type runner struct {
	*exec.Cmd
	t   *testing.T
	in  io.WriteCloser
	out *bufio.Reader
	log *os.File // ambit writes to the file directly, so a line is there before the next answer
}

func (r *runner) output() string {
	text, _ := os.ReadFile(r.log.Name())
	return string(text)
}

func runAgent(t *testing.T, env []string, args ...string) *runner {
	t.Helper()
	r := &runner{Cmd: exec.Command("ambit", append([]string{"run"}, args...)...), t: t}
	log, err := os.CreateTemp(t.TempDir(), "log")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	r.Env, r.Stderr, r.log = append(os.Environ(), env...), log, log
	var out io.Reader
	if r.in, err = r.StdinPipe(); err == nil {
		if out, err = r.StdoutPipe(); err == nil {
			err = r.Start()
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	r.out = bufio.NewReader(out)
	t.Cleanup(func() {
		_ = r.Process.Kill()
		_ = r.Wait() // it fails, because the process was killed
		if t.Failed() {
			t.Logf("ambit run %v printed: %s", args, r.output())
		}
	})
	return r
}

func (r *runner) say(line string) {
	r.t.Helper()
	if _, err := io.WriteString(r.in, line+"\n"); err != nil {
		r.t.Fatal(err)
	}
}

func (r *runner) hear() string {
	r.t.Helper()
	line, err := r.out.ReadString('\n')
	if err != nil {
		r.t.Fatalf("%v, after %q; the log is %s", err, line, r.output())
	}
	return strings.TrimSpace(line)
}

// ask sends a request and returns its answer.
func (r *runner) ask(id int, method, params string) string {
	r.t.Helper()
	r.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, id, method, params))
	for {
		if line := r.hear(); strings.Contains(line, fmt.Sprintf(`"id":%d,`, id)) {
			return line
		}
	}
}

const plainClient = `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}`

// greet initializes the session and reports whether the client has joined a daemon.
func (r *runner) greet(params string) (joined bool) {
	r.t.Helper()
	if got := r.ask(1, "initialize", params); !strings.Contains(got, `"protocolVersion":"2025-11-25"`) {
		r.t.Fatalf("got %s", got)
	}
	r.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return strings.Contains(r.output(), "joined the daemon at http://127.0.0.1:")
}

// process returns the id that the process of the tool server has chosen for itself.
func (r *runner) process(id int) string {
	r.t.Helper()
	answer := r.ask(id, "tools/call", `{"name":"who","arguments":{}}`)
	pid := regexp.MustCompile(`process [\w-]+`).FindString(answer)
	if pid == "" {
		r.t.Fatalf("got %s", answer)
	}
	return pid
}

// leave ends the client's input and waits until ambit has exited.
func (r *runner) leave() {
	r.t.Helper()
	r.in.Close()
	if rest, err := io.ReadAll(r.out); err != nil || len(rest) > 0 {
		r.t.Errorf("at the end, got %q, %v", rest, err)
	}
	if err := r.Wait(); err != nil {
		r.t.Errorf("ambit run ended with %v", err)
	}
}

// newestRecord returns the newest record of the journal without what differs in each call.
func newestRecord(t *testing.T) map[string]any {
	t.Helper()
	out, _ := exitsWith(t, 0, "journal", "show", "--limit", "1", "--json")
	var doc struct{ Records []map[string]any }
	if err := json.Unmarshal([]byte(out), &doc); err != nil || len(doc.Records) != 1 {
		t.Fatalf("the journal is %s", out)
	}
	for _, name := range []string{"seq", "time", "call", "duration_us", "hash", "result_hash", "log"} {
		delete(doc.Records[0], name)
	}
	return doc.Records[0]
}

// Clients that join a daemon's agent share its servers. Their calls are recorded as if "ambit run" had started the
// agent.
func TestRunJoins(t *testing.T) {
	home := newJoinHome(t)
	d := startDaemon(t)
	first, second := runAgent(t, nil, "demo"), runAgent(t, nil, filepath.Join(home, "agents/demo/demo.json"))
	alone := runAgent(t, nil, "demo", "--join=false")
	if !first.greet(plainClient) || !second.greet(plainClient) || alone.greet(plainClient) {
		t.Fatal("the first two clients, and only these, should join the daemon")
	}
	if a, b := first.ask(2, "tools/list", "{}"), alone.ask(2, "tools/list", "{}"); a != b {
		t.Errorf("the lists are %s and %s", a, b)
	}
	pid := first.process(3)
	joined := newestRecord(t)
	if got := second.process(3); got != pid {
		t.Errorf("the clients use %s and %s", pid, got)
	}
	if got := alone.process(3); got == pid {
		t.Error("with --join=false, the client uses the server of the daemon")
	}
	ran := newestRecord(t)
	if a, b := fmt.Sprint(joined), fmt.Sprint(ran); a != b {
		t.Errorf("the records differ:\n%s\n%s", a, b)
	}
	newer := runAgent(t, nil, "demo")
	if got := newer.ask(1, "tools/list", `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}}`); !strings.Contains(got, `"name":"who"`) {
		t.Errorf("a client of the newer protocol got %s", got)
	}
	if !strings.Contains(newer.output(), "joined the daemon") {
		t.Error("a client of the newer protocol did not join")
	}
	for _, r := range []*runner{first, second, alone, newer} {
		r.leave()
	}
	d.stop()
	after := runAgent(t, nil, "demo")
	if after.greet(plainClient) {
		t.Error("a client joined a daemon that has ended")
	}
	after.process(2)
	after.leave()
}

// If anything differs, "ambit run" starts the agent itself, as without a daemon.
func TestRunStaysAlone(t *testing.T) {
	home := newJoinHome(t)
	demo := filepath.Join(home, "agents/demo/demo.json")
	startDaemon(t)
	write := func(name, text string) func(t *testing.T) {
		return func(t *testing.T) {
			t.Helper()
			file := filepath.Join(home, name)
			before, err := os.ReadFile(file)
			if writeErr := os.WriteFile(file, []byte(text), 0o600); writeErr != nil {
				t.Fatal(writeErr)
			}
			t.Cleanup(func() {
				if os.Remove(file); err == nil {
					_ = os.WriteFile(file, before, 0o600)
				}
			})
		}
	}
	elsewhere := t.TempDir()
	for name, text := range map[string]string{"demo.json": joinManifest, "server.mjs": joinServer} {
		if err := os.WriteFile(filepath.Join(elsewhere, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	asks := strings.Replace(plainClient, `{},`, `{"elicitation":{}},`, 1)
	for name, tt := range map[string]struct {
		change func(t *testing.T)
		env    []string
		args   []string
		client string
		why    string // a part of the note on stderr; "" if ambit does not ask the daemon
	}{
		"--join=false":              {args: []string{"--join=false"}},
		"--skill":                   {change: write("s.md", "§TOOLS\nnone\n"), args: []string{"--skill", filepath.Join(home, "s.md")}},
		"--dev":                     {args: []string{"--dev"}},
		"AMBIT_DEV":                 {env: []string{"AMBIT_DEV=1"}},
		"--unconfined":              {args: []string{"--unconfined", "demo"}},
		"--isolation":               {args: []string{"--isolation", "none"}},
		"--expose":                  {args: []string{"--expose", "prompts"}, why: "another --expose"},
		"--approval-ttl":            {args: []string{"--approval-ttl", "1m"}, why: "another --approval-ttl"},
		"--trust-elicitation":       {args: []string{"--trust-elicitation"}, why: "another --trust-elicitation"},
		"another home folder":       {env: []string{"HOME=" + t.TempDir()}, why: "another HOME"},
		"a credential":              {env: []string{"JOIN_TOKEN=another-token"}, why: "JOIN_TOKEN differs"},
		"a proxy":                   {env: []string{"HTTPS_PROXY=http://127.0.0.1:9"}, why: "HTTPS_PROXY differs"},
		"another language":          {env: []string{"LANG=xx"}, why: "LANG differs"},
		"a credential of ambit":     {env: []string{"AMBIT_SECRET_DEMO__JOIN_TOKEN=another"}, why: "AMBIT_SECRET_DEMO__JOIN_TOKEN differs"},
		"the manifest":              {change: write("agents/demo/demo.json", strings.Replace(joinManifest, `"1.0.0"`, `"1.0.1"`, 1)), why: "ambit reload"},
		"the guardrails":            {change: write("guardrails.json", "{}"), why: "guardrails.json"},
		"the settings":              {change: write("config.toml", "# changed"), why: "guardrails.json"},
		"a client with questions":   {client: asks, why: "ask its client questions"},
		"a copy of the manifest":    {args: []string{"copy"}, why: "ambit reload"},
		"a right allowed later":     {change: allowed, why: "ambit reload"},
		"a credential in the vault": {change: stored, why: "was changed after it started"},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{demo}, tt.args...)
			if len(tt.args) > 0 && tt.args[0] == "copy" {
				args = []string{filepath.Join(elsewhere, "demo.json")}
			}
			if tt.change != nil {
				tt.change(t)
			}
			if tt.client == "" {
				tt.client = plainClient
			}
			r := runAgent(t, tt.env, args...)
			if r.greet(tt.client) {
				t.Error("the client joined the daemon")
			}
			if got := r.ask(2, "tools/list", "{}"); !strings.Contains(got, `"name":"who"`) {
				t.Errorf("got %s", got)
			}
			r.leave()
			if log := r.output(); !strings.Contains(log, tt.why) || strings.Contains(log, "starting the agent here") != (tt.why != "") {
				t.Errorf("the log does not give the reason %q: %s", tt.why, log)
			}
		})
	}
	r := runAgent(t, nil, demo)
	if !r.greet(plainClient) {
		t.Error("without a difference, the client did not join")
	}
}

// allowed gives the server a right that the daemon has not read yet.
func allowed(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	exitsWith(t, 0, "allow", "demo", "demo", "--read", dir, "--yes")
	t.Cleanup(func() {
		cli.Run(context.Background(), []string{"disallow", "demo", "demo", "--read", dir}, nil, io.Discard, io.Discard)
	})
}

// stored stores another value of the server's credential.
func stored(t *testing.T) {
	t.Helper()
	code := cli.Run(t.Context(), []string{"secret", "set", "demo", "JOIN_TOKEN"}, strings.NewReader("a-new-token"), io.Discard, io.Discard)
	if code != 0 {
		t.Fatalf("secret set exited with %d", code)
	}
	t.Cleanup(func() {
		cli.Run(context.Background(), []string{"secret", "rm", "demo", "JOIN_TOKEN"}, nil, io.Discard, io.Discard)
	})
}

// If a daemon is killed, each open call is answered and is not sent again. "ambit run" then runs the agent itself.
func TestDaemonIsKilledInMidCall(t *testing.T) {
	newJoinHome(t)
	d := startDaemon(t)
	r := runAgent(t, nil, "demo")
	if !r.greet(plainClient) {
		t.Fatal("the client did not join")
	}
	if got := r.ask(2, "logging/setLevel", `{"level":"error"}`); !strings.Contains(got, `"result":{}`) {
		t.Fatalf("got %s", got)
	}
	pid := r.process(3)
	r.say(`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"hang","arguments":{}}}`)
	d.waitFor("hanging")
	d.signal(syscall.SIGKILL)
	if got := r.hear(); !strings.Contains(got, `"id":4,"result":{`) || !strings.Contains(got, `"code":"outcome_unknown"`) {
		t.Fatalf("the lost call got %s", got)
	}
	if got := r.hear(); got != `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}` {
		t.Errorf("after the call, got %s", got)
	}
	answer := r.ask(5, "tools/call", `{"name":"who","arguments":{}}`)
	if strings.Contains(answer, pid) || !strings.Contains(answer, ", 0 hung,") {
		t.Errorf("after %s was killed, got %s", pid, answer)
	}
	// The agent in this process takes over the call of the dead daemon in the background.
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		out, _ := exitsWith(t, 0, "journal", "show", "--unknown", "--json")
		if strings.Count(out, `"tool": "hang"`) == 1 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the calls with unknown outcome are %s", out)
		}
	}
	r.leave()
	if !strings.Contains(r.output(), "the connection to the daemon was lost") {
		t.Error("the log does not mention the loss")
	}
}

// If a reload replaces the agent, the client continues with the new manifest.
func TestReloadOfJoinedAgent(t *testing.T) {
	home := newJoinHome(t)
	d := startDaemon(t)
	r := runAgent(t, nil, "demo")
	if !r.greet(plainClient) {
		t.Fatal("the client did not join")
	}
	file := filepath.Join(home, "agents/demo/demo.json")
	if err := os.WriteFile(file, []byte(strings.Replace(joinManifest, `"read", "write"`, `"read"`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	exitsWith(t, 0, "reload")
	if got := r.hear(); !strings.Contains(got, "list_changed") {
		t.Errorf("after the reload, got %s", got)
	}
	if got := r.ask(2, "tools/call", `{"name":"hang","arguments":{}}`); !strings.Contains(got, "side_effect_denied") {
		t.Errorf("the old manifest still applies: %s", got)
	}
	r.leave()
	again := runAgent(t, nil, "demo")
	if !again.greet(plainClient) {
		t.Error("after the reload, a client did not join")
	}
	again.leave()
	d.stop()
}

// A joined client has the rights of a client: it cannot decide approvals, and reaches one agent.
func TestJoinedClientHasNoMoreRights(t *testing.T) {
	newJoinHome(t)
	startDaemon(t)
	r := runAgent(t, nil, "teller")
	if !r.greet(plainClient) {
		t.Fatal("the client did not join")
	}
	r.say(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"say","arguments":{"text":"hello"}}}`)
	id := ""
	for deadline := time.Now().Add(time.Minute); id == ""; {
		out, _ := exitsWith(t, 0, "approvals", "list", "--json")
		if m := regexp.MustCompile(`"id": "([^"]+)"`).FindStringSubmatch(out); m != nil {
			id = m[1]
		} else if time.Now().After(deadline) {
			t.Fatal("the call does not wait for approval")
		}
	}
	r.say("POST /api/v1/approvals/" + id + " HTTP/1.1")
	if got := r.hear(); !strings.Contains(got, `"code":-32700`) {
		t.Errorf("an HTTP request got %s", got)
	}
	for i, method := range []string{"approvals/approve", "api/v1/approvals/" + id, "agents/list", "elicitation/create"} {
		if got := r.ask(10+i, method, `{"id":"`+id+`","decision":"approve"}`); !strings.Contains(got, `"code":-32601`) {
			t.Errorf("%s got %s", method, got)
		}
	}
	r.say(`{"jsonrpc":"2.0","id":"ambit-1","result":{"action":"accept","content":{"approve":true}}}`)
	if got := r.ask(20, "tools/call", `{"name":"who","arguments":{}}`); !strings.Contains(got, "unknown_tool") {
		t.Errorf("a tool of another agent got %s", got)
	}
	if out, _ := exitsWith(t, 0, "approvals", "list", "--json"); !strings.Contains(out, id) {
		t.Fatal("the call does not wait any more")
	}
	exitsWith(t, 0, "approvals", "approve", id)
	if got := r.hear(); !strings.Contains(got, `"id":2,"result":`) || !strings.Contains(got, "The message is: hello") {
		t.Errorf("the approved call got %s", got)
	}
	r.leave()
}
