package main

import (
	"bytes"
	"testing"
)

// The tables are what the modules in go.mod say, so that an update of a module
// cannot leave them behind. Write them anew with go generate.
func TestTablesAreCurrent(t *testing.T) {
	for file, make := range tables {
		want, err := make()
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if want == nil {
			continue // its source is no module
		}
		if !bytes.Equal(unzipped(t, "../"+file), want) {
			t.Errorf("%s is not current; run: go generate ./internal/gateway/guard/...", file)
		}
	}
}
