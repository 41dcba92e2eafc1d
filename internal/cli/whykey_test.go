package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWhyForAKey checks that "ambit why" decides for the principal of an API key as the daemon does: with the groups of
// the key.
func TestWhyForAKey(t *testing.T) {
	dir := t.TempDir()
	home := filepath.Join(dir, "home")
	t.Setenv("AMBIT_HOME", home)
	one := remembering(t, dir, "one", "")
	newKey := func(args ...string) string {
		t.Helper()
		out, _ := exitsWith(t, 0, append([]string{"key", "new", "--agents", "one", "--json"}, args...)...)
		var key struct{ ID string }
		if err := json.Unmarshal([]byte(out), &key); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return "key:" + key.ID
	}
	staff, plain := newKey("--name", "ci", "--group", "staff"), newKey("--name", "plain")
	newKey("--principal", "ada", "--group", "staff")
	newKey("--principal", "eve", "--group", "staff")
	newKey("--principal", "eve")
	rule := "@id(\"staff-only\")\nforbid (principal, action == Action::\"call\", resource)\nunless { principal in Group::\"staff\" };\n"
	if err := os.WriteFile(filepath.Join(home, "policy.cedar"), []byte(rule), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		code int
		args []string
		says string // a part of standard error
	}{
		{"a key in the group", 0, []string{"--as", staff}, "has the groups staff"},
		{"a named principal in the group", 0, []string{"--as", "ada"}, "has the groups staff"},
		{"a key without groups", 1, []string{"--as", plain}, ""},
		{"a supposed group", 1, []string{"--as", staff, "--group", "guests"}, ""},
		{"a supposed token", 1, []string{"--as", staff, "--issuer", "https://login.example.com"}, ""},
		{"the name of a key", 1, []string{"--as", "ci"}, "--as " + staff},
		{"two keys with different groups", 2, []string{"--as", "eve"}, "several API keys"},
		{"an unknown principal", 1, []string{"--as", "bob"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, says := exitsWith(t, tt.code, append([]string{"why", one, "one"}, tt.args...)...)
			if !strings.Contains(says, tt.says) {
				t.Errorf("standard error is %q, want it to contain %q", says, tt.says)
			}
		})
	}
	staffID := strings.TrimPrefix(staff, "key:")
	exitsWith(t, 0, "key", "revoke", staffID)
	exitsWith(t, 1, "why", one, "one", "--as", staff)
}
