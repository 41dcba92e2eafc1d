// Command gen writes the guard's tables that come from other projects.
//
// ambit does not import those projects, because they slow down every start: the metadata
// of phone numbers takes 7 ms and 5 MB before main runs. Tests compare the tables with the
// modules in go.mod, so that they stay current. secret/gitleaks writes the rules for
// secrets.
package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

// tables are the files and what makes them. A nil table has no source here.
var tables = map[string]func() ([]byte, error){
	"view/confusables.txt.gz": confusables,
	"pii/phones.json.gz":      phones,
}

func run() error {
	for file, make := range tables {
		b, err := make()
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if b == nil {
			continue // its source is not here
		}
		if b, err = pack(b); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if err := os.WriteFile(file, b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func pack(b []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(b); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
