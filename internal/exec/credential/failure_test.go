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

// The zero Secret has no value, and no method panics.
func TestNoSecret(t *testing.T) {
	var none Secret
	if none.Type() != "" || none.Hosts() != nil || none.Reveal() != "" || !none.IsZero() || none.allows("example.com") {
		t.Error("the zero Secret has a value")
	}
	s := mustNew(t, Masked, canary)
	text, err := encoding.TextMarshaler(s).MarshalText()
	if err != nil || strings.Contains(string(text)+s.GoString(), canary) {
		t.Errorf("the zero Secret is printed: %v", err)
	}
}

// A failed write returns an error and keeps the old contents.
func TestVaultCannotBeWritten(t *testing.T) {
	s := mustNew(t, Masked, canary)
	t.Run("a file in the place of the home", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "home")
		if err := os.WriteFile(dir, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		v := open(dir, nil)
		if err := v.Set("a", "b", s); err == nil || strings.Contains(err.Error(), canary) {
			t.Errorf("got %v", err)
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

// Kept reports where the key is stored.
func TestKeyKept(t *testing.T) {
	dir := t.TempDir()
	k := keyFile{path: filepath.Join(dir, "keys", "vault")}
	if where, err := (&File{key: k}).Kept(); where != "" || err != nil {
		t.Errorf("none: %q, %v", where, err)
	}
	if _, err := k.create(); err != nil {
		t.Fatal(err)
	}
	if where, err := (&File{key: k}).Kept(); where != "file" || err != nil {
		t.Errorf("a file: %q, %v", where, err)
	}
	if _, err := (&File{key: keyFile{path: dir}}).Kept(); err == nil {
		t.Error("a folder was accepted as a key")
	}
}

// Without AMBIT_HOME, ambit uses the session's keyring if there is one.
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

// A slot's settings apply to servers that use the same credential. Without Environ,
// this process's environment is read.
func TestSlotAndServerWantTheSame(t *testing.T) {
	a := &agent.Agent{
		ID: "x", Slots: []agent.Slot{{Ref: "TOKEN", Env: "TOKEN", Type: "secret", Hosts: []string{"api.example.com"}, Required: true}},
		Servers: []agent.Server{{Alias: "s", Transport: agent.StreamableHTTP, Endpoint: "https://other.example.com/", Headers: []agent.Setting{{Name: "A", Value: "$env:TOKEN", Refs: []string{"TOKEN"}}}}},
	}
	wants := Wants(a)
	if len(wants) != 1 || !slices.Equal(wants[0].Hosts, []string{"api.example.com"}) {
		t.Errorf("Wants returned %+v", wants)
	}
	t.Setenv("TOKEN", canary)
	secret, where, variable, err := (&Source{}).Find(a, wants[0])
	if err != nil || where != InEnvironment || variable != "TOKEN" || secret.Reveal() != canary {
		t.Errorf("found %s in %s, %v", variable, where, err)
	}
	if v := Open(home.At(t.TempDir())); v == nil {
		t.Error("a secret was found without a vault")
	}
}
