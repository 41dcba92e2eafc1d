package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	account "os/user"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// servers describes the running servers: PostgreSQL, Redis and OpenSSH.
type servers struct {
	Ports map[string]string // at 127.0.0.1
	// Key is a private key that lets User in through SSH.
	User, Key string
}

// realServersVar is the environment variable that contains the servers of another process, in JSON. A user without an
// account cannot start PostgreSQL or sshd. The tests that run as an ordinary user therefore use the servers of the
// tests that run as root.
const realServersVar = "PROBE_SERVERS"

// realServers starts servers that run until the test ends.
func realServers(t *testing.T) (s servers) {
	t.Helper()
	if text := os.Getenv(realServersVar); text != "" {
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	installed(t, "/usr/lib/postgresql/*/bin/initdb") // NewCluster would skip the test if PostgreSQL is missing
	postgres := statetest.NewCluster(t)
	s.Ports = map[string]string{"postgres": serveOne(t, pipe(postgres.Socket())), "redis": serveOne(t, pipe(redis(t)))}
	s.Ports["ssh"], s.User, s.Key = sshd(t)
	return s
}

// installed returns the path of a program. The path may contain wildcards.
func installed(t *testing.T, path string) string {
	t.Helper()
	found, err := filepath.Glob(path)
	if err != nil || len(found) == 0 {
		t.Fatalf("%s is not installed; run scripts/setup", path)
	}
	return found[0]
}

// serveOne accepts connections and calls serve for each connection.
func serveOne(t *testing.T, serve func(net.Conn)) string {
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
				serve(c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		work.Wait()
	})
	return portOf(l)
}

func portOf(l net.Listener) string { return fmt.Sprint(l.Addr().(*net.TCPAddr).Port) }

// pipe returns a function that connects a client with a server at a Unix socket. The servers listen at Unix sockets,
// because a test cannot reserve a free port for another program.
func pipe(socket string) func(net.Conn) {
	return func(client net.Conn) {
		server, err := net.Dial("unix", socket)
		if err != nil {
			return
		}
		defer server.Close()
		var both sync.WaitGroup
		both.Go(func() {
			io.Copy(server, client)
			server.(*net.UnixConn).CloseWrite()
		})
		io.Copy(client, server)
		client.(*net.TCPConn).CloseWrite()
		both.Wait()
	}
}

// shortDir returns a folder whose path is short enough for a Unix socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ambit-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// redis starts a Redis server and returns its socket.
func redis(t *testing.T) string {
	dir := shortDir(t)
	socket := filepath.Join(dir, "socket")
	cmd := exec.Command(installed(t, "/usr/bin/redis-server"), "--port", "0", "--unixsocket", socket, "--save", "", "--dir", dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		c, err := net.Dial("unix", socket)
		if err == nil {
			c.Close()
			return socket
		}
		if time.Now().After(deadline) {
			t.Fatalf("redis-server did not start within a minute: %v", err)
		}
	}
}

// sshd starts an OpenSSH server that lets the current user in with a key.
func sshd(t *testing.T) (port, name, key string) {
	program := installed(t, "/usr/sbin/sshd")
	me, err := account.Current()
	if err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil { // Debian's start script makes this folder too
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"host", "key"} {
		out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", at(name)).CombinedOutput()
		if err != nil {
			t.Fatalf("ssh-keygen: %v\n%s", err, out)
		}
	}
	text, err := os.ReadFile(at("key"))
	config := fmt.Sprintf("HostKey %s\nAuthorizedKeysFile %s\nStrictModes no\nUsePAM no\nPidFile none\nPrintMotd no\n",
		at("host"), at("key.pub"))
	if err := errors.Join(err, os.WriteFile(at("config"), []byte(config), 0o600)); err != nil {
		t.Fatal(err)
	}
	port = serveOne(t, func(c net.Conn) {
		f, err := c.(*net.TCPConn).File()
		if err != nil {
			return
		}
		defer f.Close()
		cmd := exec.CommandContext(t.Context(), program, "-i", "-e", "-f", at("config"))
		cmd.Stdin, cmd.Stdout = f, f
		cmd.Run() // if the server fails, its client reports the error
	})
	return port, me.Username, string(text)
}
