package identity

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

func rotated(t *testing.T, file string) *Keys {
	t.Helper()
	if _, err := NextKeys(file); err != nil {
		t.Fatal(err)
	}
	if err := AdoptNext(file); err != nil {
		t.Fatal(err)
	}
	keys, err := OpenKeys(file)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// OpenKept and SameMAC accept data from older root keys; Open refuses it.
func TestRotatedRoot(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys", "root")
	first, err := OpenKeys(file)
	if err != nil {
		t.Fatal(err)
	}
	sealed, mac := first.Seal("purpose", []byte("kept")), first.MAC("purpose", []byte("kept"))
	second := rotated(t, file)
	third := rotated(t, file)
	if first.Signer().Equal(second.Signer()) || second.Signer().Equal(third.Signer()) {
		t.Error("a rotated root key signs with the same key")
	}
	for name, k := range map[string]*Keys{"second": second, "third": third} {
		if data, err := k.OpenKept("purpose", sealed); err != nil || string(data) != "kept" {
			t.Errorf("OpenKept with the %s root key returned %q (error %v), want the original data", name, data, err)
		}
		if _, err := k.OpenKept("another", sealed); !errors.Is(err, ErrSealed) {
			t.Errorf("the %s root key decrypts data for another purpose: %v", name, err)
		}
		if _, err := k.Open("purpose", sealed); !errors.Is(err, ErrSealed) {
			t.Errorf("Open with the %s root key accepts data of an older root key: %v", name, err)
		}
		if !k.SameMAC("purpose", []byte("kept"), mac[:]) || k.SameMAC("purpose", []byte("other"), mac[:]) || k.SameMAC("another", []byte("kept"), mac[:]) {
			t.Errorf("SameMAC with the %s root key gave a wrong result for a hash of the first root key", name)
		}
		if k.MAC("purpose", []byte("kept")) == mac {
			t.Errorf("the %s root key makes the same hashes as the first root key", name)
		}
		if k.PublicOf("ada@local") != first.PublicOf("ada@local") {
			t.Errorf("PublicOf returns another key with the %s root key", name)
		}
	}
	if _, err := first.OpenKept("purpose", third.Seal("purpose", []byte("new"))); !errors.Is(err, ErrSealed) {
		t.Errorf("the first root key decrypts data of a later root key: %v", err)
	}
	if got := third.Signers(); len(got) != 3 || !got[0].Equal(third.Signer().Public()) || !got[2].Equal(first.Signer().Public()) {
		t.Errorf("got %d signers, want 3 with the newest first", len(got))
	}
	if _, err := os.Stat(next(file)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file of the next root key still exists: %v", err)
	}
	if info, err := os.Stat(file); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("other users can read the root keys: mode %v, error %v", info.Mode(), err)
	}
}

// A rotation that was interrupted at any point can be continued, with the same next root key.
func TestRotationBrokenOff(t *testing.T) {
	file := filepath.Join(t.TempDir(), "root")
	first, err := OpenKeys(file)
	if err != nil {
		t.Fatal(err)
	}
	one, err := NextKeys(file)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := OpenKeys(file); err != nil || !again.Signer().Equal(first.Signer()) {
		t.Fatalf("OpenKeys uses the next root key before AdoptNext: %v", err)
	}
	two, err := NextKeys(file)
	if err != nil || !one.Signer().Equal(two.Signer()) {
		t.Fatalf("the second call of NextKeys returned another root key: %v", err)
	}
	roots, err := os.ReadFile(file)
	left, nextErr := os.ReadFile(next(file))
	if err := errors.Join(err, nextErr); err != nil {
		t.Fatal(err)
	}
	// AdoptNext was interrupted between writing all root keys to the .next file and renaming the file.
	if err := os.WriteFile(next(file), append(slices.Clone(left), roots...), 0o600); err != nil {
		t.Fatal(err)
	}
	if three, err := NextKeys(file); err != nil || !three.Signer().Equal(one.Signer()) || len(three.old) != 1 || !Rotating(file) {
		t.Fatalf("the third call of NextKeys returned another root key, or too many root keys: %v", err)
	}
	if err := AdoptNext(file); err != nil {
		t.Fatal(err)
	}
	if keys, err := OpenKeys(file); err != nil || !keys.Signer().Equal(one.Signer()) || len(keys.old) != 1 {
		t.Errorf("the adopted root key is wrong or appears more than once: %v", err)
	}
	if err := AdoptNext(file); err == nil {
		t.Error("a root key was adopted without preparation")
	}
}

