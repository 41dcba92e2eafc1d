package sandbox

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	"golang.org/x/sys/unix"

	"github.com/ambit-run/ambit/internal/gateway/egress"
)

// A client is a program that connects to a host and returns what the host sent, or the name of the error. Each client
// runs with an allowed and with a refused host.

// nodeClients are JavaScript expressions. They contain the ports of an HTTP server and an HTTPS server.
var nodeClients = map[string]string{
	"fetch":                         "(await fetch(`http://${host}:${plain}/`)).text()",
	"fetch https":                   "(await fetch(`https://${host}:${secure}/`)).text()",
	"http":                          "body(http.get({host, port: plain}))",
	"http, no keep-alive":           "body(http.get({host, port: plain, agent: new http.Agent({keepAlive: false})}))",
	"https":                         "body(https.get({host, port: secure}))",
	"https with one address family": "body(https.get({host, port: secure, family: 4}))",
	"http upgrade":                  "upgraded(http.get({host, port: plain, headers: upgrade}))",
	"websocket":                     "echoed(`ws://${host}:${plain}/echo`)",
	"websocket, tls":                "echoed(`wss://${host}:${secure}/echo`)",
	"net":                           "talk(net.connect(plain, host))",
	"net without happy eyeballs":    "talk(net.connect({port: plain, host, autoSelectFamily: false}))",
	"net with a lookup before":      "dns.lookup(host).then(a => talk(net.connect(plain, a.address)))",
	"net, resolved":                 "dns.resolve4(host).then(a => talk(net.connect(plain, a[0])))",
	"tls":                           "talk(tls.connect({port: secure, host, servername: host}))",
	"30 at once":                    "Promise.all(Array.from({length: 30}, () => talk(net.connect(plain, host)))).then(l => l[29])",
}

const nodeRunner = `
const dns = require('dns').promises, http = require('http'), https = require('https')
const net = require('net'), tls = require('tls')
const [plain, secure, allowed, refused] = process.argv.slice(2)
const upgrade = {Connection: 'Upgrade', Upgrade: 'websocket'}
const ends = s => new Promise((yes, no) => {
	let all = ''
	s.setEncoding('utf8').on('data', d => all += d).on('end', () => yes(all)).on('error', no)
})
const body = q => new Promise((yes, no) => q.on('response', r => ends(r).then(yes)).on('error', no))
const talk = s => { s.write('GET / HTTP/1.0\r\n\r\n'); return ends(s).then(t => t.split('\r\n\r\n')[1]) }
const upgraded = q => new Promise((yes, no) => q.on('error', no).on('upgrade', (r, s) => {
	ends(s).then(yes)
	s.write('x')
}))
// A WebSocket does not say why it failed, so a plain connection to the same port does.
const echoed = url => new Promise((yes, no) => {
	const s = new WebSocket(url), {hostname, port} = new URL(url)
	s.onopen = () => s.send('hel')
	s.onmessage = e => {
		if (e.data === 'hel') return s.send('hello')
		s.onclose = c => c.wasClean ? yes(e.data) : no(new Error('closed with ' + c.code))
		s.close(1000)
	}
	s.onerror = () => net.connect(port, hostname).on('error', no).on('connect', () => no(new Error('no WebSocket')))
})
const clients = {
%s}
async function run() {
	for (const [name, f] of Object.entries(clients)) for (const host of [allowed, refused]) {
		let got
		try { got = await f(host) } catch (e) { got = (e.cause ?? e).code ?? String(e) }
		console.log(JSON.stringify({name: name + ' to ' + host, got}))
	}
	process.exit()
}
run()
`

