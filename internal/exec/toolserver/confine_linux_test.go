package toolserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/sandbox"
	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	ambithome "github.com/ambit-run/ambit/internal/store/home"
)

// The network policy of a server allows only its hosts, and sets LongRunning, because a server may run for days.
func TestPolicyForHosts(t *testing.T) {
	for _, tt := range []struct {
		hosts agent.Access
		want  egress.Policy
	}{
		{nil, egress.Policy{LongRunning: true}},
		{
			agent.Access{{What: "a.test"}, {What: "b.test:5432", Private: true}},
			egress.Policy{
				Mode: egress.ModeHosts, Hosts: []string{"a.test"}, Private: []string{"b.test:5432"}, LongRunning: true,
			},
		},
		{agent.Access{{What: agent.Any}}, egress.Policy{Mode: egress.ModeFull, LongRunning: true}},
	} {
		if got := policyFor(tt.hosts); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%v: got %+v, want %+v", tt.hosts, got, tt.want)
		}
	}
}

// confined makes the rig's servers confined. They have the derived access and the rights in more.
func (r *rig) confined(more ...agent.Right) {
	files := r.t.TempDir()
	r.o.Confine = &Confinement{
		Agent:  "desk",
		Access: func(s *agent.Server) agent.Access { return r.agent.Access(s).With(more) },
		Files:  func(alias string) string { return filepath.Join(files, alias) },
	}
}

func TestCredentialsInTheArgumentsOfAConfinedServer(t *testing.T) {
	r := newRig(t)
	r.referring()
	r.confined()
	r.checkArguments(r.proven())
}