// The file of the next root key can remain after this root key was adopted. Such a file does not count as an
// interrupted rotation. The next rotation creates a new root key.
func TestNextLeftBehind(t *testing.T) {
	file := filepath.Join(t.TempDir(), "root")
	if _, err := OpenKeys(file); err != nil {
		t.Fatal(err)
	}
	leave := func() {
		t.Helper()
		text, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(next(file), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	first := rotated(t, file)
	leave()
	if Rotating(file) {
		t.Error("Rotating reports a rotation that was completed")
	}
	second := rotated(t, file)
	if second.Signer().Equal(first.Signer()) || len(second.old) != 2 || !second.old[0].Signer().Equal(first.Signer()) {
		t.Errorf("the root key was not rotated: there are %d older root keys, want 2", len(second.old))
	}
	// If two processes adopt the same root key, the second AdoptNext changes nothing.
	leave()
	if err := AdoptNext(file); err != nil {
		t.Fatal(err)
	}
	if keys, err := OpenKeys(file); err != nil || len(keys.old) != 2 || !keys.Signer().Equal(second.Signer()) {
		t.Errorf("the root key appears twice in the file: %v", err)
	}
	if _, err := os.Stat(next(file)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file of the next root key still exists: %v", err)
	}
}

// If an older root key is damaged, OpenKeys fails instead of ignoring it.
func TestDamagedOlderRoot(t *testing.T) {
	file := filepath.Join(t.TempDir(), "root")
	if _, err := OpenKeys(file); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(text, "c2hvcnQ=\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenKeys(file); err == nil || strings.Contains(err.Error(), "c2hvcnQ") {
		t.Errorf("OpenKeys accepted the damaged root key, or its error quotes the key: %v", err)
	}
}

// Rotate gives the holder of an API key a new secret, and the old key expires.
func TestRotateAPIKey(t *testing.T) {
	statetest.Each(t, func(t *testing.T, open func() state.DB) {
		a := newAPIKeys(t, open())
		now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		a.now = func() time.Time { return now }
		old, was, err := a.New(t.Context(), KeySpec{Name: "ci", Agents: []string{"alpha"}, Expires: now.Add(30 * 24 * time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		holder, err := a.Check(t.Context(), was)
		if err != nil {
			t.Fatal(err)
		}
		now = now.Add(24 * time.Hour)
		fresh, ended, text, err := a.Rotate(t.Context(), old.ID, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if fresh.ID == old.ID || text == was || !fresh.Expires.Equal(now.Add(30*24*time.Hour)) || !ended.Expires.Equal(now.Add(time.Hour)) {
			t.Errorf("the new key is %+v and the old key is %+v, want the same lifetime for the new key and one more hour for the old key",
				fresh, ended)
		}
		p, err := a.Check(t.Context(), text)
		if err != nil || p.Name != holder.Name || p.Admin || len(p.Agents) != 1 || p.Agents[0] != "alpha" || p.KeyID != fresh.ID {
			t.Errorf("the new key is held by %+v (error %v), want the principal and agent of the old key", p, err)
		}
		if _, err := a.Check(t.Context(), was); err != nil {
			t.Errorf("the old key is refused during the overlap: %v", err)
		}
		now = now.Add(time.Hour)
		if _, err := a.Check(t.Context(), was); !errors.Is(err, ErrExpired) {
			t.Errorf("the old key after the overlap: got error %v, want ErrExpired", err)
		}
		if err := a.Standing(t.Context(), old.ID); !errors.Is(err, ErrExpired) {
			t.Errorf("Standing of the old key after the overlap: got error %v, want ErrExpired", err)
		}
		if _, _, _, err := a.Rotate(t.Context(), old.ID, time.Hour); !errors.Is(err, ErrNoKey) {
			t.Errorf("rotating an expired key: got error %v, want ErrNoKey", err)
		}
		// With an overlap of 0 the old key expires immediately. The principal keeps its name over several
		// rotations.
		again, _, text2, err := a.Rotate(t.Context(), fresh.ID, 0)
		if err != nil {
			t.Fatal(err)
		}
		if p, err := a.Check(t.Context(), text2); err != nil || p.Name != holder.Name {
			t.Errorf("the key %s is held by %+v (error %v), want the principal %s", again.ID, p, err, holder.Name)
		}
		if _, err := a.Check(t.Context(), text); !errors.Is(err, ErrExpired) {
			t.Errorf("the old key after a rotation without overlap: got error %v, want ErrExpired", err)
		}
		// The overlap does not extend the life of the old key.
		short, _, err := a.New(t.Context(), KeySpec{Expires: now.Add(time.Minute)})
		if err != nil {
			t.Fatal(err)
		}
		if _, ended, _, err := a.Rotate(t.Context(), short.ID, 24*time.Hour); err != nil || !ended.Expires.Equal(now.Add(time.Minute)) {
			t.Errorf("the old key now expires at %v (error %v), want its original expiry", ended.Expires, err)
		}
		for _, id := range []string{"", "nosuchkey1"} {
			if _, _, _, err := a.Rotate(t.Context(), id, 0); !errors.Is(err, ErrNoKey) {
				t.Errorf("rotating the unknown key %q: got error %v, want ErrNoKey", id, err)
			}
		}
	})
}
