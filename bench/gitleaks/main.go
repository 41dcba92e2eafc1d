// Command gitleaks writes gitleaks.json.gz, the table of gitleaks' rules.
//
// ambit does not import gitleaks, because gitleaks would add viper and 3 MB to every start. The tests compare the
// table with the gitleaks version in go.mod. They also compare the findings of ambit and gitleaks. The command in the
// folder bench compares their speed.
package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
)

func main() {
	if err := run("../../internal/gateway/guard/secret/gitleaks.json.gz"); err != nil {
		fmt.Fprintln(os.Stderr, "gitleaks:", err)
		os.Exit(1)
	}
}

func run(file string) error {
	table, err := rules()
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(table); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(file, packed.Bytes(), 0o644)
}
