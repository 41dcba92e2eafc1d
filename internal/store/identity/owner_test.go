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
		t.Errorf("before there is one: %v", err)
	}
	if _, err := OpenKeys(file); err != nil {
		t.Fatal(err)
	}
	if err := CheckOwner(file); err != nil {
		t.Errorf("the owner: %v", err)
	}
	other := "/etc/passwd" // root's
	if runtime.GOOS == "windows" {
		other = `C:\Windows\System32\kernel32.dll`
	} else if os.Geteuid() == 0 {
		other = file
		if err := os.Chown(file, 12345, 12345); err != nil {
			t.Fatal(err)
		}
	}
	if err := CheckOwner(other); !errors.Is(err, ErrNotOwner) {
		t.Errorf("another's: %v", err)
	}
}

// The public key of a principal is unique, and the same in every process with the root.
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
		t.Errorf("%s %s", a, b)
	}
}
