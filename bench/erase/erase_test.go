package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRun checks that both kinds of work are measured with both sizes of rows.
func TestRun(t *testing.T) {
	var out bytes.Buffer
	if err := run(&out, 1, 2, 3); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2 deleted, a commit each    600", "3 erased in one commit    600", "2 deleted, a commit each  20000", "3 erased in one commit  20000"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output does not contain %q:\n%s", want, out.String())
		}
	}
}

// TestWays checks that only SQLite without secure_delete leaves deleted content in the file.
func TestWays(t *testing.T) {
	for _, j := range []work{{size: 600, rows: 5, do: deleteEach}, {size: 20_000, rows: 5, do: eraseAll}} {
		for secure, holds := range []bool{true, false} {
			file := filepath.Join(t.TempDir(), "state.db")
			c, err := open(file, secure)
			if err != nil {
				t.Fatal(err)
			}
			_, err = j.time(c)
			if err := errors.Join(err, c.Close()); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			// The test looks for more than 32 bytes, because the 32-byte hashes stay in the file.
			if got := bytes.Contains(text, bytes.Repeat([]byte("x"), 100)); got != holds {
				t.Errorf("secure_delete %d, rows of %d bytes: the file contains deleted content: %v, want %v", secure, j.size, got, holds)
			}
		}
	}
}
