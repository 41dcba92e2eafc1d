//go:build linux

package program_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/program"
	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/exec/sandbox/sandboxtest"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/store/home"
)

const (
	callID   = "0123456789abcdef0123456789abcdef"
	intentID = "01234567-89ab-cdef-0123-456789abcdef"
)

// rig is an agent whose program a test can change.
type rig struct {
	agent   *agent.Agent
	options program.Options
	folder  string
	mu      sync.Mutex
	log     []string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	sandboxtest.Need(t)
	r := &rig{folder: t.TempDir(), agent: &agent.Agent{
		Program:    &agent.Program{Runtime: "python3", Entry: "main.py", Contract: agent.OneLine},
		Resources:  &agent.Resources{WallClock: 2 * time.Minute, MemoryMB: 128, DiskMB: 10, Network: agent.NetworkOff},
		Settlement: &agent.Settlement{Priority: "high"},
		Tools:      []agent.Tool{{Name: "x", Binding: agent.RunProgram{}}},
	}}
	r.options = program.Options{
		Manifest: filepath.Join(r.folder, "agent.toml"), Pubkey: func(p string) string { return "key of " + p },
		Log: func(line string) { r.mu.Lock(); r.log = append(r.log, line); r.mu.Unlock() },
	}
	return r
}

func (r *rig) write(t *testing.T, name, content string) {
	t.Helper()
	path := filepath.Join(r.folder, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o755)); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) act(ctx context.Context) (call.Result, error) {
	return program.New(r.agent, r.options).Act(ctx, &r.agent.Tools[0], &call.Call{
		ID: callID, Principal: "me@local", Arguments: []byte(`{"text":"two\nlines"}`), Parent: strings.Repeat("f", 32),
	})
}

// structured returns the structured content of a result.
func structured(t *testing.T, r call.Result) map[string]any {
	t.Helper()
	var doc struct {
		Content           []map[string]string
		StructuredContent map[string]any
	}
	if err := json.Unmarshal(r.Raw, &doc); err != nil || len(doc.Content) != 1 || doc.Content[0]["text"] != doc.StructuredContent["text"] {
		t.Fatalf("error %v; the text and the structured content differ: %s", err, r.Raw)
	}
	return doc.StructuredContent
}

const echoPython = `
import json, os, sys
lines = sys.stdin.readlines()
i = json.loads(lines[0])
print('working', file=sys.stderr)
print(json.dumps({'intent_id': i['id'], 'status': 'ok', 'text': json.dumps([len(lines), i, os.getcwd()]), 'sources': ['a']}))
`

const echoNode = `
const i = JSON.parse(require('fs').readFileSync(0, 'utf8'));
console.log(JSON.stringify({intent_id: i.id, status: 'ok', text: JSON.stringify([1, i, process.cwd()]), sources: ['a']}));
`

const echoGo = `package main

import ("bufio"; "encoding/json"; "os")

func main() {
	line, _ := bufio.NewReader(os.Stdin).ReadBytes('\n')
	var i map[string]any
	json.Unmarshal(line, &i)
	dir, _ := os.Getwd()
	text, _ := json.Marshal([]any{1, i, dir})
	json.NewEncoder(os.Stdout).Encode(map[string]any{"intent_id": i["id"], "status": "ok", "text": string(text), "sources": []string{"a"}})
}
`

