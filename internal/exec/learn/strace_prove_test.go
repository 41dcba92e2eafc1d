//go:build prove && linux

package learn

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/exec/toolserver"
	"github.com/ambit-run/ambit/internal/gateway/call"
	ambithome "github.com/ambit-run/ambit/internal/store/home"
)

// work is a server together with the calls to make to it.
type work struct {
	name  string
	argv  []string
	env   []string
	calls []toolCall
	// access contains the rights that the server has from the beginning. The package of an npm server is always visible
	// to the server.
	access agent.Access
	tools  []string
}

type toolCall struct {
	tool      string
	arguments string
}

// TestFindsWhatStraceFinds runs the same work twice: without a sandbox under strace, and in the sandbox with the
// recorder. The recorder must find the same files. With the proposed rights, the work must succeed.
func TestFindsWhatStraceFinds(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Fatal("strace is not installed; run scripts/setup")
	}
	var all, found int
	var times [2]time.Duration
	for _, w := range works(t) {
		t.Run(w.name, func(t *testing.T) {
			var wanted map[string]bool
			wanted, w.tools = traced(t, strace, w)
			got := map[string]bool{}
			access := w.access
			for round := 1; ; round++ {
				var r Recorder
				failures := confined(t, w, access, &r)
				for use := range r.servers["s"].uses {
					if use.Kind == agent.CanConnect {
						got["connect "+use.What] = true
						continue
					}
					path := filepath.Clean(use.What)
					if rel, err := filepath.Rel(sandbox.Home, path); err == nil && filepath.IsLocal(rel) {
						path = filepath.Join(ownerHome(t), rel)
					}
					got[random.ReplaceAllString(path, "*")] = true
				}
				proposed := r.Propose("s", access, ownerHome(t), filepath.Join(ownerHome(t), ".ambit"))
				if len(proposed) == 0 || round == 20 {
					if len(failures) > 0 {
						t.Errorf("after %d rounds, with the rights %v, the work fails: %v", round, access, failures)
					}
					t.Logf("%d rounds; rights: %v", round, access)
					break
				}
				access = access.With(proposed)
			}
			took := timed(t, w, access)
			t.Logf("the work takes %v without the recorder and %v with it, ratio %.2f", took[0], took[1], float64(took[1])/float64(took[0]))
			times[0], times[1] = times[0]+took[0], times[1]+took[1]
			n, lines := 0, 0
			for _, path := range slices.Sorted(maps.Keys(wanted)) {
				if got[path] {
					n++
				} else if lines++; lines <= 20 {
					t.Logf("not recorded: %s", path)
				}
			}
			all, found = all+len(wanted), found+n
			t.Logf("%d of %d", n, len(wanted))
			if len(wanted) == 0 || float64(n) < 0.99*float64(len(wanted)) {
				t.Errorf("the recorder found %d of %d files, want at least 99 %%", n, len(wanted))
			}
		})
	}
	t.Logf("all servers: the recorder found %d of %d files (%.2f %%); the work took %.2f times as long as without the recorder",
		found, all, 100*float64(found)/float64(max(all, 1)), float64(times[1])/float64(times[0]))
}

// timed returns the median time of the work without and with the recorder.
func timed(t *testing.T, w work, access agent.Access) (p50 [2]time.Duration) {
	var took [2][]time.Duration
	for range 9 {
		for i, r := range []*Recorder{nil, {}} {
			begun := time.Now()
			confined(t, w, access, r)
			took[i] = append(took[i], time.Since(begun))
		}
	}
	for i := range took {
		slices.Sort(took[i])
		p50[i] = took[i][len(took[i])/2]
	}
	return p50
}

// systemPath is the PATH of a sandbox. With another PATH, the work could start other programs.
const systemPath = "/usr/local/bin:/usr/bin:/bin"

func ownerHome(t *testing.T) string {
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	return home
}