// A call's result lists the hosts that the server contacted and the rights that it lacked while the call ran. The
// refusal of a failed call has a hint with the command that adds the rights.
func TestObserved(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go io.Copy(c, c) // echo until the server ends
		}
	}()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	here, closedPort := l.Addr().String(), closed.Addr().String()
	r := newRig(t)
	r.o.Lookup = lookup(map[string]string{"TOKEN": "a-secret-of-the-owner"})
	s := r.fake("one", []string{"echo", "connect", "connect_crash", "run", "send"})
	s.Env = append(s.Env, agent.Setting{Name: "TOKEN", Value: "$env:TOKEN", Refs: []string{"TOKEN"}})
	r.confined(
		agent.Right{Kind: agent.CanConnect, What: here, Private: true},
		agent.Right{Kind: agent.CanConnect, What: closedPort, Private: true},
	)
	var denied atomic.Int64
	r.o.Confine.OnDenial = func(Denial) { denied.Add(1) }
	m := r.proven()
	var many []string
	for i := range maxObserved + 5 {
		many = append(many, fmt.Sprintf("h%d.test:443", i))
	}
	connect := func(what string, private bool) []agent.Right {
		return []agent.Right{{Kind: agent.CanConnect, What: what, Private: private}}
	}
	for _, tt := range []struct {
		name, tool, path string
		contacted        []string
		refused          []agent.Right
		omitted          int
		hint             string // a part that the hint must contain; "" if there must be no hint
	}{
		{name: "nothing", tool: "echo"},
		{name: "contacted", tool: "connect", path: here, contacted: []string{here}},
		{name: "contacted again", tool: "send", contacted: []string{here}},
		{
			name: "a name", tool: "connect", path: "refused.test:443", refused: connect("refused.test:443", false),
			hint: "run: ambit allow desk one --host refused.test:443\"",
		},
		{
			name: "a private address", tool: "connect", path: "10.0.0.1:5432", refused: connect("10.0.0.1:5432", true),
			hint: "run: ambit allow desk one --host 10.0.0.1:5432 --private\"",
		},
		{
			name: "a port of this machine", tool: "connect", path: "localhost:1", refused: connect("localhost:1", true),
			hint: "run: ambit allow desk one --host localhost:1 --private\"",
		},
		{
			name: "never allowed", tool: "connect", path: "169.254.169.254:80", refused: connect("169.254.169.254:80", false),
			hint: `\"169.254.169.254:80\" to the server while the call ran"`,
		},
		{name: "unreachable", tool: "connect", path: closedPort},
		{
			name: "a program", tool: "run", path: "/bin/true",
			refused: []agent.Right{{Kind: agent.CanExecute, What: "/usr/bin/true"}},
			hint:    "run: ambit allow desk one --exec /usr/bin/true\"",
		},
		{
			name: "a credential", tool: "run", path: "/tmp/a-secret-of-the-owner\u001b",
			refused: []agent.Right{{Kind: agent.CanExecute, What: `/tmp/$env:TOKEN\u001b`}},
			hint:    "to the server while the call ran\"",
		},
		{name: "no program", tool: "run", path: "/bin/no-such-program"},
		{
			name: "many", tool: "connect", path: strings.Join(many, " "), omitted: 5,
			hint: "and more to the server while the call ran; if the server needs it, " +
				"run: ambit allow desk one --host h0.test:443 && ",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			arguments, err := json.Marshal(map[string]string{"path": tt.path})
			if err != nil {
				t.Fatal(err)
			}
			result, refusal := r.call(m, "one", tt.tool, string(arguments))
			if refusal != nil {
				t.Fatal(refusal)
			}
			got, raw := result.Observed, string(result.Raw)
			if tt.name == "many" {
				got.Refused = nil
			}
			want := call.Observed{Contacted: tt.contacted, Refused: tt.refused, Omitted: tt.omitted}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, want %+v", got, want)
			}
			if hinted := strings.Contains(raw, "ambit refused"); hinted != (tt.hint != "") ||
				!strings.Contains(raw, tt.hint) || !json.Valid(result.Raw) {
				t.Errorf("got %s, want the hint %q", raw, tt.hint)
			}
			if result.IsError && !strings.HasPrefix(raw, `{"content":[{"type":"text","text":`) {
				t.Errorf("the server's own error is missing: %s", raw)
			}
			if strings.Contains(r.log()+fmt.Sprint(m.Denials()), "a-secret") {
				t.Error("a credential is in the log or in the denials")
			}
		})
	}
	_, refusal := r.call(m, "one", "connect_crash", `{"path":"refused.test:443"}`)
	if refusal == nil || !strings.HasSuffix(refusal.HintFor("desk"), "run: ambit allow desk one --host refused.test:443") {
		t.Errorf("a crash: got %+v", refusal)
	}
	denials := m.Denials()
	latest := denials[0]
	if len(denials) != maxObserved || latest.What != "refused.test:443" || latest.Server != "one" || latest.Allow == "" {
		t.Errorf("got %d denials, the latest %+v", len(denials), latest)
	}
	if denied.Load() < maxObserved+5 {
		t.Errorf("%d denials were reported", denied.Load())
	}
}

// If a server fails to start, the refusal names the rights that its sandbox refused.
func TestStartDenied(t *testing.T) {
	r := newRig(t)
	r.fake("one", []string{"echo"}, "-do", "dial-and-exit")
	r.confined()
	p := r.start().Proofs()[0]
	if p.OK || !strings.HasSuffix(p.Refusal.HintFor("desk"), "run: ambit allow desk one --host refused.test:443") {
		t.Errorf("got %+v", p.Refusal)
	}
}

// A program in the server's own package has a path that changes with the package, so the hint says how long the right
// lasts.
func TestProgramOfThePackage(t *testing.T) {
	r := newRig(t)
	r.confined()
	s := &server{alias: "one", options: r.o}
	inside := filepath.Join(r.o.Home.Packages(), "linux-amd64", "x", "tree", "bin", "tool")
	var logged []string
	for _, path := range []string{inside, "/opt/tool"} {
		s.execDenied(path, func(line string) { logged = append(logged, line) })
	}
	if len(logged) != 2 || !strings.Contains(logged[0], "own package") || strings.Contains(logged[1], "own package") {
		t.Errorf("got %q", logged)
	}
}

