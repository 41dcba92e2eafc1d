package sandbox

import (
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
)

// dup returns a descriptor that children inherit.
func dup(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD, 50)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "leak"), nil
}

// TestOrdinaryWork checks that ordinary programs run, so that a sandbox that refuses everything fails the tests.
func TestOrdinaryWork(t *testing.T) {
	for _, tt := range []struct {
		name string
		argv []string
		want string
	}{
		{"shell", []string{"sh", "-c", "cat; echo x > /tmp/x; cat /tmp/x; cd; pwd; echo y > /dev/stdout"}, "input\nx\n/scratch/home\ny"},
		{"asyncio", python("import asyncio\nasync def f():\n    await asyncio.sleep(0.01)\n    p = await asyncio.create_subprocess_exec('true')\n    return await p.wait()\nprint(asyncio.run(f()))"), "0"},
		{"threads and processes", python("import threading, multiprocessing as m\nt = threading.Thread(target=print, args=('t',)); t.start(); t.join()\nq = m.get_context('fork').SimpleQueue()\np = m.get_context('fork').Process(target=q.put, args=('p',)); p.start(); p.join(); print(q.get())"), "t\np"},
		{"local sockets", python("import socket, threading\ns = socket.create_server(('127.0.0.1', 0))\nthreading.Thread(target=lambda: s.accept()[0].send(b'hi')).start()\nprint(socket.create_connection(s.getsockname()).recv(2).decode())"), "hi"},
		{"node workers", []string{"node", "-e", "const {Worker}=require('worker_threads'); new Worker('require(\"worker_threads\").parentPort.postMessage(1)',{eval:true}).on('message',m=>console.log(m))"}, "1"},
		{"node children and files", []string{"node", "-e", "const fs=require('fs'); fs.writeFileSync('/tmp/a','b'); console.log(fs.readFileSync('/tmp/a')+require('child_process').execSync('echo c')+require('os').userInfo().username)"}, "bc\nagent"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := do(t, Spec{Argv: tt.argv, Stdin: []byte("input\n"), PIDs: 64}); got != tt.want {
				t.Errorf("got stdout %q, want %q", got, tt.want)
			}
		})
	}
}

// TestFolderOnThePath checks that a folder in PATH is skipped if it has the name of the program.
func TestFolderOnThePath(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "echo"), 0o755), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	s := Spec{Argv: []string{"echo", "found"}, Mounts: []Mount{{Source: dir, To: "/usr/local/bin"}}}
	if got := do(t, s); got != "found" {
		t.Errorf("got stdout %q, want found", got)
	}
	if !strong {
		return
	}
	// With network access, the shim starts a child process.
	s.Network = egress.NewNetwork(egress.NewDialer(egress.Switches{}), egress.Policy{}, nil)
	if got := do(t, s); got != "found" {
		t.Errorf("with network access: got stdout %q, want found", got)
	}
}

// TestUmask checks that a restrictive umask of ambit does not hide files from the run's user.
func TestUmask(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	if got := do(t, Spec{Argv: python("import os; open(os.environ['HOME'] + '/x', 'w'); print(open('/etc/passwd').read()[:5], len(os.listdir('/usr')) > 0)")}); got != "agent True" {
		t.Errorf("got stdout %q, want agent True", got)
	}
}

// TestMountsOutOfReach checks that a folder below a private folder of ambit's user can be mounted.
func TestMountsOutOfReach(t *testing.T) {
	dir := t.TempDir()
	inner := filepath.Join(dir, "closed", "agent")
	if err := os.MkdirAll(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(inner, "f"), []byte("content"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "closed"), 0o700); err != nil {
		t.Fatal(err)
	}
	if got := do(t, Spec{Argv: []string{"cat", "/agent/f"}, Mounts: []Mount{{Source: inner, To: "/agent"}}}); got != "content" {
		t.Errorf("got stdout %q, want content", got)
	}
	_, err := execute(t.Context(), Spec{Argv: []string{"true"}, Mounts: []Mount{{Source: inner + "x", To: "/agent"}}})
	if u, ok := errors.AsType[*Unavailable](err); !ok || u.Code != call.IsolationUnavailable {
		t.Errorf("mounting a missing folder: got error %v, want isolation_unavailable", err)
	}
}

