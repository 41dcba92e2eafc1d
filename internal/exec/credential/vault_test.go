package credential

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	oskeyring "github.com/zalando/go-keyring"
	"go.uber.org/goleak"

	"github.com/ambit-run/ambit/internal/store/home"
)

// TestMain runs this process as a concurrent writer if TestTwoProcessesLoseNothing started it.
func TestMain(m *testing.M) {
	if dir := os.Getenv("CREDENTIAL_TEST_WRITE"); dir != "" {
		os.Exit(writeMany(dir, os.Getenv("CREDENTIAL_TEST_AS")))
	}
	goleak.VerifyTestMain(m)
}

const writes = 15

func writeMany(dir, as string) int {
	v := open(dir, nil)
	for i := range writes {
		s, err := New(Masked, fmt.Sprintf("%s-%s-%d", canary, as, i), nil)
		if err == nil {
			err = v.Set("agent", fmt.Sprintf("%s-%d", as, i), s)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return 0
}

// TestTwoProcessesLoseNothing checks that no secret is lost if several processes write to a
// vault concurrently. It starts without a vault and a key, so the processes also create them
// concurrently.
func TestTwoProcessesLoseNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "home")
	const processes = 3
	var running []*exec.Cmd
	said := make([]bytes.Buffer, processes)
	for i := range processes {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "CREDENTIAL_TEST_WRITE="+dir, fmt.Sprintf("CREDENTIAL_TEST_AS=p%d", i))
		cmd.Stderr = &said[i]
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		running = append(running, cmd)
	}
	for i, cmd := range running {
		if err := cmd.Wait(); err != nil {
			t.Errorf("a writer failed: %v: %s", err, said[i].String())
		}
	}
	v := open(dir, nil)
	entries, err := v.List()
	if err != nil || len(entries) != processes*writes {
		t.Fatalf("%d of %d secrets are stored, %v", len(entries), processes*writes, err)
	}
	for p := range processes {
		for i := range writes {
			ref := fmt.Sprintf("p%d-%d", p, i)
			if s, ok, err := v.Get("agent", ref); !ok || err != nil || s.Reveal() != canary+"-"+ref {
				t.Errorf("Get(%s) found a secret: %v, error %v; want its value", ref, ok, err)
			}
		}
	}
	inNoFile(t, dir)
}

// inNoFile fails if a file below a folder contains the canary, or if other users can
// read a file.
func inNoFile(t *testing.T, dir string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte(canary)) {
			t.Errorf("%s contains the value", path)
		}
		if info, infoErr := d.Info(); infoErr != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
			t.Errorf("the mode of %s is %v, error %v; want 0600", path, info.Mode(), infoErr)
		}
		return err
	})
	if err != nil || files == 0 {
		t.Errorf("%d files were checked, error %v", files, err)
	}
}