// works returns twelve servers. Four are npm packages, which are installed first.
func works(t *testing.T) []work {
	t.Helper()
	// A sandbox has its own /tmp, so a server could write there without a right.
	dir, err := os.MkdirTemp("/var/tmp", "ambit-learn-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	data, owner := filepath.Join(dir, "data"), filepath.Join(dir, "owner")
	for _, folder := range []string{filepath.Join(data, "in"), owner, filepath.Join(dir, "servers")} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 200 {
		file := filepath.Join(data, "in", strconv.Itoa(i)+".txt")
		if err := os.WriteFile(file, fmt.Append(nil, "text ", i), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HOME", owner)
	t.Setenv("PATH", systemPath)
	for _, name := range []string{"server.py", "server.mjs"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "servers", name), text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	port := echo(t)
	arguments := fmt.Sprintf(`{"dir": %q, "port": %d}`, data, port)
	var list []work
	for _, way := range []string{"read", "write", "dirfd", "run", "connect", "database"} {
		list = append(list, work{
			name: "python " + way, argv: []string{"python3", "-B", filepath.Join(dir, "servers/server.py"), way},
			calls: []toolCall{{"work", arguments}},
		})
	}
	for _, way := range []string{"read", "change"} {
		list = append(list, work{
			name: "node " + way, argv: []string{"node", filepath.Join(dir, "servers/server.mjs"), way},
			calls: []toolCall{{"work", arguments}},
		})
	}
	// The versions are those of agents/default.json and bench/package-lock.json.
	npm := exec.CommandContext(t.Context(), "npm", "install", "--silent", "--ignore-scripts", "--no-audit", "--no-fund",
		"--prefix", filepath.Join(dir, "npm"), "@modelcontextprotocol/server-filesystem@2026.8.31",
		"@modelcontextprotocol/server-memory@2026.8.31", "@modelcontextprotocol/server-everything@2026.8.31",
		"@modelcontextprotocol/server-sequential-thinking@2026.8.31")
	if err := os.Mkdir(filepath.Join(dir, "npm"), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := npm.CombinedOutput(); err != nil {
		t.Fatalf("npm: %v\n%s", err, out)
	}
	at := func(name string) string {
		return filepath.Join(dir, "npm/node_modules/@modelcontextprotocol", name, "dist/index.js")
	}
	list = append(
		list,
		work{name: "filesystem", argv: []string{"node", at("server-filesystem"), data}, calls: []toolCall{
			{"read_text_file", fmt.Sprintf(`{"path": %q}`, data+"/in/3.txt")},
			{"list_directory", fmt.Sprintf(`{"path": %q}`, data+"/in")},
			{"write_file", fmt.Sprintf(`{"path": %q, "content": "new"}`, data+"/written.txt")},
			{"get_file_info", fmt.Sprintf(`{"path": %q}`, data+"/in/4.txt")},
		}},
		work{
			name: "memory", argv: []string{"node", at("server-memory")},
			env: []string{"MEMORY_FILE_PATH=" + data + "/memory.jsonl"},
			calls: []toolCall{
				{"create_entities", `{"entities": [{"name": "a", "entityType": "b", "observations": ["c"]}]}`},
				{"read_graph", "{}"},
			},
		},
		work{name: "everything", argv: []string{"node", at("server-everything"), "stdio"}, calls: []toolCall{{"echo", `{"message": "hello"}`}}},
		work{name: "thinking", argv: []string{"node", at("server-sequential-thinking")}, calls: []toolCall{
			{"sequentialthinking", `{"thought": "a", "nextThoughtNeeded": false, "thoughtNumber": 1, "totalThoughts": 1}`},
		}},
	)
	for i := range list {
		if strings.Contains(list[i].argv[1], "/npm/") {
			list[i].access = agent.Access{{Kind: agent.CanRead, What: filepath.Join(dir, "npm")}}
		}
	}
	return list
}

// echo starts a server that returns what it receives, and returns its port.
func echo(t *testing.T) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer c.Close()
				io.Copy(c, c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		work.Wait()
	})
	return l.Addr().(*net.TCPAddr).Port
}

// confined does the work in the sandbox and returns the calls that failed.
func confined(t *testing.T, w work, access agent.Access, r *Recorder) (failures []string) {
	t.Helper()
	dir := t.TempDir()
	a := &agent.Agent{ID: "prove", Name: "prove", Servers: []agent.Server{{
		Alias: "s", Transport: agent.Stdio, Command: w.argv[0], Args: w.argv[1:], Placeholder: true, Version: "1.0.0",
	}}}
	for _, v := range w.env {
		name, value, _ := strings.Cut(v, "=")
		a.Servers[0].Env = append(a.Servers[0].Env, agent.Setting{Name: name, Value: value})
	}
	for _, name := range w.tools {
		a.Tools = append(a.Tools, agent.Tool{Name: name, SideEffect: agent.Read, Binding: agent.OnServer{Alias: "s"}})
	}
	o := toolserver.Options{
		Home: ambithome.At(filepath.Join(dir, "home")), Manifest: filepath.Join(dir, "agent.json"), Version: "prove",
		Confine: &toolserver.Confinement{
			Agent: "prove", Access: func(s *agent.Server) agent.Access { return a.Access(s).With(access) },
			Files: func(alias string) string { return filepath.Join(dir, "files", alias) },
		},
	}
	if r != nil {
		o.Confine.OnUse = r.Use
	}
	m := toolserver.Start(t.Context(), a, o)
	defer m.Close()
	if p := m.Proofs()[0]; !p.OK {
		return []string{"start: " + p.Refusal.Error()}
	}
	for i, c := range w.calls {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		tool := &a.Tools[slices.IndexFunc(a.Tools, func(t agent.Tool) bool { return t.Name == c.tool })]
		result, err := m.Act(ctx, tool, &call.Call{
			ID: "c" + strconv.Itoa(i), Tool: c.tool, Arguments: jsontext.Value(c.arguments),
		})
		cancel()
		switch {
		case err != nil:
			failures = append(failures, c.tool+": "+err.Error())
		case result.IsError:
			failures = append(failures, c.tool+": "+string(result.Raw))
		}
	}
	return failures
}

// traced does the work without a sandbox under strace. It returns the files outside the system's folders that the
// server used or tried to use, its connections, and the names of its tools.
func traced(t *testing.T, strace string, w work) (used map[string]bool, tools []string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "trace")
	cmd := exec.CommandContext(t.Context(), strace, append(
		[]string{"-f", "-y", "-s", "4096", "-e", "trace=%file,connect,execve", "-e", "signal=none", "-o", log}, w.argv...)...)
	cmd.Dir = "/"
	cmd.Env = append([]string{"PATH=" + systemPath, "HOME=" + ownerHome(t), "TMPDIR=/tmp", "LANG=C.UTF-8"}, w.env...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	id := 0
	ask := func(method string, params any) {
		t.Helper()
		id++
		json.NewEncoder(in).Encode(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				t.Fatalf("%s: %v", method, err)
			}
			var m struct {
				ID     any
				Method string
				Error  any
				Result struct {
					IsError bool
					Tools   []struct{ Name string }
				}
			}
			if json.Unmarshal(line, &m) != nil || m.Method != "" || m.ID != float64(id) {
				continue
			}
			if m.Error != nil || m.Result.IsError {
				t.Fatalf("%s without a sandbox: %s", method, line)
			}
			for _, tool := range m.Result.Tools {
				tools = append(tools, tool.Name)
			}
			return
		}
	}
	ask("initialize", map[string]any{
		"protocolVersion": "2025-06-18", "capabilities": map[string]any{},
		"clientInfo": map[string]any{"name": "x", "version": "1"},
	})
	json.NewEncoder(in).Encode(map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"})
	ask("tools/list", map[string]any{})
	for _, c := range w.calls {
		ask("tools/call", map[string]any{"name": c.tool, "arguments": jsontext.Value(c.arguments)})
	}
	in.Close()
	io.Copy(io.Discard, out)
	cmd.Wait() // some servers exit with an error when their input ends
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	return parseTrace(string(text), "/"), tools
}

var (
	traceLine = regexp.MustCompile(`^(\d+) +(\w+)\((.*)$`)
	// pathArgument matches a path. A descriptor of the path's folder can precede it.
	pathArgument = regexp.MustCompile(`(?:(?:AT_FDCWD|\d+)<([^>]*)>, )?"((?:[^"\\]|\\.)*)"`)
	random       = regexp.MustCompile(`[0-9a-f]{32}`) // the random part of a temporary file's name
	address      = regexp.MustCompile(`sin_port=htons\((\d+)\), sin_addr=inet_addr\("127\.0\.0\.1"\)`)
)

// parseTrace returns the paths and connections in the output of strace -f -y.
func parseTrace(text, dir string) map[string]bool {
	used := map[string]bool{}
	cwd := map[string]string{}
	for line := range strings.Lines(text) {
		m := traceLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue // the end of a system call that was interrupted in the output
		}
		pid, name, arguments := m[1], m[2], m[3]
		if name == "connect" {
			if a := address.FindStringSubmatch(arguments); a != nil {
				used["connect localhost:"+a[1]] = true
			}
			continue
		}
		paths := pathArgument.FindAllStringSubmatch(arguments, -1)
		switch name {
		case "execve":
			paths = paths[:min(1, len(paths))] // the other strings are the program's arguments
		case "symlink", "symlinkat":
			paths = paths[min(1, len(paths)):] // the first string is the target of the link
		case "readlink", "readlinkat":
			paths = paths[:min(1, len(paths))] // the second string is the target of the link
		case "getcwd", "statfs":
			continue
		}
		for _, p := range paths {
			path, err := strconv.Unquote(`"` + p[2] + `"`)
			if err != nil || path == "" {
				continue
			}
			if !filepath.IsAbs(path) {
				base := p[1]
				if base == "" {
					base = dir
					if own, ok := cwd[pid]; ok {
						base = own
					}
				}
				path = filepath.Join(base, path)
			}
			path = filepath.Clean(path)
			if name == "chdir" && strings.HasSuffix(arguments, "= 0") {
				cwd[pid] = path
			}
			if !inSystem(path) {
				used[random.ReplaceAllString(path, "*")] = true
			}
		}
	}
	return used
}

// inSystem reports whether a path is in a folder of the system, or is one of the folders that contain all others.
func inSystem(path string) bool {
	return path == "/" || slices.ContainsFunc(append([]string{"/etc", "/usr", "/var/lib"}, ownVersions...), func(dir string) bool {
		return sandbox.Inside(path, dir)
	})
}
