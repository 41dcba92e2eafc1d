package credential

import (
	"encoding"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/store/home"
)

// TestNoSecret checks that the zero Secret has no value, and that none of its methods panics.
func TestNoSecret(t *testing.T) {
	var none Secret
	if none.Type() != "" || none.Hosts() != nil || none.Reveal() != "" || !none.IsZero() || none.allows("example.com") {
		t.Error("the zero Secret has a value")
	}
	s := mustNew(t, Masked, canary)
	text, err := encoding.TextMarshaler(s).MarshalText()
	if err != nil || strings.Contains(string(text)+s.GoString(), canary) {
		t.Errorf("MarshalText or GoString shows the value: %v", err)
	}
}

// TestVaultCannotBeWritten checks that a failed write returns an error and stores nothing.
func TestVaultCannotBeWritten(t *testing.T) {
	s := mustNew(t, Masked, canary)
	t.Run("a file in the place of the home", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "home")
		if err := os.WriteFile(dir, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		v := open(dir, nil)
		if err := v.Set("a", "b", s); err == nil || strings.Contains(err.Error(), canary) {
			t.Errorf("Set = %v, want an error without the value", err)
		}
	})
	t.Run("a file in the place of the keys", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "keys"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := open(dir, nil).Set("a", "b", s); err == nil {
			t.Error("a secret was stored without a key")
		}
		if _, err := os.Stat(filepath.Join(dir, "secrets")); err == nil {
			t.Error("a vault was created without a key")
		}
	})
	t.Run("a folder in the place of the lock", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "secrets.lock"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := open(dir, nil).Set("a", "b", s); err == nil {
			t.Error("a secret was stored without a lock")
		}
	})
	t.Run("a folder in the place of the vault", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "secrets"), 0o700); err != nil {
			t.Fatal(err)
		}
		v := open(dir, nil)
		if err := v.Set("a", "b", s); err == nil {
			t.Error("Set succeeded without a folder")
		}
		if _, err := v.List(); err == nil {
			t.Error("a folder was accepted as a vault")
		}
	})
}

// TestKeyKept checks that Kept reports where the vault's key is stored.
func TestKeyKept(t *testing.T) {
	dir := t.TempDir()
	k := keyFile{path: filepath.Join(dir, "keys", "vault")}
	if where, err := (&File{key: k}).Kept(); where != "" || err != nil {
		t.Errorf("Kept without a key = %q, %v", where, err)
	}
	if _, err := k.create(); err != nil {
		t.Fatal(err)
	}
	if where, err := (&File{key: k}).Kept(); where != "file" || err != nil {
		t.Errorf("Kept with a key file = %q, %v", where, err)
	}
	if _, err := (&File{key: keyFile{path: dir}}).Kept(); err == nil {
		t.Error("a folder was accepted as a key")
	}
}

// TestSessionKeyring checks that ambit uses the session's keyring only if AMBIT_HOME is not set.
func TestSessionKeyring(t *testing.T) {
	t.Setenv("AMBIT_HOME", t.TempDir())
	if sessionKeyring() != nil {
		t.Error("the keyring is used although AMBIT_HOME is set")
	}
	if runtime.GOOS != "linux" {
		return
	}
	t.Setenv("AMBIT_HOME", "")
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere")
	if sessionKeyring() == nil {
		t.Error("a session with a bus has no keyring")
	}
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "")
	if _, err := os.Stat(fmt.Sprintf("/run/user/%d/bus", os.Getuid())); err != nil && sessionKeyring() != nil {
		t.Error("a session without a bus has a keyring")
	}
}

// TestSlotAndServerWantTheSame checks that the settings of a slot apply to servers that use the same credential. It
// also checks that a nil Environ reads the environment of this process.
func TestSlotAndServerWantTheSame(t *testing.T) {
	a := &agent.Agent{
		ID: "x", Slots: []agent.Slot{{Ref: "TOKEN", Env: "TOKEN", Type: "secret", Hosts: []string{"api.example.com"}, Required: true}},
		Servers: []agent.Server{{Alias: "s", Transport: agent.StreamableHTTP, Endpoint: "https://other.example.com/", Headers: []agent.Setting{{Name: "A", Value: "$env:TOKEN", Refs: []string{"TOKEN"}}}}},
	}
	wants := References(a)
	if len(wants) != 1 || !slices.Equal(wants[0].Hosts, []string{"api.example.com"}) {
		t.Errorf("References returned %+v", wants)
	}
	t.Setenv("TOKEN", canary)
	secret, where, variable, err := (&Source{}).Find(a, wants[0])
	if err != nil || where != InEnvironment || variable != "TOKEN" || secret.Reveal() != canary {
		t.Errorf("Find found %s in %s with error %v, want TOKEN in the environment", variable, where, err)
	}
	if v := Open(home.At(t.TempDir())); v == nil {
		t.Error("Open returned no vault")
	}
}