func TestVault(t *testing.T) {
	dir := t.TempDir()
	v := open(dir, nil)
	if entries, err := v.List(); err != nil || len(entries) != 0 {
		t.Fatalf("List of a new vault = %v, %v; want no entries", entries, err)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 0 {
		t.Fatalf("reading created %v, %v", names, err)
	}
	set := func(agent, ref string, s Secret) {
		t.Helper()
		if err := v.Set(agent, ref, s); err != nil {
			t.Fatal(err)
		}
	}
	set("b", "token", mustNew(t, Masked, canary+"1", "b.example.com"))
	set("a", "key", mustNew(t, JSON, `{"k":"`+canary+`"}`, "a.example.com", "x.example.com"))
	set("b", "token", mustNew(t, Masked, canary+"2", "b.example.com"))
	set("b", "other", mustNew(t, String, canary))
	other := open(dir, nil) // another process
	entries, err := other.List()
	var got []string
	for _, e := range entries {
		got = append(got, fmt.Sprint(e.Agent, "/", e.Ref, " ", e.Type, " ", e.Hosts, " ", e.Set.IsZero()))
	}
	want := []string{"a/key json [a.example.com x.example.com] false", "b/other string [] false", "b/token secret [b.example.com] false"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("entries = %v, error %v; want %v", got, err, want)
	}
	s, ok, err := other.Get("b", "token")
	if err != nil || !ok || s.Reveal() != canary+"2" || !slices.Equal(s.Hosts(), []string{"b.example.com"}) {
		t.Errorf("Get = %v, %v, %v; want the replaced secret", s, ok, err)
	}
	if removed, err := v.Remove("b", "token"); !removed || err != nil {
		t.Errorf("Remove = %v, %v; want true", removed, err)
	}
	if removed, err := v.Remove("b", "token"); removed || err != nil {
		t.Errorf("second Remove = %v, %v", removed, err)
	}
	if _, ok, err := other.Get("b", "token"); ok || err != nil {
		t.Errorf("the removed secret is found, %v", err)
	}
	if err := v.Set("a", "b", Secret{}); err == nil {
		t.Error("a secret without a value was stored")
	}
	inNoFile(t, dir)
}

// TestDamage checks that every modification of the file is reported. A modified file must never be
// overwritten.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	v := open(dir, nil)
	if err := v.Set("a", "b", mustNew(t, Masked, canary)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "secrets")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damaged := map[string][]byte{"empty": nil, "cut": whole[:len(whole)-1], "longer": append(slices.Clone(whole), 'x'), "other": []byte("{}")}
	for i := 0; i < len(whole); i += 7 {
		text := slices.Clone(whole)
		text[i] ^= 1
		damaged[fmt.Sprintf("bit of byte %d", i)] = text
	}
	for name, text := range damaged {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, vault := range []*File{open(dir, nil), v} {
			_, _, err := vault.Get("a", "b")
			setErr := vault.Set("a", "c", mustNew(t, Masked, "x"))
			if !errors.Is(err, ErrDamaged) || !errors.Is(setErr, ErrDamaged) || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), canary) {
				t.Errorf("%s: Get returned %v and Set returned %v, want ErrDamaged", name, err, setErr)
			}
		}
		if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, text) {
			t.Errorf("%s: the file was overwritten", name)
		}
	}
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if s, ok, err := v.Get("a", "b"); !ok || err != nil || s.Reveal() != canary {
		t.Errorf("after the file was restored, Get returned %v, %v", ok, err)
	}
}

func TestKeyIsGuarded(t *testing.T) {
	dir := t.TempDir()
	key := filepath.Join(dir, "keys", "vault")
	if err := open(dir, nil).Set("a", "b", mustNew(t, Masked, canary)); err != nil {
		t.Fatal(err)
	}
	secretKey, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	fails := func(name, want string) {
		t.Helper()
		_, _, err := open(dir, nil).Get("a", "b")
		setErr := open(dir, nil).Set("a", "c", mustNew(t, Masked, "x"))
		if err == nil || setErr == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), strings.TrimSpace(string(secretKey))[:20]) {
			t.Errorf("%s: Get returned %v and Set returned %v, want %q", name, err, setErr, want)
		}
	}
	if runtime.GOOS != "windows" {
		for _, mode := range []fs.FileMode{0o640, 0o604, 0o620} {
			if err := os.Chmod(key, mode); err != nil {
				t.Fatal(err)
			}
			fails(mode.String(), "chmod 600")
		}
		if err := os.Chmod(key, 0o600); err != nil {
			t.Fatal(err)
		}
		// The mode of the vault itself is corrected.
		if err := os.Chmod(filepath.Join(dir, "secrets"), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, ok, err := open(dir, nil).Get("a", "b"); !ok || err != nil {
			t.Errorf("Get after the mode was changed = %v, %v; want the secret", ok, err)
		}
		inNoFile(t, dir)
	}
	if err := os.WriteFile(key, append([]byte("AGE-SECRET-KEY-1"), secretKey[20:]...), 0o600); err != nil {
		t.Fatal(err)
	}
	fails("no key", "does not contain a vault key")
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	fails("gone", "key is missing")
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), key); err != nil {
		t.Fatal(err)
	}
	fails("a link", "not a regular file")
}

// TestStartingOver checks a process with a cached key. After the vault and the key were deleted,
// the process must create new ones.
func TestStartingOver(t *testing.T) {
	dir := t.TempDir()
	v := open(dir, nil)
	if err := v.Set("a", "b", mustNew(t, Masked, canary)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(filepath.Join(dir, "secrets")), os.RemoveAll(filepath.Join(dir, "keys"))); err != nil {
		t.Fatal(err)
	}
	if err := v.Set("a", "c", mustNew(t, Masked, canary)); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := open(dir, nil).Get("a", "c"); !ok || err != nil {
		t.Errorf("Get = %v, %v; want the new secret", ok, err)
	}
}

