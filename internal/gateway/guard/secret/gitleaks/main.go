// Command gitleaks writes gitleaks.json.gz, the table of rules from gitleaks.
//
// ambit does not import gitleaks, because its packages add viper and 3 MB to every start. The tests compare the
// table with the version of gitleaks in go.mod, and the findings of ambit with those of gitleaks. bench measures
// both.
package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
)

func main() {
	if err := run("../gitleaks.json.gz"); err != nil {
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