// A program without an execute bit gets a hint that sets it.
func TestNotExecutable(t *testing.T) {
	r := newRig(t)
	r.agent.Program.Runtime, r.agent.Program.Entry = agent.RustBin, "x y"
	r.write(t, "x y", "\x7fELF")
	if err := os.Chmod(filepath.Join(r.folder, "x y"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := r.act(t.Context())
	if refusal, ok := errors.AsType[*call.Refusal](err); !ok || !strings.HasSuffix(refusal.Message, ": the entry is not executable") ||
		!strings.HasPrefix(refusal.Hint, "run: chmod +x '") || !strings.HasSuffix(refusal.Hint, "/x y'") {
		t.Errorf("%+v", err)
	}
}

// A budget of 0 means none, not the default of the sandbox.
func TestBudgetOfNone(t *testing.T) {
	const stores = `
import json, sys
i = json.loads(sys.stdin.readline())
try:
    with open('/tmp/report', 'w') as f:
        f.write('x' * 20000)
    text = 'stored'
except OSError as e:
    text = 'not stored'
print(json.dumps({'intent_id': i['id'], 'status': 'ok', 'text': text, 'sources': []}))
`
	for name, tt := range map[string]struct {
		change func(*agent.Resources)
		want   string
	}{
		"time":   {func(r *agent.Resources) { r.WallClock = 0 }, "cpu_ms_per_task is 0"},
		"memory": {func(r *agent.Resources) { r.MemoryMB = 0 }, "memory_mb is 0"},
		"disk":   {func(r *agent.Resources) { r.DiskMB = 0 }, "not stored"},
		"enough": {func(*agent.Resources) {}, "stored"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.write(t, "main.py", stores)
			tt.change(r.agent.Resources)
			result, err := r.act(t.Context())
			got := ""
			if refusal, ok := errors.AsType[*call.Refusal](err); ok && refusal.Unsent {
				got = refusal.Message
			} else if err == nil {
				got = structured(t, result)["text"].(string)
			}
			if !strings.Contains(got, tt.want) || tt.want == "stored" && got != "stored" {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

func TestContract(t *testing.T) { contract(t, sandbox.Standard) }

func contract(t *testing.T, tier sandbox.Tier) {
	for _, tt := range []struct{ runtime, entry, source string }{
		{"python3", "main.py", echoPython},
		{"node", "src/main.js", echoNode},
		{"rust-bin", "target/release/x", ""},
	} {
		t.Run(tt.runtime, func(t *testing.T) {
			r := newRig(t)
			r.agent.Program.Runtime, r.agent.Program.Entry = agent.Runtime(tt.runtime), tt.entry
			r.options.Isolation = tier
			r.write(t, tt.entry, tt.source)
			if tt.source == "" {
				r.write(t, "main.go", echoGo)
				build := exec.CommandContext(t.Context(), "go", "build", "-o", tt.entry, "main.go")
				build.Dir, build.Env = r.folder, append(os.Environ(), "CGO_ENABLED=0")
				if text, err := build.CombinedOutput(); err != nil {
					t.Fatalf("go build: %v: %s", err, text)
				}
			}
			result, err := r.act(t.Context())
			if err != nil {
				t.Fatalf("error %v, log %q", err, r.log)
			}
			a := structured(t, result)
			if a["intent_id"] != intentID || a["status"] != "ok" || len(a["sources"].([]any)) != 1 {
				t.Errorf("the answer is %v", a)
			}
			var seen []any
			if err := json.Unmarshal([]byte(a["text"].(string)), &seen); err != nil {
				t.Fatal(err)
			}
			i := seen[1].(map[string]any)
			issuer := i["issuer"].(map[string]any)
			if seen[0] != 1.0 || seen[2] != "/agent" || len(i) != 6 || i["text"] != "two\nlines" || i["priority"] != "high" || i["issued_at"].(float64) < 1.7e12 ||
				issuer["display"] != "me@local" || issuer["pubkey"] != "key of me@local" || i["parent"] != "ffffffff-ffff-ffff-ffff-ffffffffffff" {
				t.Errorf("the program received %v", seen)
			}
			if tt.runtime == "python3" && (len(r.log) != 1 || r.log[0] != "working") {
				t.Errorf("log = %q, want the line working", r.log)
			}
		})
	}
}

func TestFailures(t *testing.T) {
	ok := `print(json.dumps({'intent_id': i['id'], 'status': 'ok', 'text': 't', 'sources': []}))`
	for _, tt := range []struct {
		name, code string
		reason     program.Reason
	}{
		{"no line", "", program.NoAnswer},
		{"blank lines", `print("\n\n")`, program.NoAnswer},
		{"two lines", ok + "\n" + ok, program.TwoAnswers},
		{"a log line on stdout", "print('starting')\n" + ok, program.TwoAnswers},
		{"invalid JSON", `print('{"intent_id":')`, program.BadJSON},
		{"not an object", `print('[]')`, program.BadJSON},
		{"duplicate keys", `print('{"intent_id":"x","intent_id":"' + i['id'] + '","status":"ok","text":"t"}')`, program.BadJSON},
		{"invalid UTF-8", `sys.stdout.buffer.write(b'{"intent_id":"' + i['id'].encode() + b'","status":"ok","text":"\xff"}\n')`, program.BadJSON},
		{"no text", `print(json.dumps({'intent_id': i['id'], 'status': 'ok'}))`, program.BadJSON},
		{"sources that are not a list", `print(json.dumps({'intent_id': i['id'], 'status': 'ok', 'text': 't', 'sources': 'x'}))`, program.BadJSON},
		{"another intent", `print(json.dumps({'intent_id': 'x', 'status': 'ok', 'text': 't'}))`, program.WrongIntent},
		{"no intent", `print(json.dumps({'status': 'ok', 'text': 't'}))`, program.WrongIntent},
		{"no status", `print(json.dumps({'intent_id': i['id'], 'text': 't'}))`, program.BadStatus},
		{"another status", `print(json.dumps({'intent_id': i['id'], 'status': 'OK', 'text': 't'}))`, program.BadStatus},
		{"exit code", ok + "\nsys.exit(\"Trace\\nKeyError: 'x' ghp\" + \"_x7Kd92LmQp4RtVz8Wb3Ns6Yc1Hf5Jg0AeUoI\\n\")", program.ExitCode},
		{"signal", ok + "\nsys.stdout.flush()\nos.kill(os.getpid(), 11)", program.ExitCode},
		{"a line of 100 MB", "for _ in range(100): sys.stdout.write('x' * (1 << 20))", program.TooLarge},
		{"a flood of stderr", "while True: sys.stderr.write('x' * 1000 + '\\n')", program.TooLarge},
		{"memory", "b = bytearray(1 << 30)", program.OOM},
		{"time", "time.sleep(600)", program.TimedOut},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.options.Log = nil
			if tt.reason == program.TimedOut {
				r.agent.Resources.WallClock = 500 * time.Millisecond
			}
			r.write(t, "main.py", "import json, os, sys, time\ni = json.loads(sys.stdin.readline())\n"+tt.code+"\n")
			result, err := r.act(t.Context())
			f, ok := errors.AsType[*call.Refusal](err)
			if !ok || f.Reason != tt.reason || f.Code != call.ProgramFailed || f.Effect != call.NoEffect || !strings.HasPrefix(f.Message, string(tt.reason)+": ") {
				t.Fatalf("error = %v, want program_failed with the reason %s", err, tt.reason)
			}
			hints := map[program.Reason]string{
				program.BadJSON: `"intent_id": ID`, program.WrongIntent: `"intent_id": ID`, program.BadStatus: `"status": "ok"`,
				program.TooLarge: "write less to std",
			}
			if tt.name == "exit code" && !strings.HasSuffix(result.Log, "; last line: \"KeyError: 'x' [secret:github-pat]\"") {
				t.Errorf("the journal gets %q", result.Log)
			}
			if hint, _ := f.Advice(); !strings.Contains(hint, hints[tt.reason]) {
				t.Errorf("the hint is %q, want one that contains %q", hint, hints[tt.reason])
			}
		})
	}
}

// An answer with the status "error" is a complete answer of a tool that reports an error.
func TestErrorStatus(t *testing.T) {
	r := newRig(t)
	r.write(t, "main.py", "import json, sys\ni = json.loads(sys.stdin.readline())\n"+
		"print(json.dumps({'intent_id': i['id'], 'status': 'error', 'text': 'no luck', 'sources': ['a']}))\n")
	result, err := r.act(t.Context())
	if err != nil || !result.IsError || !strings.Contains(string(result.Raw), `"isError":true`) {
		t.Fatalf("got %s and the error %v, want a result that reports an error", result.Raw, err)
	}
	a := structured(t, result)
	if a["intent_id"] != intentID || a["status"] != "error" || a["text"] != "no luck" || len(a["sources"].([]any)) != 1 {
		t.Errorf("the answer is %v", a)
	}
}

// TestUnusual checks that an unusual program is accepted if it fulfills the contract.
func TestUnusual(t *testing.T) {
	answer := "sys.stdout.write('{\"intent_id\":\"" + intentID + "\",\"status\":\"ok\",\"text\":\"t\",\"more\":1}')\nsys.stdout.flush()\n"
	for name, code := range map[string]string{
		"stdin not read, no newline, no sources": answer,
		"a child lives on":                       answer + "if os.fork() == 0:\n    os.setsid()\n    time.sleep(600)\n",
		"stderr is not UTF-8":                    "sys.stderr.buffer.write(b'\\xff\\xfe')\n" + answer,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.write(t, "main.py", "import os, sys, time\n"+code)
			result, err := r.act(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if a := structured(t, result); a["text"] != "t" || len(a["sources"].([]any)) != 0 {
				t.Errorf("the answer is %v, want the text \"t\" without sources", a)
			}
		})
	}
}

func TestCancelled(t *testing.T) {
	r := newRig(t)
	r.agent.Resources.Network = agent.NetworkHTTPS
	ctx, cancel := context.WithCancel(t.Context())
	r.options.Log = func(string) { cancel() }
	r.write(t, "main.py", "import sys, time\nprint('up', file=sys.stderr, flush=True)\ntime.sleep(600)\n")
	_, err := r.act(ctx)
	if f, ok := errors.AsType[*call.Refusal](err); !ok || f.Reason != program.Cancelled || f.Effect != call.EffectUnknown {
		t.Errorf("error = %v, want cancelled with unknown effect", err)
	}
}

// TestEntry checks which entries are accepted and which folders programs see.
func TestEntry(t *testing.T) {
	look := "import json, os\nprint(json.dumps({'intent_id': '" + intentID + "', 'status': 'ok', 'text': ' '.join([__file__, os.getcwd()] + sorted(os.listdir('.')))}))\n"
	elsewhere := t.TempDir()
	if err := os.WriteFile(filepath.Join(elsewhere, "far.py"), []byte(look), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, manifest, entry, want, home string
	}{
		{"the manifest has its own folder", "agent.toml", "src/main.py", "/agent/src/main.py /agent agent.toml device.py link.py other pipe.py src", ""},
		{"the folder contains several manifests", "x.toml", "src/main.py", "/agent/main.py /agent main.py", ""},
		{"absolute, inside", "agent.toml", "$FOLDER/src/main.py", "/agent/src/main.py /agent agent.toml device.py link.py other pipe.py src", ""},
		{"an absolute path outside the folder", "agent.toml", elsewhere + "/far.py", "/entry/far.py /agent agent.toml device.py link.py other pipe.py src", ""},
		{"an absolute path outside the folder of a flat manifest", "x.toml", elsewhere + "/far.py", "/agent/far.py /agent far.py", ""},
		{"out of the folder", "agent.toml", "../x.py", "", ""},
		{"by a link", "agent.toml", "link.py", "", ""},
		{"a folder", "agent.toml", "src", "", ""},
		{"a pipe", "agent.toml", "pipe.py", "", ""},
		{"a device", "agent.toml", "/dev/zero", "", ""},
		{"a link to a device", "x.toml", "device.py", "", ""},
		{"not there", "agent.toml", "gone.py", "", ""},
		{"a folder next to ambit's home", "agent.toml", "$FOLDER/../hidden.py", "", "src"},
		{"a folder that contains ambit's home", "agent.toml", "src/main.py", "", "src"},
		{"the folder of ambit's keys", "agent.toml", "$FOLDER/keys/sub/main.py", "", "."},
		{"an installed agent", "agent.toml", "src/main.py", "/agent/src/main.py /agent agent.toml device.py keys link.py other pipe.py src", ".."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.write(t, "agent.toml", "")
			r.write(t, "other", "")
			r.write(t, "src/main.py", look)
			if tt.home != "" {
				r.write(t, "keys/sub/main.py", look)
			}
			hidden := filepath.Join(filepath.Dir(r.folder), "hidden.py")
			if err := errors.Join(
				os.Symlink(elsewhere+"/far.py", filepath.Join(r.folder, "link.py")), os.WriteFile(hidden, []byte(look), 0o644),
				syscall.Mkfifo(filepath.Join(r.folder, "pipe.py"), 0o644), os.Symlink("/dev/zero", filepath.Join(r.folder, "device.py")),
			); err != nil {
				t.Fatal(err)
			}
			r.options.Manifest = filepath.Join(r.folder, tt.manifest)
			if tt.home != "" {
				r.options.Home = home.At(filepath.Join(r.folder, tt.home))
			}
			r.agent.Program.Entry = strings.Replace(tt.entry, "$FOLDER", r.folder, 1)
			result, err := r.act(t.Context())
			if tt.want == "" {
				if f, ok := errors.AsType[*call.Refusal](err); !ok || f.Reason != program.NotStarted {
					t.Errorf("error = %v, want not_started", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := structured(t, result)["text"]; got != tt.want {
				t.Errorf("the program sees %s, want %s", got, tt.want)
			}
		})
	}
}

// TestClosed checks a program that only its owner can read. If ambit runs as root, the refusal
// names the unreadable file or folder. For other users, the program runs.
func TestClosed(t *testing.T) {
	for _, tt := range []struct{ closed, want string }{
		{"src/main.py", "the entry is readable only by its owner"},
		{"src", "the entry's folder is readable only by its owner"},
		{".", "the entry's folder is readable only by its owner"},
		{"..", ""}, // the program does not see the parent folder
	} {
		t.Run(tt.closed, func(t *testing.T) {
			r := newRig(t)
			r.write(t, "src/main.py", echoPython)
			r.agent.Program.Entry = "src/main.py"
			if err := os.Chmod(filepath.Join(r.folder, tt.closed), 0o700); err != nil {
				t.Fatal(err)
			}
			_, err := r.act(t.Context())
			if tt.want == "" || os.Geteuid() != 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if f, ok := errors.AsType[*call.Refusal](err); !ok || !strings.Contains(f.Message, tt.want) || !strings.Contains(f.Hint, "chmod") {
				t.Errorf("error = %v, want %q and a hint with chmod", err, tt.want)
			}
			r.options.Unconfined = true
			if _, err := r.act(t.Context()); err != nil {
				t.Errorf("error without a sandbox: %v", err)
			}
		})
	}
}

// TestNetwork runs one program with each kind of network access.
func TestNetwork(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "reached") }))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	plain := httptest.NewServer(s.Config.Handler)
	t.Cleanup(plain.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o644); err != nil {
		t.Fatal(err)
	}
	// This server uses its own protocol and sends the first message.
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	go func() {
		for {
			c, err := other.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, "reached")
			c.Close()
		}
	}()
	env := map[string]string{
		egress.EnvResolve: "example.com:443=" + s.Listener.Addr().String() + ",example.com:80=" + plain.Listener.Addr().String() +
			",example.com:5432=" + other.Addr().String(),
		egress.EnvCA: ca,
	}
	sw, err := egress.Read(func(n string) (string, bool) { v, ok := env[n]; return v, ok }, false, false)
	if err != nil {
		t.Fatal(err)
	}
	code := `
import json, socket, urllib.request as u
def get(url):
    try: return u.urlopen(url, timeout=10).read().decode()
    except OSError: return 'no'
def hear(port):
    try: return socket.create_connection(('example.com', port), 10).recv(100).decode() or 'no'
    except OSError: return 'no'
print(json.dumps({'intent_id': '` + intentID + `', 'status': 'ok', 'text': get('https://example.com/') + ' ' + get('http://example.com/') + ' ' + hear(5432)}))
`
	for access, want := range map[agent.NetworkAccess]string{
		agent.NetworkOff: "no no no", agent.NetworkHTTPS: "reached no no", agent.NetworkFull: "reached reached reached", "": "no no no", "nonsense": "no no no",
	} {
		t.Run(string(access), func(t *testing.T) {
			r := newRig(t)
			r.agent.Resources.Network, r.options.Egress = access, sw
			r.write(t, "main.py", code)
			result, err := r.act(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := structured(t, result)["text"]; got != want {
				t.Errorf("the program got %s, want %s; log %q", got, want, r.log)
			}
			r.write(t, "main.py", code+"import sys\nsys.exit(1)\n")
			result, err = r.act(t.Context())
			refused := access == agent.NetworkHTTPS && strings.HasSuffix(result.Log, "refused connections to example.com:80 and example.com:5432")
			if err == nil || refused != (access == agent.NetworkHTTPS) {
				t.Errorf("after a failure with the error %v, the journal gets %q", err, result.Log)
			}
			if logged := strings.Join(r.log, "\n"); strings.Contains(logged, "connected to example.com:443") != strings.HasPrefix(want, "reached") {
				t.Errorf("the log does not match the connections: %q", logged)
			}
		})
	}
}

// TestFullNetworkLimits checks what a program cannot do even with the network access "full".
func TestFullNetworkLimits(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	r := newRig(t)
	r.agent.Resources.Network = agent.NetworkFull
	r.write(t, "main.py", `import json, socket, sys
json.loads(sys.stdin.readline())
def tries(name, f):
    try: f()
    except OSError: return name + ': no'
    return name + ': yes'
def connect(host, port): socket.create_connection((host, port), timeout=10).close()
def own():
    s = socket.create_server(('127.0.0.1', 0)); connect('127.0.0.1', s.getsockname()[1])
print(json.dumps({'intent_id': '`+intentID+`', 'status': 'ok', 'text': ', '.join([
    tries('UDP', lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('93.184.215.14', 443))),
    tries('ICMP', lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)),
    tries('ping', lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP).sendto(b'\x08\x00' + bytes(6), ('93.184.215.14', 0))),
    tries('private', lambda: connect('10.0.0.1', 80)),
    tries('metadata', lambda: connect('169.254.169.254', 80)),
    tries('machine', lambda: connect('127.0.0.1', `+strconv.Itoa(l.Addr().(*net.TCPAddr).Port)+`)),
    tries('Unix', lambda: socket.socket(socket.AF_UNIX).bind('/tmp/s')),
    tries('own', own)])}))
`)
	result, err := r.act(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := "UDP: no, ICMP: no, ping: no, private: no, metadata: no, machine: no, Unix: no, own: yes"
	if got := structured(t, result)["text"]; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestNeverLess checks that a program does not run if the requested tier is unavailable.
func TestNeverLess(t *testing.T) {
	r := newRig(t)
	r.write(t, "main.py", echoPython)
	for _, tier := range []sandbox.Tier{sandbox.Strong, "none", "nonsense"} {
		r.options.Isolation = tier
		_, err := r.act(t.Context())
		if f, ok := errors.AsType[*call.Refusal](err); !ok || f.Code != call.IsolationUnavailable {
			t.Errorf("tier %s: error = %v, want isolation_unavailable", tier, err)
		}
	}
	// The manifest's own requirement applies too, whatever the operator chose.
	for _, tt := range []struct {
		required   agent.Isolation
		unconfined bool
	}{{agent.StrongIsolation, false}, {agent.StrongIsolation, true}, {agent.StandardIsolation, true}} {
		r.agent.Program.Isolation, r.options.Isolation, r.options.Unconfined = tt.required, sandbox.Standard, tt.unconfined
		_, err := r.act(t.Context())
		if f, ok := errors.AsType[*call.Refusal](err); !ok || f.Code != call.IsolationUnavailable {
			t.Errorf("the manifest requires %s, unconfined %t: error = %v, want isolation_unavailable", tt.required, tt.unconfined, err)
		}
	}
	if bytes.Contains([]byte(strings.Join(r.log, "")), []byte("working")) {
		t.Error("the program ran without the requested isolation")
	}
}