// pythonClients are the bodies of Python functions.
var pythonClients = map[string]string{
	"urllib":            "return urllib.request.urlopen(f'http://{host}:{plain}/').read()",
	"urllib https":      "return urllib.request.urlopen(f'https://{host}:{secure}/').read()",
	"http.client":       "return get(http.client.HTTPConnection(host, plain))",
	"http.client https": "return get(http.client.HTTPSConnection(host, secure))",
	"asyncio":           "return asyncio.run(streams(host, plain, None))",
	"asyncio tls":       "return asyncio.run(streams(host, secure, True))",
	"create_connection": "return talk(dial(host))",
	"blocking":          "s = socket.socket(); s.connect((host, plain)); return talk(s)",
	"with a timeout":    "s = socket.socket(); s.settimeout(20); s.connect((host, plain)); return talk(s)",
	"not blocking":      "s = socket.socket(); s.setblocking(False); wait(s, s.connect_ex((host, plain))); return talk(s)",
	"dup before":        "s = socket.socket(); d = s.dup(); s.connect((host, plain)); return talk(d)",
	"epoll before": "s = socket.socket(); e = select.epoll(); e.register(s, select.EPOLLIN); s.connect((host, plain)); " +
		"s.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n'); assert e.poll(20); return talk(s)",
	"bound before":   "s = socket.socket(); s.bind(('', 0)); s.connect((host, plain)); return talk(s)",
	"half closed":    "s = dial(host); s.sendall(request); s.shutdown(socket.SHUT_WR); return rest(s)",
	"ssl":            "return talk(context.wrap_socket(dial(host, secure), server_hostname=host))",
	"IPv6 socket":    "s = socket.socket(socket.AF_INET6); s.connect((mapped(host), plain)); return talk(s)",
	"forked":         "return forked(lambda: talk(dial(host)))",
	"8 threads":      "return threads(8, lambda: talk(dial(host)))",
	"named protocol": "s = socket.socket(proto=socket.IPPROTO_TCP); s.connect((host, plain)); return talk(s)",
}

const pythonRunner = `
import asyncio, concurrent.futures, errno, http.client, json, os, select, socket, ssl, sys, urllib.error, urllib.request
plain, secure, allowed, refused = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
context = ssl.create_default_context()
request = b'GET / HTTP/1.0\r\n\r\n'

def dial(host, port=plain):
    return socket.create_connection((host, port))

def rest(s):
    s.setblocking(True)
    return s.makefile('rb').read().split(b'\r\n\r\n')[1]

def get(c):
    c.request('GET', '/')
    return c.getresponse().read()

def talk(s):
    s.setblocking(True)
    s.sendall(request)
    return rest(s)

def wait(s, code):
    if code == errno.EINPROGRESS:
        select.select([], [s], [])
        code = s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, os.strerror(code))

async def streams(host, port, tls):
    r, w = await asyncio.open_connection(host, port, ssl=tls)
    w.write(request)
    return (await r.read()).split(b'\r\n\r\n')[1]

def attempt(f):
    try:
        return f().decode()
    except OSError as e:
        e = getattr(e, 'reason', e)
        return errno.errorcode.get(e.errno, repr(e))

def mapped(host):
    return '::ffff:' + socket.gethostbyname(host)

def forked(f):
    r, w = os.pipe()
    if os.fork() == 0:
        os.write(w, attempt(f).encode())
        os._exit(0)
    os.close(w)
    got = os.fdopen(r, 'rb').read()
    if got.startswith(b'E'):
        raise OSError(getattr(errno, got.decode()), '')
    return got

def threads(n, f):
    with concurrent.futures.ThreadPoolExecutor(n) as pool:
        return [x.result() for x in [pool.submit(f) for _ in range(n)]][-1]

clients = {}
%s
for name, f in clients.items():
    for host in (allowed, refused):
        print(json.dumps({'name': name + ' to ' + host, 'got': attempt(lambda: f(host))}), flush=True)
`

