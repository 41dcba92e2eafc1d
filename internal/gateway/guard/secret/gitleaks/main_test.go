package main

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/guard/secret"
)

// token is put together here, so that no scanner takes this file for a leak.
var token = "gh" + "p_" + "x7Kq2Vd9RmT4wLz8NcB1yHf6GsJ3uPe5aQoZ"

func scan(t *testing.T, text string) []secret.Match {
	t.Helper()
	engine, err := secret.Standard()
	if err != nil {
		t.Fatal(err)
	}
	m, err := engine.Scan([]byte(text), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// The table is what the gitleaks in go.mod says, so that an update cannot leave it behind.
func TestTableIsCurrent(t *testing.T) {
	want := filepath.Join(t.TempDir(), "want.gz")
	if err := run(want); err != nil {
		t.Fatal(err)
	}
	if unpacked(t, "../gitleaks.json.gz") != unpacked(t, want) {
		t.Error("gitleaks.json.gz is not current; run: go generate ./internal/gateway/guard/...")
	}
}

func unpacked(t *testing.T, file string) string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil || len(text) == 0 {
		t.Fatalf("%s holds %d bytes: %v", file, len(text), err)
	}
	return string(text)
}
