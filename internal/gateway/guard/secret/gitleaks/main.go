// Command gitleaks writes gitleaks.json.gz, the table of rules that ambit has from gitleaks.
//
// ambit could import gitleaks instead. It does not, since its packages come with viper and 3 MB, which every
// start would pay for. The tests here hold the table to the gitleaks that go.mod names, so that it cannot fall
// behind, and what ambit finds to what gitleaks finds. bench measures both.
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