// probeClients contains the clients that are written in Go. It runs in the sandbox.
func probeClients() {
	ca, err := os.ReadFile("/ca.pem")
	if err != nil {
		panic(err)
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(ca)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	for _, host := range os.Args[3:] {
		plain, secure := net.JoinHostPort(host, os.Args[1]), net.JoinHostPort(host, os.Args[2])
		for name, f := range map[string]func() (*http.Response, error){
			"net/http":       func() (*http.Response, error) { return client.Get("http://" + plain) },
			"net/http https": func() (*http.Response, error) { return client.Get("https://" + secure) },
			"net":            func() (*http.Response, error) { return ask(net.Dial("tcp", plain)) },
			"net, tcp4":      func() (*http.Response, error) { return ask(net.Dial("tcp4", plain)) },
			"tls":            func() (*http.Response, error) { return ask((&tls.Dialer{Config: config}).Dial("tcp", secure)) },
		} {
			resp, err := f()
			got := ""
			if err == nil {
				var b []byte
				b, err = io.ReadAll(resp.Body)
				got = string(b)
			}
			if errno, ok := errors.AsType[unix.Errno](err); ok {
				got = errName(errno)
			} else if err != nil {
				got = err.Error()
			}
			json.NewEncoder(os.Stdout).Encode(map[string]string{"name": name + " to " + host, "got": got})
		}
	}
}

func ask(c net.Conn, err error) (*http.Response, error) {
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(c, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		return nil, err
	}
	return http.ReadResponse(bufio.NewReader(c), nil)
}

// commands are the clients that are command-line programs. In argv, HOST and PORT stand for the address of the server.
var commands = []struct {
	name, port    string // the server that the command connects to: plain, secure, postgres, redis or ssh
	argv          []string
	want, refused string // parts that the output must contain
}{
	{"curl", "plain", []string{"curl", "-sS", "http://HOST:PORT/"}, "hello", "curl: (7)"},
	{"curl https", "secure", []string{"curl", "-sS", "--cacert", "/ca.pem", "https://HOST:PORT/"}, "hello", "curl: (7)"},
	{"curl -4", "plain", []string{"curl", "-sS4", "http://HOST:PORT/"}, "hello", "curl: (7)"},
	{
		"psql", "postgres",
		[]string{"PSQL", "-XAtc", "select 6 * 7, current_user", "postgres://ambit@HOST:PORT/postgres"},
		"42|ambit", "Connection refused",
	},
	{
		"redis-cli", "redis",
		[]string{"sh", "-c", "redis-cli -h HOST -p PORT SET word hello && redis-cli -h HOST -p PORT GET word"},
		"OK\nhello\n", "Connection refused",
	},
	{
		// ssh accepts only a key that no other user can read.
		"ssh", "ssh",
		[]string{"sh", "-c", "install -m 600 /key /tmp/key && echo hello | ssh -F none -i /tmp/key -o BatchMode=yes " +
			"-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -l USER -p PORT HOST 'tr a-z A-Z; echo $((6 * 7))'"},
		"HELLO\n42\n", "Connection refused",
	},
}

// fixedResolver resolves every name to this machine.
type fixedResolver struct{}

func (fixedResolver) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
}

// If nothing listens on a port of the program's own loopback, a connection to that port is reported, because the
// program may mean a server on this machine.
func TestMissedLoopback(t *testing.T) {
	if pooled || strong {
		return
	}
	var mu sync.Mutex
	var got []string
	network := egress.NewNetwork(egress.NewDialer(egress.Switches{}), egress.Policy{}, func(d egress.Decision) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, fmt.Sprint(d.Host, ":", d.Port, " ", d.Remedy == egress.AddPrivate))
	})
	out, err := Run(t.Context(), Spec{Tier: Confined, Network: network, Argv: python(`
import socket
own = socket.create_server(('127.0.0.1', 8080))
socket.create_connection(('localhost', 8080))
print(socket.socket().connect_ex(('localhost', 5432)))`)})
	if err != nil || strings.TrimSpace(string(out.Stdout)) != fmt.Sprint(int(unix.ECONNREFUSED)) {
		t.Errorf("got %q and %v", out.Stdout, err)
	}
	if want := "localhost:5432 true"; strings.Join(got, " ") != want {
		t.Errorf("got the decisions %q, want %q", got, want)
	}
}

