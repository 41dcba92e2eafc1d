package sandbox

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/call"
)

// TestLinks checks that a program cannot reach files of this machine through links. The source of a mount must not
// contain a link. ambit itself reads nothing from a program's disk.
func TestLinks(t *testing.T) {
	const secret = "canary-1d8b42aa"
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	host, agent := filepath.Join(dir, "host"), filepath.Join(dir, "agent")
	if err := errors.Join(
		os.Mkdir(host, 0o755), os.Mkdir(agent, 0o755), os.WriteFile(filepath.Join(host, "secret"), []byte(secret), 0o644),
		os.Symlink(filepath.Join(host, "secret"), filepath.Join(agent, "absolute")), os.Symlink("../host/secret", filepath.Join(agent, "relative")),
		os.Symlink(host, filepath.Join(agent, "folder")), os.Symlink("/proc/1/root"+host, filepath.Join(agent, "root")),
	); err != nil {
		t.Fatal(err)
	}
	s := Spec{Mounts: []Mount{{Source: agent, To: "/agent"}}, Env: []string{"HOST=" + host}, Argv: python(`
import os
host = os.environ['HOST']
os.chdir(os.environ['HOME'])
os.symlink(host + '/secret', 'own'); os.symlink('/proc/1/root' + host, 'through')
for p in ('own', 'through/secret', '/agent/absolute', '/agent/relative', '/agent/folder/secret', '/agent/root/secret', '/agent/../../..' + host + '/secret'):
    try: print(p, open(p).read())
    except OSError: pass
for p in (host + '/secret', '/agent/absolute', '/usr/bin/python3', '/etc/hosts'):
    try: os.link(p, 'hard'); print('linked', p)
    except OSError: pass
print('done')
`)}
	if got := do(t, s); got != "done" {
		t.Errorf("the program followed or made links: %s", got)
	}
	// A mount is refused if any part of its source path is a link.
	for _, source := range []string{filepath.Join(agent, "folder"), filepath.Join(agent, "absolute"), filepath.Join(agent, "folder", "secret"), agent + "/relative"} {
		out, err := execute(t.Context(), Spec{Argv: []string{"cat", "/x", "/x/secret"}, Mounts: []Mount{{Source: source, To: "/x"}}})
		if u, ok := errors.AsType[*Unavailable](err); !ok || u.Code != call.IsolationUnavailable || u.Missing.What != "mounts" || strings.Contains(string(out.Stdout), secret) {
			t.Errorf("mount of %s: got error %v and stdout %s, want a refusal", source, err, out.Stdout)
		}
	}
	nothingLeft(t)
}

// TestSocketsOfTheHost checks that a program cannot connect to an abstract socket of this machine or to a socket in a
// mounted folder.
func TestSocketsOfTheHost(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	abstract := "@ambit-test-" + filepath.Base(filepath.Dir(dir))
	for _, name := range []string{filepath.Join(dir, "gram"), abstract} {
		c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	l, err := net.Listen("unix", filepath.Join(dir, "stream"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, name := range []string{"gram", "stream"} {
		if err := os.Chmod(filepath.Join(dir, name), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	got := do(t, Spec{Mounts: []Mount{{Source: dir, To: "/agent"}}, Env: []string{"ABSTRACT=" + abstract[1:]}, Argv: python(`
import os, socket as s
def makes():
    for kind in (s.SOCK_STREAM, s.SOCK_DGRAM):
        yield lambda: s.socket(s.AF_UNIX, kind)
        yield lambda: s.socketpair(s.AF_UNIX, kind)[0]
for address in ('/agent/gram', '/agent/stream', '\\0' + os.environ['ABSTRACT']):
    for make in makes():
        for act in (lambda c: c.connect(address), lambda c: c.sendto(b'x', address)):
            try: act(make()); print('reached', address)
            except OSError: pass
print('done')
`)})
	if got != "done" {
		t.Errorf("the program reached sockets: %s", got)
	}
}

// TestLinksInAWorkFolder leaves a link in a writable folder. If the sandbox's user becomes the owner of the folder, the
// link's target must keep its owner.
func TestLinksInAWorkFolder(t *testing.T) {
	if strong || os.Geteuid() != 0 {
		t.Skip("only root can change owners")
	}
	able(t)
	dir := t.TempDir()
	work, secret := filepath.Join(dir, "work"), filepath.Join(dir, "secret")
	if err := errors.Join(os.Mkdir(work, 0o755), os.WriteFile(secret, []byte("x"), 0o600), os.Link(secret, filepath.Join(work, "hard"))); err != nil {
		t.Fatal(err)
	}
	mounts := []Mount{{Source: work, To: "/given", Write: true, Give: true}}
	for _, command := range []string{"echo kept > /given/f; ln -s " + secret + " /given/soft; mkdir /given/d; ln -s " + dir + " /given/d/up", "cat /given/f /given/soft /given/hard 2>/dev/null; true"} {
		out, err := execute(t.Context(), Spec{Argv: []string{"sh", "-c", command}, Mounts: mounts})
		if err != nil || out.ExitCode != 0 || strings.Contains(string(out.Stdout), "x") {
			t.Fatalf("the run failed with %v, or read the secret: %+v, stdout %s", err, out, out.Stdout)
		}
	}
	for _, path := range []string{secret, dir, filepath.Join(work, "hard")} {
		info, err := os.Stat(path)
		if err != nil || info.Sys().(*syscall.Stat_t).Uid != 0 {
			t.Errorf("the owner of %s was changed (error %v)", path, err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(work, "f")); err != nil || string(text) != "kept\n" {
		t.Errorf("the file in the writable folder contains %q (error %v), want kept", text, err)
	}
	nothingLeft(t)
}
