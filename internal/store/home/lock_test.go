package home

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestLockWithin(t *testing.T) {
	open := func(file string) *os.File {
		t.Helper()
		f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	file := filepath.Join(t.TempDir(), "lock")
	held, other := open(file), open(file)
	if err := lockWithin(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := lockWithin(ctx, other); !errors.Is(err, context.Canceled) {
		t.Errorf("locking a locked file: got error %v, want context.Canceled", err)
	}
	got := make(chan error)
	go func() { got <- lockWithin(t.Context(), other) }()
	if err := errors.Join(held.Close(), <-got); err != nil {
		t.Errorf("locking the file after its release failed: %v", err)
	}
	if err := lockWithin(t.Context(), held); err == nil {
		t.Error("lockWithin locked a closed file")
	}
}