// TestChangesBypassTheCache checks that Set does not use the cache. Another process may have
// written a new file with the same size and time.
func TestChangesBypassTheCache(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "secrets")
	set := func(v *File, ref, value string) {
		t.Helper()
		if err := v.Set("a", ref, mustNew(t, Masked, value)); err != nil {
			t.Fatal(err)
		}
	}
	v, other := open(dir, nil), open(dir, nil)
	set(v, "b", "one")
	if _, _, err := v.Get("a", "b"); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err == nil {
		err = os.Link(path, path+".old")
	}
	if err != nil {
		t.Fatal(err)
	}
	set(other, "b", "two")
	text, err := os.ReadFile(path)
	if err == nil && int64(len(text)) != info.Size() {
		t.Fatalf("bad test: the file has %d bytes, and then %d bytes", info.Size(), len(text))
	}
	err = errors.Join(err, os.WriteFile(path+".old", text, 0o600), os.Chtimes(path+".old", info.ModTime(), info.ModTime()), os.Rename(path+".old", path))
	if err != nil {
		t.Fatal(err)
	}
	set(v, "c", "three")
	if s, _, err := open(dir, nil).Get("a", "b"); err != nil || s.Reveal() != "two" {
		t.Errorf("the other process's change is lost, %v", err)
	}
}

// faulty is a keyring that fails or returns another text.
type faulty struct {
	fails error
	kept  string
}

func (f faulty) get(string) (string, error) { return f.kept, f.fails }
func (f faulty) set(string, string) error   { return f.fails }

func TestKeyring(t *testing.T) {
	oskeyring.MockInit()
	dir := t.TempDir()
	v := open(dir, osKeyring{})
	if err := v.Set("a", "b", mustNew(t, Masked, canary)); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "keys", "vault"))
	if err != nil || strings.Contains(string(text), "AGE-SECRET") || !strings.HasPrefix(string(text), keyringPrefix) {
		t.Fatalf("the key file contains %q, error %v; want a keyring account", text, err)
	}
	if kept, err := v.Kept(); kept != "keyring" || err != nil {
		t.Errorf("Kept = %s, %v; want keyring", kept, err)
	}
	// A process that stores new keys in files can also use a key that is stored in the keyring.
	if _, ok, err := open(dir, nil).Get("a", "b"); !ok || err != nil {
		t.Errorf("Get = %v, %v; want the secret", ok, err)
	}
	oskeyring.MockInitWithError(errors.New("locked"))
	if _, _, err := open(dir, nil).Get("a", "b"); err == nil || !strings.Contains(err.Error(), "locked") {
		t.Errorf("error without the keyring = %v, want locked", err)
	}
	if err := open(dir, nil).Set("a", "c", mustNew(t, Masked, "x")); err == nil {
		t.Error("a second key was created")
	}
	for name, k := range map[string]keyring{"fails": faulty{fails: errors.New("no bus")}, "forgets": faulty{}} {
		dir := t.TempDir()
		v := open(dir, k)
		if err := v.Set("a", "b", mustNew(t, Masked, canary)); err != nil {
			t.Fatal(err)
		}
		if kept, err := v.Kept(); kept != "file" || err != nil {
			t.Errorf("a keyring that %s: %s, %v", name, kept, err)
		}
		if _, ok, err := open(dir, nil).Get("a", "b"); !ok || err != nil {
			t.Errorf("a keyring that %s: %v, %v", name, ok, err)
		}
	}
}

// TestHomeKeepsEverything checks that the keyring is not used if AMBIT_HOME is set.
func TestHomeKeepsEverything(t *testing.T) {
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent")
	t.Setenv("AMBIT_HOME", t.TempDir())
	if sessionKeyring() != nil || Open(home.At("x")).key.prefer != nil {
		t.Error("the keyring is used although AMBIT_HOME is set")
	}
	t.Setenv("AMBIT_HOME", "")
	if sessionKeyring() == nil {
		t.Error("the keyring would not be used")
	}
}

func TestNewerVault(t *testing.T) {
	dir := t.TempDir()
	v := open(dir, nil)
	if err := v.write(contents{Version: version + 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := open(dir, nil).List(); err == nil || !strings.Contains(err.Error(), "newer version of ambit") {
		t.Error(err)
	}
}
