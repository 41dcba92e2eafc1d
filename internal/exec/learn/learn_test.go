package learn

import (
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/exec/sandbox/shim"
)

func read(path string) agent.Right  { return agent.Right{Kind: agent.CanRead, What: path} }
func look(path string) agent.Right  { return agent.Right{Kind: shim.Look, What: path} }
func write(path string) agent.Right { return agent.Right{Kind: agent.CanWrite, What: path} }

// TestPropose checks what is proposed for each use of a server.
func TestPropose(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	hidden := filepath.Join(home, "ambit")
	for _, file := range []string{
		"data/one", "many/1", "many/2", "many/3", "many/4", ".rc", ".cache/x", "ambit/keys/root", "bin/tool",
	} {
		path := filepath.Join(home, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	at := func(name string) string { return filepath.Join(home, name) }
	connect := func(host string, private bool) agent.Right {
		return agent.Right{Kind: agent.CanConnect, What: host, Private: private}
	}
	execute := func(path string) agent.Right { return agent.Right{Kind: agent.CanExecute, What: path} }
	type use struct {
		agent.Right
		found bool
	}
	for _, tt := range []struct {
		name   string
		uses   []use
		access agent.Access
		want   agent.Access
	}{
		{"a missing file", []use{{read(at("data/one")), false}}, nil, agent.Access{read(at("data/one"))}},
		{"a visible file", []use{{read(at("data/one")), true}}, nil, nil},
		{"an allowed file", []use{{read(at("data/one")), false}}, agent.Access{read(at("data"))}, nil},
		{"a file that does not exist", []use{{read(at("data/two")), false}}, nil, nil},
		{"reading a file in the server's home", []use{{read(sandbox.Home + "/.rc"), false}}, nil, agent.Access{read(at(".rc"))}},
		{"writing in the server's home", []use{{write(sandbox.Home + "/.cache/y"), false}}, nil, nil},
		{"writing a file", []use{{write(at("data/one")), true}}, nil, agent.Access{write(at("data"))}},
		{"a new file", []use{{write(at("data/two")), false}}, nil, agent.Access{write(at("data"))}},
		{"writing to a file that the server may read", []use{{write(at("data/one")), true}}, agent.Access{read(at("data"))}, agent.Access{write(at("data"))}},
		{
			"many files", []use{
				{read(at("many/1")), false},
				{read(at("many/2")), false},
				{read(at("many/3")), false},
				{read(at("many/4")), false},
			}, nil, agent.Access{read(at("many"))},
		},
		{"files and their folder", []use{{read(at("many/1")), false}, {read(at("many")), false}}, nil, agent.Access{read(at("many"))}},
		{"looking at the folders above a file", []use{{look(at("many")), false}, {read(at("many/1")), false}}, nil, agent.Access{read(at("many/1"))}},
		{"only looking", []use{{look(at("many")), false}}, nil, agent.Access{read(at("many"))}},
		{"the whole home", []use{{read(home), false}, {write(at("new")), false}}, nil, nil},
		{"ambit's files", []use{{read(at("ambit/keys/root")), false}}, nil, nil},
		{"the kernel's files", []use{{read("/proc/1/environ"), false}, {read("/sys/power/state"), false}}, nil, nil},
		{"a program", []use{{execute(at("bin/tool")), false}, {execute("tool"), false}}, nil, agent.Access{execute(at("bin/tool"))}},
		{"no program", []use{{execute(at("bin/none")), false}, {execute(at("bin")), false}}, nil, nil},
		{"a program in the server's home", []use{{execute(sandbox.Home + "/bin/tool"), false}}, nil, agent.Access{execute(at("bin/tool"))}},
		{"a program that a shell looks for", []use{{look("/bin/true"), false}, {look("/usr/local/bin/true"), false}}, agent.Access{execute("/bin/sh")}, agent.Access{execute("/usr/bin/true")}},
		{"a program that a server without programs looks for", []use{{look("/bin/true"), false}}, nil, nil},
		{"a program that was allowed under another name", []use{{execute("/usr/bin/sh"), false}}, agent.Access{execute("/bin/sh")}, nil},
		{"any program", []use{{execute(at("bin/tool")), false}}, agent.Access{execute(agent.Any)}, nil},
		{"a host", []use{{connect("a.test:443", false), false}}, nil, agent.Access{connect("a.test:443", false)}},
		{"a private host", []use{{connect("localhost:5432", true), false}}, agent.Access{connect(agent.Any, false)}, agent.Access{connect("localhost:5432", true)}},
		{"an allowed host", []use{{connect("a.test:443", false), true}}, agent.Access{connect("a.test", false)}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var r Recorder
			for _, u := range tt.uses {
				r.Use("s", u.Right, func() bool { return u.found })
				r.Use("other", read(at("data/one")), no)
			}
			if got := r.Propose("s", tt.access, home, hidden); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// TestRecordedBytesAreBounded checks that a server cannot fill the memory with long names.
func TestRecordedBytesAreBounded(t *testing.T) {
	var r Recorder
	long := "/" + strings.Repeat("x", 4000)
	for i := range 2 * maxBytes / len(long) {
		r.Use("s", read(long+strconv.Itoa(i)), no)
	}
	if n, complete := r.Used("s"); complete || n > maxBytes/len(long) {
		t.Errorf("the recorder has %d uses, complete %t", n, complete)
	}
}

// TestRecorderIsBounded checks that a server cannot fill the memory with names, and that Used reports the
// omission.
func TestRecorderIsBounded(t *testing.T) {
	var r Recorder
	for i := range maxUses {
		r.Use("s", read("/"+strconv.Itoa(i)), no)
	}
	if _, complete := r.Used("s"); !complete {
		t.Fatalf("the record is incomplete after %d uses", maxUses)
	}
	r.Use("s", read("/one-more"), no)
	r.Use("s", read("/1"), func() bool { return true })
	if n, complete := r.Used("s"); n != maxUses || complete {
		t.Errorf("got %d uses, complete %t; want %d and false", n, complete, maxUses)
	}
}

func no() bool { return false }
