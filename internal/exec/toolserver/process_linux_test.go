package toolserver

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway/call"
)

// said returns the output of a contained shell script.
func said(t *testing.T, script string, change ...func(*program)) string {
	t.Helper()
	p := shell(t, script, change...)
	<-p.exited
	b, err := io.ReadAll(p.stdout)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// A tool server cannot reach the session bus, which could start programs outside its namespace.
func TestSessionIsHidden(t *testing.T) {
	requireContainment(t)
	session := t.TempDir()
	if err := os.Chmod(session, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", session)
	bus := filepath.Join(session, "bus")
	l, err := net.Listen("unix", bus)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	script := fmt.Sprintf("ls -A %s /run/user 2>/dev/null | grep -c -v -e : -e '^$'; test -e %s && echo there || echo gone; echo x > %s/forged; env | grep -c -e XDG_ -e DBUS_", session, bus, session)
	for name, hide := range map[string][]string{"": nil, "ambit's home is within": {filepath.Join(session, "home")}} {
		if got := said(t, script, func(s *program) { s.hidden = hide }); len(hide) == 0 && got != "0\ngone\n0" || len(hide) > 0 && got != "1\ngone\n0" {
			t.Errorf("%s: the server sees %q", name, got)
		}
	}
	if _, err := os.Stat(filepath.Join(session, "forged")); err == nil {
		t.Error("the server wrote to a hidden folder")
	}

	// If the folder is open to other users, it is not a session folder and stays visible.
	if err := os.Chmod(session, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := said(t, "ls "+session); !strings.Contains(got, "bus") {
		t.Errorf("the folder contains %q, want the file bus", got)
	}
}

// A server finds programs that a version manager has linked into a session folder. Such links do not make
// hidden folders visible.
func TestLinkedProgramsAreFound(t *testing.T) {
	requireContainment(t)
	all := t.TempDir()
	session, home, programs := filepath.Join(all, "session"), filepath.Join(all, "home"), filepath.Join(all, "programs", "bin")
	for _, dir := range []string{session, home, programs} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for file, text := range map[string]string{filepath.Join(programs, "hello"): "#!/bin/sh\necho hello\n", filepath.Join(home, "secrets"): "canary", filepath.Join(session, "bus"): "canary"} {
		if err := os.WriteFile(file, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"node": filepath.Dir(programs), "keys": home, "all": all, "root": "/", "self": session} {
		if err := os.Symlink(to, filepath.Join(session, link)); err != nil {
			t.Fatal(err)
		}
	}
	path := []string{filepath.Join(session, "node", "bin")}
	for _, link := range []string{"keys", "all", "root", "self", "node/bin"} {
		path = append(path, filepath.Join(session, link))
	}
	t.Setenv("XDG_RUNTIME_DIR", session)
	t.Setenv("PATH", strings.Join(append(path, os.Getenv("PATH"), session), ":"))
	got := said(t, "hello; cd "+session+"; ls; cat bus keys/secrets all/home/secrets root"+home+"/secrets self/bus; echo x > node/bin/hello", func(s *program) { s.hidden = []string{home} })
	if got != "hello\nnode" {
		t.Errorf("the server sees %q, want the program hello and the link node only", got)
	}
	if text, err := os.ReadFile(filepath.Join(programs, "hello")); err != nil || !strings.Contains(string(text), "hello") {
		t.Errorf("the server changed a linked program to %q (error %v)", text, err)
	}
}

// If ambit runs as root, tool servers can use the basic devices but no disks. Otherwise they can use the devices
// of their user.
func TestDevices(t *testing.T) {
	requireContainment(t)
	const script = `find /dev -type b | wc -l
head -c 4 /dev/zero | wc -c; head -c 4 /dev/urandom | wc -c; head -c 4 /dev/random | wc -c
echo x > /dev/null && echo null; echo x > /dev/shm/ambit-test-$$ && rm /dev/shm/ambit-test-$$ && echo shm
test -c /dev/ptmx && test -c /dev/tty && test -e /dev/stdin && test -e /dev/fd/0 && echo all`
	got, want := said(t, script), "4\n4\n4\nnull\nshm\nall"
	disks, rest, _ := strings.Cut(got, "\n")
	if rest != want {
		t.Errorf("got %q, want %q", rest, want)
	}
	if os.Geteuid() == 0 && disks != "0" {
		t.Errorf("the server sees %s disks, want 0", disks)
	}
}

// TestEnvironmentStaysInside checks that only the server gets the manifest's variables. The environment of bubblewrap
// does not contain these variables, because they could make bubblewrap load code. The arguments of bubblewrap do not
// contain them either.
func TestEnvironmentStaysInside(t *testing.T) {
	if !contained(t) {
		if os.Getenv("CI") == "true" {
			t.Fatal("tool servers are not contained here")
		}
		t.Skip("tool servers are not contained here")
	}
	const secret = "canary-5e1f"
	p := shell(t, `echo "$TOKEN|$EMPTY|${EMPTY-unset}|$LD_LIBRARY_PATH|$BASH_ENV|$(env | sort | cut -d= -f1 | tr '\n' ' ')"; read x`, func(s *program) {
		s.env = append(s.env, "TOKEN="+secret+"=x y", "EMPTY=", "LD_LIBRARY_PATH=/none", "BASH_ENV=/none")
	})
	if got, want := line(t, bufio.NewReader(p.stdout)), secret+"=x y|||/none|/none|BASH_ENV EMPTY LD_LIBRARY_PATH PATH PWD TOKEN"; got != want {
		t.Errorf("the server has %q, want %q", got, want)
	}
	for _, name := range []string{"environ", "cmdline"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.cmd.Process.Pid, name))
		if err != nil {
			t.Fatal(err)
		}
		if name == "environ" && len(text) > 0 || strings.Contains(string(text), secret) {
			t.Errorf("the file %s of bubblewrap contains %q", name, text)
		}
	}
	// The first process in the namespace belongs to bubblewrap too.
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.initPID))
	if err != nil || strings.Contains(string(text), secret) {
		t.Errorf("the first process has the arguments %q (error %v)", text, err)
	}
}

// If containment is required but unavailable, no program is started, calls are refused, and no start is retried.
func TestMustBeContained(t *testing.T) {
	r := newRig(t)
	was := bubblewrap
	t.Cleanup(func() { bubblewrap = was })
	bubblewrap = func() string { return "" }
	r.o.Contain, r.o.Persist = true, true
	for _, alias := range []string{"one", "two"} {
		r.fake(alias, []string{"echo"})
	}
	m := r.start()
	for _, p := range m.Proofs() {
		if p.OK || p.Contained {
			t.Errorf("%s is proven: %+v", p.Alias, p)
		}
		is(t, p.Refusal, call.IsolationUnavailable, call.NoEffect, false)
		_, refusal := r.call(m, p.Alias, "echo", `{}`)
		is(t, refusal, call.IsolationUnavailable, call.NoEffect, false)
		_, err := m.Forward(t.Context(), &call.Forward{Server: p.Alias, Method: "resources/list", Params: jsontext.Value(`{}`)})
		is(t, call.AsRefusal(stage, err), call.IsolationUnavailable, call.NoEffect, false)
		if lives := r.read(p.Alias + "/lives"); lives != "" {
			t.Errorf("%s was started %s times", p.Alias, lives)
		}
	}
}

func TestCanBeContained(t *testing.T) {
	requireContainment(t)
	r := newRig(t)
	r.o.Contain = true
	r.fake("one", []string{"echo"})
	r.works(r.proven(), "one")
}
