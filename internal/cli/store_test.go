//go:build linux

package cli_test

import (
	"bytes"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestStoreOfTheDaemon: verbs that ask find the store of the daemon that runs, and
// say so. Its password is written down nowhere, so that with one they say which
// store they do not look at.
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
			keys string // how many the verb sees without --store, in JSON
		}{
			{"without a password", address.User, "this is the store of the daemon at ", `"id"`},
			{"with one", url.UserPassword(address.User.Username(), "canary"), "keeps its state at postgres://", `"keys": []`},
		} {
			t.Run(tt.name, func(t *testing.T) {
				full := *address
				full.User = tt.user
				d := startDaemon(t, "--store", full.String(), "--agents", t.TempDir())
				ambit("key", "new", "--name", "mine", "--store", full.String())
				out, says := ambit("key", "list", "--json")
				if !strings.Contains(says, tt.says) || !strings.Contains(out, tt.keys) {
					t.Errorf("it says %q, and there are %s", says, out)
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
				d.signal(os.Kill)
				<-d.ended
				// A stopped daemon has no store.
				if _, says := ambit("approvals"); strings.Contains(says, "daemon") {
					t.Errorf("after its end: %q", says)
				}
			})
		}
	})
}

// TestRootOfASharedStore: a machine that comes to a store without its root neither
// makes one nor signs with its own.
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
		// The first begins the store, though it leaves no record.
		if says, code := ambit("first", "key", "list", "--store", store); code != 0 {
			t.Fatal(says)
		}
		if says, code := ambit("new", "key", "list", "--store", store); code != 3 || !strings.Contains(says, "the root key is missing, or was never on this machine") || !strings.Contains(says, "hint: copy keys/root from a machine that uses this store") {
			t.Errorf("without a root: exit %d, %s", code, says)
		}
		if _, err := os.Stat(root("new")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("there is a root: %v", err)
		}
		if says, code := ambit("new", "whoami"); code != 0 { // makes one
			t.Fatal(says)
		}
		for _, verb := range []string{"key list", "journal verify", "journal checkpoint", "rotate root", "worker"} {
			if says, code := ambit("new", append(strings.Fields(verb), "--store", store)...); code != 3 || !strings.Contains(says, "created with another root key") || !strings.Contains(says, "hint: copy keys/root") {
				t.Errorf("%s with a root of its own: exit %d, %s", verb, code, says)
			}
		}
		text, err := os.ReadFile(root("first"))
		if err := errors.Join(err, os.WriteFile(root("new"), text, 0o600)); err != nil {
			t.Fatal(err)
		}
		for _, home := range []string{"new", "first"} {
			if says, code := ambit(home, "journal", "verify", "--store", store); code != 0 || !strings.Contains(says, "whole") {
				t.Errorf("%s with its root: exit %d, %s", home, code, says)
			}
		}
	})
}