// A confined server answers calls. It reads the files that its arguments name, writes only
// to its private home, and sees no other file of this machine.
func TestConfined(t *testing.T) {
	for _, class := range []string{"read", "write"} {
		t.Run(class, func(t *testing.T) {
			r := newRig(t)
			s := r.fake("one", []string{"echo", "read", "write:" + class, "environment"})
			secret := filepath.Join(t.TempDir(), "secret")
			if err := os.WriteFile(secret, []byte("hidden text"), 0o600); err != nil {
				t.Fatal(err)
			}
			r.confined()
			m := r.proven()
			r.works(m, "one")
			read := func(path string) string {
				result, refusal := r.call(m, "one", "read", `{"path":"`+path+`"}`)
				if refusal != nil {
					t.Fatal(refusal)
				}
				return string(result.Raw)
			}
			if got := read(secret); strings.Contains(got, "hidden text") {
				t.Errorf("the server read %s: %s", secret, got)
			}
			r.write("one/given", "declared text")
			if got := read(r.path("one/given")); !strings.Contains(got, "declared text") {
				t.Errorf("the server could not read a declared file: %s", got)
			}
			_ = s
		})
	}
}

// The sandbox of a server has the paths and programs of its access. Paths that start at the home or at the working
// folder have the same absolute spelling in the mounts, the arguments and the settings. Hidden folders stay hidden,
// even if the manifest names a path inside.
func TestConfinedSpec(t *testing.T) {
	r := newRig(t)
	home, work := t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	t.Chdir(work)
	tool := filepath.Join(t.TempDir(), "bin", "tool")
	kept := t.TempDir()
	for _, dir := range []string{home + "/notes", home + "/set", work + "/data", filepath.Dir(tool), kept + "/keys"} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(tool, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{home + "/.ambit": kept, work + "/link": kept + "/keys"} {
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}
	declared := r.fake("one", []string{"echo"}, "~/.ambit/keys", "./link", kept, "~/notes", "--dir=./data")
	declared.Env = append(declared.Env, agent.Setting{Name: "AT", Value: "~/set"},
		agent.Setting{Name: "SECRET", Value: "$env:TOKEN", Refs: []string{"TOKEN"}})
	r.o.Lookup = func(string) (string, bool) { return "~/secret", true }
	var more agent.Access
	r.o.Home = ambithome.At(home + "/.ambit")
	r.o.Confine = &Confinement{
		Access: func(s *agent.Server) agent.Access { return r.agent.Access(s).With(more) },
		Files:  func(alias string) string { return r.path("files-" + alias) },
	}
	s := newServer("id", Spec{Server: *declared}, r.o)
	spec := func() sandbox.Spec {
		t.Helper()
		l, err := s.prepare(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		env, err := s.environment(l)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.confinedSpec(l, env, s.log)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	mounted := func(got sandbox.Spec, path string) bool {
		return slices.Contains(got.Mounts, sandbox.Mount{Source: path, To: path, AsOwner: true})
	}
	got := spec()
	for _, path := range []string{home + "/notes", home + "/set", work + "/data"} {
		if !mounted(got, path) {
			t.Errorf("%s is not mounted: %+v", path, got.Mounts)
		}
	}
	for _, m := range got.Mounts {
		if sandbox.Inside(m.Source, kept) && !m.Hide {
			t.Errorf("ambit's files are mounted: %+v", m)
		}
	}
	if args := got.Argv[len(got.Argv)-2:]; args[0] != home+"/notes" || args[1] != "--dir="+work+"/data" {
		t.Errorf("the arguments are %q", args)
	}
	for _, set := range []string{"AT=" + home + "/set", "SECRET=~/secret"} {
		if !slices.Contains(got.Env, set) {
			t.Errorf("%s is missing in %q", set, got.Env)
		}
	}
	if !got.NoExec || got.Programs != nil || mounted(got, tool) {
		t.Errorf("without a right to execute: %v %v", got.NoExec, got.Programs)
	}
	more = agent.Access{{Kind: agent.CanExecute, What: tool}, {Kind: agent.CanExecute, What: "/usr/bin/env"}}
	if got := spec(); !got.NoExec || !slices.Equal(got.Programs, []string{tool, "/usr/bin/env"}) || !mounted(got, tool) ||
		mounted(got, "/usr/bin/env") {
		t.Errorf("with two programs: %v %v %v", got.NoExec, got.Programs, got.Mounts)
	}
	more = agent.Access{{Kind: agent.CanWrite, What: work}}
	if err := errors.Join(os.Remove(work+"/data"), os.Symlink(home+"/set", work+"/data")); err != nil {
		t.Fatal(err)
	}
	if got := spec(); slices.ContainsFunc(got.Mounts, func(m sandbox.Mount) bool { return m.To == work+"/data" }) {
		t.Error("a link that the server may have created was followed")
	}
	more = agent.Access{{Kind: agent.CanExecute, What: agent.Any}}
	if got := spec(); got.NoExec {
		t.Error("NoExec is set, although the server may start every program")
	}
}

// A server that starts containers is refused, unless the owner runs it without confinement.
// A server whose private folder covers the working directory starts in its home, because the private folder lacks the
// folders of this machine.
func TestWorkingDirectory(t *testing.T) {
	for name, tt := range map[string]struct {
		write string
		want  bool
	}{
		"a missing file in a folder above": {"memory.jsonl", false},
		"a missing file in the folder":     {"projects/memory.jsonl", true},
		"a folder above":                   {"", true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			home := realPath(t.TempDir())
			work := filepath.Join(home, "projects")
			if err := os.Mkdir(work, 0o700); err != nil {
				t.Fatal(err)
			}
			t.Chdir(work)
			access := agent.Access{{Kind: agent.CanWrite, What: filepath.Join(home, tt.write)}}
			r.o.Confine = &Confinement{
				Access: func(*agent.Server) agent.Access { return access },
				Files:  func(alias string) string { return r.path("files-" + alias) },
			}
			s := newServer("id", Spec{Server: *r.fake("one", []string{"echo"})}, r.o)
			l, err := s.prepare(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got, err := s.confinedSpec(l, nil, s.log)
			if err != nil {
				t.Fatal(err)
			}
			if (got.Dir == work) != tt.want {
				t.Errorf("the server starts in %q; want the working directory: %v", got.Dir, tt.want)
			}
		})
	}
}

func TestUnconfined(t *testing.T) {
	r := newRig(t)
	s := r.fake("one", []string{"read"})
	docker := r.path("docker")
	if err := os.Symlink(s.Command, docker); err != nil {
		t.Fatal(err)
	}
	s.Command = docker
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("hidden text"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.o.Confine = &Confinement{
		Access: r.agent.Access, Files: func(alias string) string { return r.path("files-" + alias) },
	}
	p := r.start().Proofs()[0]
	if p.OK || p.Refusal.Code != call.IsolationUnavailable || !strings.Contains(p.Refusal.Hint, "--unconfined one") {
		t.Fatalf("a confined docker server: %+v", p.Refusal)
	}
	r.o.Confine.Unconfined = []string{"one"}
	result, refusal := r.call(r.proven(), "one", "read", `{"path":"`+secret+`"}`)
	if refusal != nil || !strings.Contains(string(result.Raw), "hidden text") {
		t.Errorf("the unconfined server cannot read %s: %s %v", secret, result.Raw, refusal)
	}
	if !strings.Contains(r.log(), "one: warning: this server runs WITHOUT confinement") {
		t.Errorf("there was no warning:\n%s", r.log())
	}
}
