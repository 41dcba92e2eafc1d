//go:build linux

package cli_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/cli"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// While the database is down, ambit agents does not say that an agent is ready, and its exit code is 3.
func TestAgentsWithoutDatabase(t *testing.T) {
	cluster := statetest.NewCluster(t)
	t.Setenv("AMBIT_HOME", filepath.Join(t.TempDir(), "home"))
	folder := t.TempDir()
	manifest := `{"schema_version": 1, "agent": "matrix://agent/alpha", "allowed_side_effects": ["read"], "servers": []}`
	if err := os.WriteFile(filepath.Join(folder, "alpha.json"), []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startDaemon(t, "--agents", folder, "--store", cluster.Place())
	if out, _ := exitsWith(t, 0, "agents"); !strings.Contains(out, "ready") {
		t.Errorf("with the database: %s", out)
	}
	cluster.Kill()
	// For up to a second, the daemon can report the result of its previous check.
	var out, stderr bytes.Buffer
	code := 0
	for deadline := time.Now().Add(time.Minute); code == 0 && time.Now().Before(deadline); {
		out.Reset()
		stderr.Reset()
		code = cli.Run(t.Context(), []string{"agents"}, strings.NewReader(""), &out, &stderr)
	}
	if code != 3 || strings.Contains(out.String(), "ready") || !strings.Contains(stderr.String(), "cannot use its store") {
		t.Errorf("without the database, ambit agents exits with %d, want 3 and no ready agent: %s%s",
			code, out.String(), stderr.String())
	}
	cluster.Start()
	for deadline := time.Now().Add(time.Minute); code != 0 && time.Now().Before(deadline); {
		code = cli.Run(t.Context(), []string{"agents"}, strings.NewReader(""), io.Discard, io.Discard)
	}
	if code != 0 {
		t.Error("the agents are not ready although the database is back")
	}
	p.stop()
}

// Without --store, verbs use the store of the running daemon and print a note about it. ambit does not save the
// password of a store. If the daemon's store has a password, the verbs use the store in AMBIT_HOME and print a
// warning.
func TestStoreOfTheDaemon(t *testing.T) {
	onPostgres(t, func(t *testing.T, store string) {
		home := filepath.Join(t.TempDir(), "home")
		t.Setenv("AMBIT_HOME", home)
		t.Setenv("PGPASSWORD", "")
		ambit := func(args ...string) (out, said string) {
			t.Helper()
			cmd := exec.CommandContext(t.Context(), "ambit", args...)
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v: %v %s", args, err, stderr.String())
			}
			return stdout.String(), stderr.String()
		}
		address, err := url.Parse(store)
		if err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			name string
			user *url.Userinfo
			says string
			keys string // a part of the output of ambit key list --json without --store
			// part of the output of ambit doctor --json
			doctor string
		}{
			{"without a password", address.User, "using the store of the daemon at ", `"id"`, `"detail": "` + store},
			{"with a password", url.UserPassword(address.User.Username(), "canary"), "keeps its state at postgres://", `"keys": []`, `"detail": "not checked: the daemon at `},
		} {
			t.Run(tt.name, func(t *testing.T) {
				full := *address
				full.User = tt.user
				d := startDaemon(t, "--store", full.String(), "--agents", t.TempDir())
				ambit("key", "new", "--all", "--name", "mine", "--store", full.String())
				ambit("grant", "ada@example.com", "tool.mine", "--store", full.String())
				if out, _ := ambit("grants"); strings.Contains(out, "tool.mine") != (tt.name == "without a password") {
					t.Errorf("ambit grants printed %s, want the grant only if the store's URL has no password", out)
				}
				out, says := ambit("key", "list", "--json")
				if !strings.Contains(says, tt.says) || !strings.Contains(out, tt.keys) {
					t.Errorf("ambit key list printed stderr %q and stdout %s, which do not match the daemon's store",
						says, out)
				}
				// ambit doctor also examines the store of the daemon. Other checks of ambit doctor may fail on this
				// machine.
				checks, _ := exec.CommandContext(t.Context(), "ambit", "doctor", "--json").Output()
				if !strings.Contains(string(checks), tt.doctor) || strings.Contains(string(checks), "canary") {
					t.Errorf("ambit doctor --json printed %s, want %q in it", checks, tt.doctor)
				}
				for _, args := range [][]string{{"approvals"}, {"journal", "show"}, {"grants"}} {
					if _, says := ambit(args...); !strings.Contains(says, d.url) {
						t.Errorf("%v does not name the daemon: %q", args, says)
					}
				}
				text, err := os.ReadFile(filepath.Join(home, "daemon.json"))
				if err != nil || bytes.Contains(text, []byte("canary")) || !bytes.Contains(text, []byte(`"store":"postgres`)) {
					t.Errorf("%v: %s", err, text)
				}
				copied, err := exec.CommandContext(t.Context(), "ambit", "backup", "--plain", filepath.Join(t.TempDir(), "b")).
					CombinedOutput()
				if (err == nil) != (tt.name == "without a password") || !strings.Contains(string(copied), tt.says) {
					t.Errorf("ambit backup returned %v: %s", err, copied)
				}
				d.signal(os.Kill)
				<-d.ended
				// The store of a killed daemon still contains its keys, approvals and journal.
				if _, says := ambit("approvals"); !strings.Contains(says, tt.says) {
					t.Errorf("after the daemon was killed, ambit approvals printed %q, want %q in it", says, tt.says)
				}
			})
		}
	})
}

