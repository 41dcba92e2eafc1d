//go:build linux && prove

// Package confined_test runs real tool servers in the sandbox that ambit derives from their manifests.
package confined_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/sandbox/sandboxtest"
)

var (
	update = flag.Bool("update", false, "rewrite docs/confined-servers.md")
	only   = flag.String("server", "", "run only this server, and do not compare the results with docs/confined-servers.md")
)

const (
	table    = "../../../docs/confined-servers.md"
	parallel = 2               // how many servers run at the same time
	patience = 8 * time.Minute // the time limit for one server, including the download of its package
	required = 90              // the percentage of servers that must work without additions

	// undeclared is a host that no manifest names.
	undeclared = "other.example.com"
)

// row is a tool server in testdata/servers.json. In arguments, settings and flags, $WORK is a folder with the files in
// testdata/work.
type row struct {
	// The server is a package of npm, or a Python file in testdata.
	Package, Version, File string
	Args                   []string
	Env                    map[string]string
	// Secrets are settings that the manifest takes from ambit's environment.
	Secrets map[string]string
	Tools   map[string]agent.SideEffect
	// API lists the answers of the hosts to which the server connects. A test server takes the place of these hosts.
	API  map[string]json.RawMessage
	Call struct {
		Tool      string
		Arguments json.RawMessage
		// Want is a part of the answer.
		Want string
	}
	// Offline means that the call reports an unreachable host, because nothing takes the place of the host.
	Offline bool
	// Allow lists flags of ambit allow. Only a server that does not work without additions has them. In them, $PACKAGE is
	// the folder of the package in ambit's store.
	Allow []string
	// Unconfined means that the server works only without a sandbox.
	Unconfined bool
	// Needs is the reason why the server needs additions or works only without a sandbox.
	Needs string
}

func (r row) name() string { return cmp.Or(r.Package, r.File) }

// result is what the table says about a row.
type result struct {
	access string
	// derived is nil if the server works without additions. extended is nil if it works with Allow or without a
	// sandbox.
	derived, extended error
}

func TestDerivedAccess(t *testing.T) {
	sandboxtest.Need(t)
	rows := slices.DeleteFunc(read(t), func(r row) bool { return *only != "" && r.name() != *only })
	rig := newRig(t, rows)
	results := make([]result, len(rows))
	turn := make(chan struct{}, parallel)
	var all sync.WaitGroup
	for i := range rows {
		all.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			results[i] = rig.run(ctx, rows[i], filepath.Join(rig.dir, fmt.Sprint(i)))
			t.Logf("%s: %s", rows[i].name(), cmp.Or(message(results[i].derived), "ok"))
		})
	}
	all.Wait()
	works := 0
	for i, got := range results {
		switch r := rows[i]; {
		case got.derived == nil && r.Needs != "":
			t.Errorf("%s works without additions; remove \"needs\" from its row", r.name())
		case got.derived == nil:
			works++
		case r.Needs == "":
			t.Errorf("%s does not work: %v", r.name(), got.derived)
		case got.extended != nil:
			t.Errorf("%s does not work, although its row lists what it needs: %v", r.name(), got.extended)
		default:
			t.Logf("%s does not work without additions: %s", r.name(), r.Needs)
		}
	}
	if *only != "" {
		return
	}
	t.Logf("%d of %d servers work without additions", works, len(rows))
	if works*100 < required*len(rows) {
		t.Errorf("%d of %d servers work without additions, want at least %d %%", works, len(rows), required)
	}
	checkTable(t, rows, results, works)
}

func read(t *testing.T) []row {
	t.Helper()
	text, err := os.ReadFile("testdata/servers.json")
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	var rows []row
	if err := decoder.Decode(&rows); err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if _, ok := r.Tools[r.Call.Tool]; !ok || r.Call.Want == "" || strings.Contains(string(r.Call.Arguments), r.Call.Want) {
			t.Fatalf("%s: the call must be to one of its tools, and its answer must contain more than its arguments", r.name())
		}
		if (r.Needs == "") != (len(r.Allow) == 0 && !r.Unconfined) {
			t.Fatalf("%s: \"needs\" must explain \"allow\" or \"unconfined\"", r.name())
		}
	}
	return rows
}

// rig is what all rows share: the program ambit, and the server that takes the place of the hosts.
type rig struct {
	dir, ambit, certificate, hosts string
}

func newRig(t *testing.T, rows []row) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "confined-") // some servers work only if their path has no capital letters
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // the stored packages are read-only
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, _ error) error {
			if d != nil && d.IsDir() {
				return os.Chmod(path, 0o700)
			}
			return nil
		})
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	g := &rig{dir: dir, ambit: filepath.Join(dir, "ambit"), certificate: filepath.Join(dir, "certificate.pem")}
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", g.ambit, "../../../cmd/ambit")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	answers := map[string]json.RawMessage{undeclared: json.RawMessage(`"an undeclared host"`)}
	for _, r := range rows {
		maps.Copy(answers, r.API)
	}
	api := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answers[r.Host])
	}))
	names := slices.Sorted(maps.Keys(answers))
	api.TLS = &tls.Config{Certificates: []tls.Certificate{certificate(t, g.certificate, names)}}
	api.Config.ErrorLog = log.New(io.Discard, "", 0)
	api.StartTLS()
	t.Cleanup(api.Close)
	for i, name := range names {
		names[i] = name + ":443=" + api.Listener.Addr().String()
	}
	g.hosts = strings.Join(names, ",")
	return g
}