// Common clients work in the confined tier without special settings. A refused connection fails at once with
// ECONNREFUSED.
func TestClients(t *testing.T) {
	if pooled || strong {
		return // the confined tier has no pool
	}
	const allowed, refused = "example.com", "refused.test"
	echo := websocket.Server{Handler: func(c *websocket.Conn) {
		io.Copy(c, c)
		c.Close() // this is the answer to the client's close frame
	}}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/echo" {
			echo.ServeHTTP(w, r)
			return
		}
		if r.Header.Get("Upgrade") == "" {
			io.WriteString(w, "hello")
			return
		}
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "websocket")
		w.WriteHeader(http.StatusSwitchingProtocols)
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		if _, err := rw.ReadByte(); err == nil {
			io.WriteString(c, "hello")
		}
	})
	plain, secure := httptest.NewServer(handler), httptest.NewTLSServer(handler) // the server's certificate is for example.com
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.pem")
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(ca, pem.EncodeToMemory(
		&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}), 0o644)); err != nil {
		t.Fatal(err)
	}
	real := realServers(t)
	key := filepath.Join(dir, "key")
	if err := os.WriteFile(key, []byte(real.Key), 0o644); err != nil {
		t.Fatal(err)
	}
	ports := map[string]string{"plain": portOf(plain.Listener), "secure": portOf(secure.Listener)}
	maps.Copy(ports, real.Ports)
	policy := egress.Policy{Mode: egress.ModeHosts, LongRunning: true}
	for _, port := range ports {
		policy.Private = append(policy.Private, allowed+":"+port, "localhost:"+port)
	}
	run := func(t *testing.T, argv []string, env ...string) (stdout []byte, stderr string) {
		dialer := egress.NewDialer(egress.Switches{})
		dialer.Resolver = fixedResolver{}
		var mu sync.Mutex
		var lines strings.Builder
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		out, err := Run(ctx, Spec{
			Tier: Confined, Argv: argv, CPU: 4, MemoryMB: 1024, PIDs: 256, Network: egress.NewNetwork(dialer, policy, nil),
			Mounts: []Mount{{Source: ca, To: "/ca.pem"}, {Source: key, To: "/key"}, {Source: probe(), To: "/probe"}},
			Env:    append(env, "SSL_CERT_FILE=/ca.pem", "NODE_EXTRA_CA_CERTS=/ca.pem"),
			OnStderr: func(line string) {
				mu.Lock()
				defer mu.Unlock()
				lines.WriteString(line + "\n")
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		return out.Stdout, lines.String()
	}
	var node, python strings.Builder
	for name, code := range nodeClients {
		fmt.Fprintf(&node, "\t%q: async host => %s,\n", name, code)
	}
	for name, code := range pythonClients {
		fmt.Fprintf(&python, "def f(host): %s\nclients[%q] = f\n", code, name)
	}
	numbers := []string{ports["plain"], ports["secure"], allowed, refused}
	for _, tt := range []struct {
		name string
		argv []string
		env  []string
		want int
	}{
		{"node", []string{"node", "--experimental-websocket", "-e", fmt.Sprintf(nodeRunner, node.String()), "--", "node"}, nil, len(nodeClients)},
		{"python", []string{"python3", "-c", fmt.Sprintf(pythonRunner, python.String())}, nil, len(pythonClients)},
		{"go", []string{"/probe"}, []string{"PROBE=clients", "GODEBUG=netdns=go", "GORACE=atexit_sleep_ms=0"}, 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stdout, stderr := run(t, append(tt.argv, numbers...), tt.env...)
			n := 0
			for line := range bytes.Lines(stdout) {
				var check struct{ Name, Got string }
				if err := json.Unmarshal(line, &check); err != nil {
					t.Fatalf("%v: %s", err, line)
				}
				want := "hello"
				if strings.HasSuffix(check.Name, refused) {
					want = "ECONNREFUSED"
				}
				if check.Got != want {
					t.Errorf("%s: got %q, want %q", check.Name, check.Got, want)
				}
				n++
			}
			if n != 2*tt.want {
				t.Errorf("%d clients ran, want %d: %s", n, 2*tt.want, stderr)
			}
		})
	}
	psql := installed(t, "/usr/lib/postgresql/*/bin/psql") // on Debian, psql on PATH is a script
	for _, tt := range commands {
		t.Run(tt.name, func(t *testing.T) {
			for host, want := range map[string]string{allowed: tt.want, "localhost": tt.want, refused: tt.refused} {
				if host == "localhost" && tt.port == "secure" {
					continue // the server's certificate is for example.com
				}
				words := strings.NewReplacer("HOST", host, "PORT", ports[tt.port], "PSQL", psql, "USER", real.User)
				var argv []string
				for _, word := range tt.argv {
					argv = append(argv, words.Replace(word))
				}
				stdout, stderr := run(t, argv)
				if got := string(stdout) + stderr; !strings.Contains(got, want) {
					t.Errorf("%s: got the output %q, want it to contain %q", host, got, want)
				}
			}
		})
	}
}
