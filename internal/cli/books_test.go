//go:build linux

package cli_test

import (
	"bytes"
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
				// One that is gone has no store any more.
				if _, says := ambit("approvals"); strings.Contains(says, "daemon") {
					t.Errorf("after its end: %q", says)
				}
			})
		}
	})
}
