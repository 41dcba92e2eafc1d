package sandbox

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/egress"
)

// If a program may start any program, it can communicate with the other programs over Unix sockets. Other programs have
// no Unix sockets.
func TestUnixSockets(t *testing.T) {
	needConfined(t)
	const script = `
import os, socket, subprocess, sys, tempfile
client = "import socket, sys; s = socket.socket(1, int(sys.argv[2])); s.connect(sys.argv[1].replace('@', chr(0))); print(s.recv(9).decode())"
os.chdir(tempfile.mkdtemp())
for address in "@name", os.environ["HOME"] + "/socket", "/tmp/socket", "relative":
    for kind in socket.SOCK_STREAM, socket.SOCK_SEQPACKET:
        try:
            s = socket.socket(socket.AF_UNIX, kind)
        except OSError as e:
            print(address, kind, e.strerror)
            continue
        bound = address + str(kind)
        s.bind(bound.replace("@", "\0"))
        s.listen()
        child = subprocess.Popen([sys.executable, "-c", client, bound, str(kind)], stdout=subprocess.PIPE)
        c, _ = s.accept()
        c.send(b"hello")
        print(address, kind, child.communicate()[0].decode().strip())
`
	for name, c := range map[string]struct {
		noExec, network bool
		want            string
	}{
		"any program":             {false, true, "hello"},
		"any program, no network": {false, false, "Operation not permitted"},
		"no other program":        {true, true, "Operation not permitted"},
	} {
		t.Run(name, func(t *testing.T) {
			s := Spec{Tier: Confined, NoExec: c.noExec, Argv: []string{"/usr/bin/python3", "-c", script}}
			s.Mounts = []Mount{{Source: t.TempDir(), To: Home, Write: true, Give: true}}
			if c.network {
				s.Network = egress.NewNetwork(egress.NewDialer(egress.Switches{}), egress.Policy{Mode: egress.ModeHosts}, nil)
			}
			out, err := Run(t.Context(), s)
			if err != nil || out.ExitCode != 0 {
				t.Fatalf("%v: %+v", err, out)
			}
			lines := strings.Split(strings.TrimSpace(string(out.Stdout)), "\n")
			if len(lines) != 8 {
				t.Errorf("got %d lines, want 8: %s", len(lines), out.Stdout)
			}
			for _, line := range lines {
				if !strings.HasSuffix(line, " "+c.want) {
					t.Errorf("got %q, want %s", line, c.want)
				}
			}
		})
	}
}

// A program cannot reach a socket outside the sandbox by moving the parent of a private folder, so that the path of the
// private folder leads to the folder of the socket.
func TestMovedPrivateFolder(t *testing.T) {
	needConfined(t)
	declared := shortDir(t)
	l, err := net.Listen("unix", filepath.Join(declared, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Chmod(filepath.Join(declared, "socket"), 0o666); err != nil {
		t.Fatal(err)
	}
	const script = `
import os, socket, sys
os.rename("/tmp/a", "/tmp/z")
os.mkdir("/tmp/a")
os.symlink(sys.argv[1], "/tmp/a/b")
s = socket.socket(socket.AF_UNIX)
try:
    s.connect(sys.argv[1] + "/socket")
    print("reached")
except OSError as e:
    print(e.strerror)
`
	s := Spec{Tier: Confined, Argv: []string{"/usr/bin/python3", "-c", script, declared}}
	s.Network = egress.NewNetwork(egress.NewDialer(egress.Switches{}), egress.Policy{Mode: egress.ModeHosts}, nil)
	s.Mounts = []Mount{
		{Source: t.TempDir(), To: Home, Write: true, Give: true},
		{Source: t.TempDir(), To: "/tmp/a/b", Write: true, Give: true},
		{Source: declared, To: declared, AsOwner: true},
	}
	out, err := Run(t.Context(), s)
	if err != nil || string(out.Stdout) != "Permission denied\n" {
		t.Errorf("%v, %+v: the program printed %q, want a denied permission", err, out, out.Stdout)
	}
}

// A program cannot block ambit with a Unix socket whose queue is full, even if ambit's copy of the calling socket keeps
// the listener alive.
func TestFullUnixSocket(t *testing.T) {
	needConfined(t)
	const script = `
import array, os, socket, threading, time
l = socket.socket(socket.AF_UNIX)
l.bind("/tmp/full")
l.listen(0)
a, b = socket.socketpair()
socket.send_fds(b, [b"x"], [l.fileno()])
held = [socket.socket(socket.AF_UNIX) for _ in range(3)]
for s in held:
    s.setblocking(False)
    try: s.connect("/tmp/full")
    except OSError: pass
def block():
    try: a.connect("/tmp/full")
    except OSError: pass
for _ in range(5): threading.Thread(target=block).start()
time.sleep(0.5)
print("blocked", flush=True)
time.sleep(600)
`
	ctx, cancel := context.WithCancel(t.Context())
	s := Spec{Tier: Confined, Argv: []string{"/usr/bin/python3", "-c", script}}
	s.Network = egress.NewNetwork(egress.NewDialer(egress.Switches{}), egress.Policy{Mode: egress.ModeHosts}, nil)
	s.Mounts = []Mount{{Source: t.TempDir(), To: Home, Write: true, Give: true}}
	s.Talk = func(_ io.WriteCloser, stdout io.ReadCloser) {
		go func() {
			bufio.NewReader(stdout).ReadString('\n')
			cancel()
		}()
	}
	done := make(chan error, 1)
	go func() {
		_, err := Run(ctx, s)
		done <- err
	}()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the run still blocks")
	}
}
