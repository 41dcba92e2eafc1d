package adversary

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestConfinedServer repeats the attacks by which a tool server once reached other agents' code and memory, the
// database, ambit's home, the daemon's log, the terminal and the daemon's cgroup. The same server without a sandbox
// succeeds in all of them.
func TestConfinedServer(t *testing.T) {
	w := newWorld(t)
	temp := filepath.Dir(w.write("tmp/ambit.bundle/main.py", "print('code of another agent')"))
	w.env = append(w.env, "TMPDIR="+filepath.Dir(temp), "PGPASSFILE="+filepath.Join(w.dir, ".pgpass"))
	memory := w.write("tmp/ambit.memory/memory.jsonl", "{}")
	pgpass := w.write(".pgpass", "*:*:*:*:password")
	log := w.write("serve.log", "sign in: http://127.0.0.1/console/link")
	key := w.write("home/canary", "key")
	if _, stderr, code := w.ambit("agents"); code != 0 { // makes the store
		t.Fatal(stderr)
	}
	database, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer database.Close()
	socket := filepath.Join(w.dir, "home", "join.sock") // as in the folder run of a home
	joining, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer joining.Close()
	second := filepath.Join(w.dir, "second")
	if err := os.Mkdir(second, 0o700); err != nil {
		t.Fatal(err)
	}
	terminal, slave := openTerminal(t)
	defer terminal.Close()
	agent := w.matrix("agent.json", "attacks")
	for name, a := range map[string]attacks{
		"A1 staged code":   {Read: []string{temp, temp + "/main.py", memory}, Write: []string{temp + "/main.py", memory}},
		"A2 database":      {Read: []string{pgpass}, Connect: []string{database.Addr().String()}},
		"joining":          {Connect: []string{socket}},
		"A3 parent":        {Read: []string{key, filepath.Join(second, "canary")}, Write: []string{key}, Rename: []string{log, key}},
		"A5 log":           {Read: []string{log, fmt.Sprintf("/proc/%d/fd/1", os.Getpid())}},
		"A13 terminal":     {Read: []string{slave}, Write: []string{slave}},
		"A14 cgroup":       {Read: []string{"/sys/fs/cgroup"}},
		"other process":    {Read: []string{fmt.Sprintf("/proc/%d/environ", os.Getpid()), fmt.Sprintf("/proc/%d/root/etc", os.Getpid())}},
		"the manifest":     {Write: []string{agent}},
		"the machine":      {Read: []string{"/var/log", "/home"}},
		"the session":      {Read: []string{"/run"}},
		"loopback by name": {Connect: []string{strings.Replace(database.Addr().String(), "127.0.0.1", "localhost", 1)}},
	} {
		t.Run(name, func(t *testing.T) {
			input, err := json.Marshal(a)
			if err != nil {
				t.Fatal(err)
			}
			// The home has a second mount, and ambit has a terminal.
			script := `mount --bind "$1" "$2" && shift 2 && exec "$@"`
			within := func(program ...string) *exec.Cmd {
				args := []string{"-m", "sh", "-c", script, "sh", filepath.Join(w.dir, "home"), second}
				if os.Geteuid() != 0 {
					args = append([]string{"-Ur"}, args...)
				}
				c := exec.CommandContext(t.Context(), "unshare", append(args, program...)...)
				c.Dir, c.Env = w.dir, w.env
				return c
			}
			alone := within(os.Args[0], hostile, "attacks")
			alone.Stdin = strings.NewReader(fmt.Sprintf(`{"id":1,"method":"tools/call","params":{"arguments":%s}}`+"\n", input))
			text, _ := alone.Output() // the last attack makes the server kill itself
			var reply struct {
				Result struct{ Content []struct{ Text string } }
			}
			if err := json.Unmarshal(text, &reply); err != nil || len(reply.Result.Content) == 0 {
				t.Fatalf("the server answered %q (error %v)", text, err)
			}
			want := len(a.Read) + len(a.Write) + len(a.Rename) + len(a.Connect)
			if got := reply.Result.Content[0].Text; len(strings.Split(got, "\n")) != want {
				t.Errorf("without a sandbox, only these attacks succeed, so the others prove nothing:\n%s", got)
			}
			c := within(os.Args[0], "call", agent, "look", "--json", "--input", string(input))
			var stderr strings.Builder
			c.Stderr = &stderr
			stdout, err := c.Output()
			if err != nil || !strings.Contains(string(stdout), `"text"`) {
				t.Fatalf("%v: %s %s", err, stdout, stderr.String())
			}
			for _, what := range []string{"read /", "write /", "rename /", "connect "} {
				if strings.Contains(string(stdout), what) {
					t.Errorf("attacks succeeded: %s", stdout)
				}
			}
		})
	}
}
