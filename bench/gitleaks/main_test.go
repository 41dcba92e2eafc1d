package main

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/guard/secret"
)

// token is split in this file, so that scanners do not report it as a leaked secret.
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

// The table matches the version of gitleaks in go.mod. After an update of gitleaks, the table must be generated
// again.
func TestTableIsCurrent(t *testing.T) {
	want := filepath.Join(t.TempDir(), "want.gz")
	if err := run(want); err != nil {
		t.Fatal(err)
	}
	if unpacked(t, "../../internal/gateway/guard/secret/gitleaks.json.gz") != unpacked(t, want) {
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
		t.Fatalf("%s contains %d bytes: %v", file, len(text), err)
	}
	return string(text)
}
