package sandbox

import (
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/egress"
)

// A program that may start any program talks with the others over Unix sockets. Other programs have none.
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