// certificate makes a certificate for the given hosts, and writes it to a file.
func certificate(t *testing.T, file string, hosts []string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		DNSNames: hosts, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, form, form, key.Public(), key)
	if err == nil {
		err = os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// run makes the call of a row without additions and, if the row has additions, with them.
func (g *rig) run(ctx context.Context, r row, dir string) (got result) {
	work := filepath.Join(dir, "work")
	if err := g.prepare(r, dir, work); err != nil {
		return result{derived: err, extended: err}
	}
	var secrets []string
	for name, value := range r.Secrets {
		secrets = append(secrets, name+"="+value)
	}
	got.access, got.derived = g.inspect(ctx, dir, work)
	if got.derived == nil {
		got.derived = g.call(ctx, r, dir, work, secrets)
	}
	switch {
	case r.Unconfined:
		got.extended = g.call(ctx, r, dir, work, secrets, "--unconfined", "server")
	case len(r.Allow) > 0:
		if got.extended = g.allow(ctx, r, dir, work); got.extended == nil {
			got.extended = g.call(ctx, r, dir, work, secrets)
		}
	}
	return got
}

// allow gives a server the additions of its row.
func (g *rig) allow(ctx context.Context, r row, dir, work string) error {
	stored, err := filepath.Glob(filepath.Join(dir, "home", "packages", "*", "*", "tree"))
	if err != nil || r.Package != "" && len(stored) != 1 {
		return fmt.Errorf("the store contains the packages %q: %w", stored, err)
	}
	expand := strings.NewReplacer("$WORK", work, "$PACKAGE", strings.Join(stored, ""))
	args := []string{"allow", "agent.json", "server", "--yes"}
	for _, flag := range r.Allow {
		args = append(args, expand.Replace(flag))
	}
	if out, err := g.command(ctx, dir, nil, args...); err != nil {
		return fmt.Errorf("ambit allow: %w\n%s", err, out)
	}
	return nil
}

// prepare writes the manifest of a row and the files that its server works with.
func (g *rig) prepare(r row, dir, work string) error {
	if err := os.CopyFS(work, os.DirFS("testdata/work")); err != nil {
		return err
	}
	database := exec.Command("/usr/bin/python3", "-c", `import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as db:
    db.execute("CREATE TABLE fruit (name TEXT, price INTEGER)")
    db.execute("INSERT INTO fruit VALUES ('orange', 7)")`, filepath.Join(work, "shop.db"))
	if out, err := database.CombinedOutput(); err != nil {
		return fmt.Errorf("python3: %w\n%s", err, out)
	}
	expand := strings.NewReplacer("$WORK", work)
	program, args := "npx", []string{"-y", r.Package + "@" + r.Version}
	if r.File != "" {
		program, args = "/usr/bin/python3", []string{filepath.Join("server", r.File)} // the folder of a program is read-only
		text, err := os.ReadFile(filepath.Join("testdata", r.File))
		if err == nil {
			err = errors.Join(os.Mkdir(filepath.Join(dir, "server"), 0o700), os.WriteFile(filepath.Join(dir, args[0]), text, 0o600))
		}
		if err != nil {
			return err
		}
	}
	for _, arg := range r.Args {
		args = append(args, expand.Replace(arg))
	}
	env := []string{}
	for _, name := range slices.Sorted(maps.Keys(r.Env)) {
		env = append(env, name+"="+expand.Replace(r.Env[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Secrets)) {
		env = append(env, name+"=$env:"+name)
	}
	if len(r.API) > 0 {
		trust := filepath.Join(dir, "certificate.pem")
		env = append(env, "NODE_EXTRA_CA_CERTS="+trust, "SSL_CERT_FILE="+trust)
		if err := os.Link(g.certificate, trust); err != nil {
			return err
		}
	}
	var tools []any
	classes := map[agent.SideEffect]bool{}
	for _, name := range slices.Sorted(maps.Keys(r.Tools)) {
		classes[r.Tools[name]] = true
		tools = append(tools, map[string]any{"name": name, "description": name, "side_effect_class": r.Tools[name]})
	}
	manifest, err := json.Marshal(map[string]any{
		"schema_version": 1, "agent": "matrix://agent/confined", "description": "Calls one tool server.",
		"allowed_side_effects": slices.Sorted(maps.Keys(classes)),
		"servers": []any{map[string]any{
			"alias": "server", "transport": "stdio", "command": program, "args": args, "env": env,
			"package_digest": "sha256:" + strings.Repeat("0", 64), "version": cmp.Or(r.Version, "1.0.0"), "tools": tools,
		}},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "agent.json"), manifest, 0o600)
}

// inspect describes in a few words what the server can use.
func (g *rig) inspect(ctx context.Context, dir, work string) (string, error) {
	out, err := g.command(ctx, dir, nil, "inspect", "agent.json", "--json")
	var shown struct {
		Servers []struct{ Access agent.Access }
	}
	if err == nil {
		err = json.Unmarshal([]byte(out), &shown)
	}
	if err != nil || len(shown.Servers) != 1 {
		return "", fmt.Errorf("ambit inspect: %w\n%s", err, out)
	}
	var rights []string
	for _, r := range shown.Servers[0].Access {
		if text := r.String(); !strings.HasSuffix(text, "certificate.pem") { // the certificate belongs to the test, not to the server
			rights = append(rights, strings.ReplaceAll(text, work, "WORK"))
		}
	}
	return cmp.Or(strings.Join(rights, "; "), "nothing"), nil
}

func (g *rig) call(ctx context.Context, r row, dir, work string, secrets []string, flags ...string) error {
	arguments := strings.ReplaceAll(cmp.Or(string(r.Call.Arguments), "{}"), "$WORK", work)
	out, err := g.command(ctx, dir, secrets, append([]string{"call", "agent.json", r.Call.Tool, "--input", arguments}, flags...)...)
	switch {
	case r.Offline && strings.Contains(out, "ambit refused"):
		err = errors.New("the host was refused, but it must only be unreachable")
	case strings.Contains(out, r.Call.Want):
		return nil
	case err == nil:
		err = errors.New("the answer does not contain the wanted text")
	}
	return fmt.Errorf("%w\n%s", err, out)
}

func (g *rig) command(ctx context.Context, dir string, secrets []string, args ...string) (out string, err error) {
	cmd := exec.CommandContext(ctx, g.ambit, args...)
	cmd.Dir, cmd.WaitDelay = dir, 10*time.Second
	cmd.Env = append(os.Environ(), "AMBIT_HOME="+filepath.Join(dir, "home"), "AMBIT_DEV_RESOLVE="+g.hosts, "NO_COLOR=1")
	cmd.Env = append(cmd.Env, secrets...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	var answer, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &answer, &log
	if err = cmd.Run(); err != nil {
		err = fmt.Errorf("%w\n%s", err, log.String())
	}
	return answer.String(), err
}

// TestUndeclaredHost checks that a server with a declared host cannot connect to another host.
func TestUndeclaredHost(t *testing.T) {
	sandboxtest.Need(t)
	rows := read(t)
	at := slices.IndexFunc(rows, func(r row) bool { return r.File == "request.py" })
	if at < 0 {
		t.Fatal("testdata/servers.json does not list request.py")
	}
	g, r := newRig(t, rows), rows[at]
	for i, tt := range []struct{ url, want string }{
		{"/fruit", r.Call.Want},
		{"https://" + undeclared, `ambit refused "` + undeclared + `:443"`},
	} {
		r.Call.Arguments, r.Call.Want = json.RawMessage(`{"url": "`+tt.url+`"}`), tt.want
		if err := g.run(t.Context(), r, filepath.Join(g.dir, fmt.Sprint(i))).derived; err != nil {
			t.Errorf("%s: %v", tt.url, err)
		}
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// checkTable compares the results with the page that lists them, or writes the page.
func checkTable(t *testing.T, rows []row, results []result, works int) {
	t.Helper()
	var page strings.Builder
	fmt.Fprintf(&page, "# Servers that run confined\n\n"+
		"`make prove` starts these servers in the sandbox that ambit derives from their manifests, and calls one of their tools.\n"+
		"%d of %d work without additions. `WORK` is the folder that the owner gives to the server. A test server takes the place\n"+
		"of the hosts on the internet. [Confined tool servers](guides/confinement.md) explains the rights.\n\n"+
		"| server | version | what it can use | result |\n|---|---|---|---|\n", works, len(rows))
	for i, r := range rows {
		verdict := "works"
		switch {
		case results[i].derived == nil && r.Offline:
			verdict = "works, as far as the test can tell without its host"
		case results[i].derived == nil:
		case results[i].extended != nil || r.Needs == "":
			verdict = "does not work"
		case r.Unconfined:
			verdict = fmt.Sprintf("works only with `--unconfined server`, because %s", r.Needs)
		default:
			verdict = fmt.Sprintf("works after `ambit allow … %s`, because %s", strings.ReplaceAll(strings.Join(r.Allow, " "), "$", ""), r.Needs)
		}
		fmt.Fprintf(&page, "| `%s` | %s | %s | %s |\n", r.name(), cmp.Or(r.Version, "ours"), results[i].access, verdict)
	}
	if *update {
		if err := os.WriteFile(table, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(table); err != nil || string(want) != page.String() {
		t.Errorf("%s differs from the results; run the test with -update (%v)\n%s", table, err, page.String())
	}
}