// TestWayOut checks that common HTTP clients reach an allowed host through the proxy, and no other host.
func TestWayOut(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		io.WriteString(w, "hello from "+r.Host+string(body))
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS() // the server's certificate is for example.com
	t.Cleanup(s.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o644); err != nil {
		t.Fatal(err)
	}
	to := s.Listener.Addr().String()
	env := map[string]string{egress.EnvResolve: "example.com:443=" + to + ",other.test:443=" + to, egress.EnvCA: ca}
	sw, err := egress.Read(func(n string) (string, bool) { v, ok := env[n]; return v, ok }, false, false)
	if err != nil {
		t.Fatal(err)
	}
	spec := func(argv []string) Spec {
		return Spec{
			Argv: argv, Mounts: []Mount{{Source: ca, To: "/ca.pem"}}, Env: []string{"SSL_CERT_FILE=/ca.pem", "NODE_EXTRA_CA_CERTS=/ca.pem"},
			Network: egress.NewNetwork(egress.NewDialer(sw), egress.Policy{Mode: egress.ModeAllowlist, Hosts: []string{"example.com"}}, nil),
		}
	}
	refused, nodeRefused := "Connection refused", "ECONNREFUSED"
	if strong {
		refused, nodeRefused = "403", "refused the connection to other.test:443 (403)"
	}
	for _, tt := range []struct {
		name string
		argv []string
		want string
	}{
		{"python", python("import urllib.request as u; print(u.urlopen('https://example.com/', b' x').read().decode())"), "hello from example.com x"},
		{"python elsewhere", python("import urllib.request as u\ntry: u.urlopen('https://other.test/')\nexcept OSError as e: print(e)"), refused},
		{"python over http", python("import urllib.request as u\ntry: u.urlopen('http://example.com/')\nexcept OSError as e: print(e)"), refused},
		{"python inside", python("import urllib.request as u\ntry: u.urlopen('https://127.0.0.1/')\nexcept OSError as e: print(e)"), refused},
		{"node fetch", []string{"node", "-e", "fetch('https://example.com/',{method:'POST',body:' x'}).then(r=>r.text()).then(console.log)"}, "hello from example.com x"},
		{"node fetch elsewhere", []string{"node", "-e", "fetch('https://other.test/').catch(e=>console.log(String(e.cause)))"}, nodeRefused},
		{"node https", []string{"node", "-e", "require('https').get('https://example.com/',r=>r.pipe(process.stdout))"}, "hello from example.com"},
		{"node https elsewhere", []string{"node", "-e", "require('https').get('https://other.test/').on('error',e=>console.log(e.message))"}, nodeRefused},
		{"node itself", []string{"node", "-e", "require('http').createServer((q,r)=>r.end('own')).listen(8080,()=>fetch('http://127.0.0.1:8080/').then(r=>r.text()).then(t=>{console.log(t);process.exit()}))"}, "own"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := do(t, spec(tt.argv)); !strings.Contains(got, tt.want) {
				t.Errorf("got stdout %q, want it to contain %q", got, tt.want)
			}
		})
	}
}

// TestProofIsKept checks that a stored proof is valid only for its tier and its key.
func TestProofIsKept(t *testing.T) {
	able(t)
	dir := t.TempDir()
	key := provenMachine().key()
	storeProof(dir, Standard, key)
	if key == "" || !proofStored(dir, Standard, key) || proofStored(dir, Standard, key+"x") || proofStored(dir, Strong, key) || proofStored(dir, Standard, "") || proofStored("", Standard, key) {
		t.Error("the stored proof is not found, or a proof is found for another folder, tier or key")
	}
}
