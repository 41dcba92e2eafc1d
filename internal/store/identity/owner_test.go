package identity

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func TestCheckOwner(t *testing.T) {
	file := filepath.Join(t.TempDir(), "root")
	if err := CheckOwner(file); err != nil {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := OpenKeys(file); err != nil {
		t.Fatal(err)
	}
	if err := CheckOwner(file); err != nil {
		t.Errorf("CheckOwner rejects the current user's own file: %v", err)
	}
	other := "/etc/passwd" // owned by root
	if runtime.GOOS == "windows" {
		other = `C:\Windows\System32\kernel32.dll`
	} else if os.Geteuid() == 0 {
		other = file
		if err := os.Chown(file, 12345, 12345); err != nil {
			t.Fatal(err)
		}
	}
	if err := CheckOwner(other); !errors.Is(err, ErrNotOwner) {
		t.Errorf("a file of another user: got error %v, want ErrNotOwner", err)
	}
}

// The public key of a principal is unique, and the same in every process with the root key.
func TestPublicOf(t *testing.T) {
	file := filepath.Join(t.TempDir(), "root")
	one, err := OpenKeys(file)
	if err != nil {
		t.Fatal(err)
	}
	two, err := OpenKeys(file)
	if err != nil {
		t.Fatal(err)
	}
	other, err := OpenKeys(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	a, b := one.PublicOf("a@local"), one.PublicOf("b@local")
	if len(a) != 44 || a == b || a != two.PublicOf("a@local") || a == other.PublicOf("a@local") {
		t.Errorf("the public keys of two principals are %s and %s, want different keys", a, b)
	}
}
