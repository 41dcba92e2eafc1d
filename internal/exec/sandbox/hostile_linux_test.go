//go:build amd64

package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/egress"
)

// attempts are the results of a hostile program.
type hostileAttempt struct {
	Name, Detail, Given string
	Through             bool
}

// A hostile program achieves nothing in the confined tier, whatever rights it has. Without a sandbox, the same attempts
// succeed, unless they would do harm.
func TestHostile(t *testing.T) {
	needConfined(t)
	for _, script := range []struct {
		interpreter, name string
		least             int
	}{{"python3", "hostile.py", 180}, {"node", "hostile.cjs", 110}} {
		t.Run(script.interpreter, func(t *testing.T) {
			file, err := filepath.Abs(filepath.Join("testdata", script.name))
			if err != nil {
				t.Fatal(err)
			}
			t.Run("without a sandbox", func(t *testing.T) {
				w := newHostileWorld(t, true)
				out, err := exec.CommandContext(t.Context(), script.interpreter, file, w.describe(t)).Output()
				if err != nil {
					t.Fatal(err)
				}
				for _, a := range hostileAttempts(t, out) {
					if !a.Through {
						t.Errorf("the attempt %s failed without a sandbox too, so it cannot show that the sandbox works: %s", a.Name, a.Detail)
					}
				}
			})
			for profile, gives := range map[string][]string{
				"nothing": nil, "write": {"write"}, "network": {"network"}, "shell": {"write", "network", "shell"},
			} {
				t.Run(profile, func(t *testing.T) {
					w := newHostileWorld(t, false)
					s := w.spec(t, gives)
					s.Argv = []string{script.interpreter, "/" + script.name, w.describe(t)}
					s.Mounts = append(s.Mounts, Mount{Source: file, To: "/" + script.name})
					out, err := Run(t.Context(), s)
					if err != nil || out.ExitCode != 0 {
						t.Fatalf("%v: %+v", err, out)
					}
					all := hostileAttempts(t, out.Stdout)
					for _, a := range all {
						if want := slices.Contains(gives, a.Given); a.Through != want {
							t.Errorf("%s got through: %t, want %t (%s)", a.Name, a.Through, want, a.Detail)
						}
					}
					if len(all) < script.least {
						t.Errorf("the program made %d attempts, want at least %d", len(all), script.least)
					}
					w.mu.Lock()
					defer w.mu.Unlock()
					if i := slices.IndexFunc(w.lookups, func(n string) bool { return strings.Contains(n, "undeclared") }); i >= 0 {
						t.Errorf("a query for the name %s reached a resolver outside the sandbox", w.lookups[i])
					}
				})
			}
		})
	}
}

func hostileAttempts(t *testing.T, output []byte) (all []hostileAttempt) {
	t.Helper()
	for line := range strings.Lines(string(output)) {
		var a hostileAttempt
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatal(err)
		}
		all = append(all, a)
	}
	return all
}

// hostileWorld is what a hostile program attacks.
type hostileWorld struct {
	Machine  string `json:"machine"`
	Declared string `json:"declared"`
	Port     int    `json:"port"`
	UDP      int    `json:"udp"`
	Abstract string `json:"abstract"`
	Allowed  string `json:"allowed"`
	PID      int    `json:"pid"`
	Control  bool   `json:"control"`

	mu      sync.Mutex
	lookups []string
}

func newHostileWorld(t *testing.T, control bool) *hostileWorld {
	t.Helper()
	w := &hostileWorld{
		Machine: shortDir(t), Declared: shortDir(t), Allowed: "allowed.test", PID: os.Getpid(), Control: control,
		Abstract: fmt.Sprintf("ambit-hostile-%d", os.Getpid()),
	}
	for _, file := range []string{
		"secret", "home/.ssh/id_ed25519", "home/.ssh/config", "home/.aws/credentials", "home/.config/gcloud/credentials.db",
		"home/.azure/accessTokens.json", "home/.kube/config", "home/.docker/config.json", "home/.netrc", "home/.npmrc",
		"home/.pgpass", "home/.bash_history", "home/.gnupg/secring.gpg", "parent/ambit/keys/root", "parent/ambit/vault.age",
		"parent/ambit/store.db", "parent/ambit/servers/other/alias/token", "tmp/ambit.bundle/main.py",
		"tmp/ambit.memory/memory.jsonl", "serve.log",
	} {
		w.write(t, filepath.Join(w.Machine, file))
	}
	for _, file := range []string{"file", "manifest.json", "hidden/key"} {
		w.write(t, filepath.Join(w.Declared, file))
	}
	greet := func(network, address string) net.Addr {
		l, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() { // this goroutine ends when the listener is closed
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				c.Write([]byte("canary\n"))
				c.Close()
			}
		}()
		return l.Addr()
	}
	w.Port = greet("tcp", "127.0.0.1:0").(*net.TCPAddr).Port
	greet("unix", "@"+w.Abstract)
	for _, folder := range []string{w.Machine, w.Declared} {
		greet("unix", filepath.Join(folder, "socket"))
		if err := os.Chmod(filepath.Join(folder, "socket"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { udp.Close() })
	w.UDP = udp.LocalAddr().(*net.UDPAddr).Port
	go func() { // this goroutine ends when the socket is closed
		for {
			_, from, err := udp.ReadFrom(make([]byte, 16))
			if err != nil {
				return
			}
			udp.WriteTo([]byte("canary\n"), from)
		}
	}()
	return w
}

// write writes a file that every user may read and write, so that only the sandbox protects it.
func (w *hostileWorld) write(t *testing.T, file string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o777), os.WriteFile(file, []byte("canary"), 0o666), os.Chmod(file, 0o666)); err != nil {
		t.Fatal(err)
	}
}

func (w *hostileWorld) describe(t *testing.T) string {
	t.Helper()
	text, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// LookupNetIP is the resolver outside the sandbox. It knows only one name, whose address is the machine's loopback.
func (w *hostileWorld) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lookups = append(w.lookups, host)
	return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
}

func (w *hostileWorld) spec(t *testing.T, gives []string) Spec {
	t.Helper()
	s := Spec{
		Tier: Confined, NoExec: !slices.Contains(gives, "shell"), PIDs: 64, OnStderr: func(line string) { t.Log(line) },
		Mounts: []Mount{{Source: t.TempDir(), To: Home, Write: true, Give: true}},
	}
	if slices.Contains(gives, "write") {
		s.Mounts = append(s.Mounts,
			Mount{Source: w.Declared, To: w.Declared, Write: true, AsOwner: true},
			Mount{Source: w.Declared + "/manifest.json", To: w.Declared + "/manifest.json", AsOwner: true},
			Mount{To: w.Declared + "/hidden", Hide: true})
	}
	if slices.Contains(gives, "network") {
		env := map[string]string{egress.EnvResolve: fmt.Sprintf("allowed.test:80=127.0.0.1:%d", w.Port)}
		sw, err := egress.Read(func(n string) (string, bool) { v, ok := env[n]; return v, ok }, false, false)
		if err != nil {
			t.Fatal(err)
		}
		dialer := egress.NewDialer(sw)
		dialer.Resolver = w
		policy := egress.Policy{Mode: egress.ModeHosts, Hosts: []string{"allowed.test", "rebind.test"}}
		s.Network = egress.NewNetwork(dialer, policy, nil)
	}
	return s
}