// A machine may not have the root key of a shared store. Then ambit creates no root key there, and does not sign
// with another root key.
func TestRootOfASharedStore(t *testing.T) {
	onPostgres(t, func(t *testing.T, store string) {
		dir := t.TempDir()
		ambit := func(home string, args ...string) (says string, code int) {
			t.Helper()
			cmd := exec.CommandContext(t.Context(), "ambit", args...)
			cmd.Env = append(os.Environ(), "AMBIT_HOME="+filepath.Join(dir, home))
			out, err := cmd.CombinedOutput()
			if err != nil && cmd.ProcessState == nil {
				t.Fatal(err)
			}
			return string(out), cmd.ProcessState.ExitCode()
		}
		root := func(home string) string { return filepath.Join(dir, home, "keys", "root") }
		// The first home creates the store, even though this command writes no record.
		if says, code := ambit("first", "key", "list", "--store", store); code != 0 {
			t.Fatal(says)
		}
		if says, code := ambit("new", "key", "list", "--store", store); code != 3 || !strings.Contains(says, "the root key is missing from this machine") || !strings.Contains(says, "hint: copy keys/root from a machine that uses this store") {
			t.Errorf("without a root key, ambit key list exits with %d, want 3 and a hint: %s", code, says)
		}
		if _, err := os.Stat(root("new")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a root key was created, or Stat failed: %v", err)
		}
		if says, code := ambit("new", "whoami"); code != 0 { // ambit whoami creates a root key
			t.Fatal(says)
		}
		for _, verb := range []string{"key list", "journal verify", "journal checkpoint", "rotate root", "worker"} {
			if says, code := ambit("new", append(strings.Fields(verb), "--store", store)...); code != 3 || !strings.Contains(says, "created with a different root key") || !strings.Contains(says, "hint: copy keys/root") {
				t.Errorf("with a different root key, ambit %s exits with %d, want 3 and a hint: %s", verb, code, says)
			}
		}
		text, err := os.ReadFile(root("first"))
		if err := errors.Join(err, os.WriteFile(root("new"), text, 0o600)); err != nil {
			t.Fatal(err)
		}
		for _, home := range []string{"new", "first"} {
			if says, code := ambit(home, "journal", "verify", "--store", store); code != 0 || !strings.Contains(says, "intact") {
				t.Errorf("with the store's root key, ambit journal verify exits with %[2]d in the home %[1]s, want 0: %[3]s",
					home, code, says)
			}
		}
	})
}
