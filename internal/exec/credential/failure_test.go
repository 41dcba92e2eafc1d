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

// No secret is nothing, whatever is asked of it.
func TestNoSecret(t *testing.T) {
	var none Secret
	if none.Type() != "" || none.Hosts() != nil || none.Reveal() != "" || !none.IsZero() || none.meant("example.com") {
		t.Error("it is something")
	}
	s := mustNew(t, Masked, canary)
	text, err := encoding.TextMarshaler(s).MarshalText()
	if err != nil || strings.Contains(string(text)+s.GoString(), canary) {
		t.Errorf("it is shown: %v", err)
	}
}

// A vault that cannot be written says so and loses nothing of what it had.
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
			t.Error("it was kept without a key")
		}
		if _, err := os.Stat(filepath.Join(dir, "secrets")); err == nil {
			t.Error("a vault was made without a key")
		}
	})
	t.Run("a folder in the place of the lock", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "secrets.lock"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := open(dir, nil).Set("a", "b", s); err == nil {
			t.Error("it was kept without a lock")
		}
	})
	t.Run("a folder in the place of the vault", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "secrets"), 0o700); err != nil {
			t.Fatal(err)
		}
		v := open(dir, nil)
		if err := v.Set("a", "b", s); err == nil {
			t.Error("it was kept nowhere")
		}
		if _, err := v.List(); err == nil {
			t.Error("a folder was read as a vault")
		}
	})
}

// Where the key is, if there is one.
func TestKeyKept(t *testing.T) {
	dir := t.TempDir()
	k := keyFile{path: filepath.Join(dir, "keys", "vault")}
	if where, err := k.kept(); where != "" || err != nil {
		t.Errorf("none: %q, %v", where, err)
	}
	if _, err := k.make(); err != nil {
		t.Fatal(err)
	}
	if where, err := k.kept(); where != "file" || err != nil {
		t.Errorf("a file: %q, %v", where, err)
	}
	if _, err := (keyFile{path: dir}).kept(); err == nil {
		t.Error("a folder is a key")
	}
}

// Without a home of its own, ambit asks the session for a keyring, if it has one.
func TestSessionKeyring(t *testing.T) {
	t.Setenv("AMBIT_HOME", t.TempDir())
	if sessionKeyring() != nil {
		t.Error("a home of its own keeps everything")
	}
	if runtime.GOOS != "linux" {
		return
	}
	t.Setenv("AMBIT_HOME", "")
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere")
	if sessionKeyring() == nil {
		t.Error("a session with a bus has a keyring")
	}
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "")
	if _, err := os.Stat(fmt.Sprintf("/run/user/%d/bus", os.Getuid())); err != nil && sessionKeyring() != nil {
		t.Error("a session without a bus has none")
	}
}

// A slot's word on a credential counts for servers too, and this process's
// environment is the one that is looked into.
func TestSlotAndServerWantTheSame(t *testing.T) {
	a := &agent.Agent{
		ID: "x", Slots: []agent.Slot{{Ref: "TOKEN", Env: "TOKEN", Type: "secret", Hosts: []string{"api.example.com"}, Required: true}},
		Servers: []agent.Server{{Alias: "s", Transport: agent.StreamableHTTP, Endpoint: "https://other.example.com/", Headers: []agent.Setting{{Name: "A", Value: "$env:TOKEN", Refs: []string{"TOKEN"}}}}},
	}
	wants := Wants(a)
	if len(wants) != 1 || !slices.Equal(wants[0].Hosts, []string{"api.example.com"}) {
		t.Errorf("it wants %+v", wants)
	}
	t.Setenv("TOKEN", canary)
	secret, where, variable, err := (&Source{}).Find(a, wants[0])
	if err != nil || where != InEnvironment || variable != "TOKEN" || secret.Reveal() != canary {
		t.Errorf("found %s in %s, %v", variable, where, err)
	}
	if v := Open(home.At(t.TempDir())); v == nil {
		t.Error("there is no vault")
	}
}
