package toolserver

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// said is what a contained shell script says.
func said(t *testing.T, script string, change ...func(*spec)) string {
	t.Helper()
	p := shell(t, script, change...)
	<-p.exited
	b, err := io.ReadAll(p.stdout)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// A tool server does not reach the bus of the session, by which it would have
// something started outside.
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
		if got := said(t, script, func(s *spec) { s.hide = hide }); len(hide) == 0 && got != "0\ngone\n0" || len(hide) > 0 && got != "1\ngone\n0" {
			t.Errorf("%s: it sees %q", name, got)
		}
	}
	if _, err := os.Stat(filepath.Join(session, "forged")); err == nil {
		t.Error("it wrote into what is hidden from it")
	}

	// A folder that everybody may use is no session's.
	if err := os.Chmod(session, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := said(t, "ls "+session); !strings.Contains(got, "bus") {
		t.Errorf("another folder shows %q", got)
	}
}

// Programs that a version manager has linked among the sockets are still found, and
// nothing hidden comes back by such a link.
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
	got := said(t, "hello; cd "+session+"; ls; cat bus keys/secrets all/home/secrets root"+home+"/secrets self/bus; echo x > node/bin/hello", func(s *spec) { s.hide = []string{home} })
	if got != "hello\nnode" {
		t.Errorf("it sees %q", got)
	}
	if text, err := os.ReadFile(filepath.Join(programs, "hello")); err != nil || !strings.Contains(string(text), "hello") {
		t.Errorf("the program is now %q, %v", text, err)
	}
}

// Root's tool servers have the devices that programs need, and none that holds
// files; those of others have what their user may use anyway.
func TestDevices(t *testing.T) {
	requireContainment(t)
	const script = `find /dev -type b | wc -l
head -c 4 /dev/zero | wc -c; head -c 4 /dev/urandom | wc -c; head -c 4 /dev/random | wc -c
echo x > /dev/null && echo null; echo x > /dev/shm/ambit-test-$$ && rm /dev/shm/ambit-test-$$ && echo shm
test -c /dev/ptmx && test -c /dev/tty && test -e /dev/stdin && test -e /dev/fd/0 && echo all`
	got, want := said(t, script), "4\n4\n4\nnull\nshm\nall"
	disks, rest, _ := strings.Cut(got, "\n")
	if rest != want {
		t.Errorf("it has %q", rest)
	}
	if os.Geteuid() == 0 && disks != "0" {
		t.Errorf("it sees %s disks", disks)
	}
}
