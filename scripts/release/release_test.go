//go:build prove

package main

import (
	"cmp"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Two releases of the same sources are the same, byte for byte, also when the
// second is made elsewhere, later, and by somebody with other settings.
func TestSameBytes(t *testing.T) {
	here, elsewhere := filepath.Join(t.TempDir(), "here"), filepath.Join(t.TempDir(), "else", "where")
	copySources(t, filepath.Join("..", ".."), here)
	copySources(t, here, elsewhere)
	platform := runtime.GOOS + "/" + runtime.GOARCH
	first, second := filepath.Join(t.TempDir(), "one"), filepath.Join(t.TempDir(), "another")
	t.Setenv("SOURCE_DATE_EPOCH", "1767225600")
	t.Chdir(here)
	if err := run("v0.0.0-test", first, []string{platform}); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOFLAGS", "-ldflags=-X=main.version=other")
	t.Setenv("GOAMD64", "v3")
	t.Setenv("TZ", "Pacific/Kiritimati")
	t.Chdir(elsewhere)
	if err := run("v0.0.0-test", second, []string{platform}); err != nil {
		t.Fatal(err)
	}
	a, b := read(t, first, "SHA256SUMS"), read(t, second, "SHA256SUMS")
	if a != b || strings.Count(a, "\n") != 3 {
		t.Errorf("the digests are\n%s\nand\n%s", a, b)
	}
	binary := "ambit-v0.0.0-test-" + runtime.GOOS + "-" + runtime.GOARCH
	if out, err := exec.Command(filepath.Join(first, binary), "version").Output(); err != nil || !strings.Contains(string(out), "v0.0.0-test") {
		t.Errorf("it says %q, %v", out, err)
	}
	if strings.Contains(read(t, first, binary), here) {
		t.Error("the binary knows in which folder it was built")
	}
	bill, licences := read(t, first, "sbom.cdx.json"), read(t, first, "LICENSES.txt")
	checkBill(t, bill)
	for _, want := range []string{"pkg:golang/github.com/spf13/cobra@v", "pkg:golang/std@1.", `"id": "MIT"`, "2026-01-01T00:00:00Z"} {
		if !strings.Contains(bill, want) {
			t.Errorf("the bill does not hold %s", want)
		}
	}
	for _, never := range []string{here, "chromedp"} { // paths, and what only tests use
		if strings.Contains(bill+licences, never) {
			t.Errorf("the bill or the licences hold %s", never)
		}
	}
	if !strings.Contains(licences, "github.com/spf13/cobra v") || !strings.Contains(licences, "TERMS AND CONDITIONS") {
		t.Error("the licences are not all there")
	}
}

// copySources copies what a build reads.
func copySources(t *testing.T, from, to string) {
	t.Helper()
	skip := map[string]bool{".git": true, "bin": true, "dist": true, "node_modules": true, ".home": true}
	err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() && skip[e.Name()] {
			return cmp.Or(err, fs.SkipDir)
		}
		rest, err := filepath.Rel(from, path)
		switch {
		case err != nil:
			return err
		case e.IsDir():
			return os.MkdirAll(filepath.Join(to, rest), 0o755)
		case !e.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rest), text, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// checkBill holds a bill to what its format demands.
func checkBill(t *testing.T, text string) {
	t.Helper()
	var doc billDocument
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&doc); err != nil {
		t.Fatal(err)
	}
	refs := map[string]bool{}
	for _, c := range doc.Components {
		if refs[c.Ref] || c.Name == "" || c.Version == "" || len(c.Licences) == 0 {
			t.Errorf("the component %+v is not whole, or there twice", c)
		}
		refs[c.Ref] = true
	}
	if doc.Format != "CycloneDX" || doc.Spec != "1.6" || !strings.HasPrefix(doc.Serial, "urn:uuid:") || len(doc.Serial) != 45 || len(refs) < 20 {
		t.Errorf("the bill is %s %s %s with %d components", doc.Format, doc.Spec, doc.Serial, len(refs))
	}
	for _, use := range doc.Dependencies[0].Uses {
		if !refs[use] {
			t.Errorf("%s is used and not there", use)
		}
	}
}

func TestBillIsSame(t *testing.T) {
	parts := []part{{path: "example.com/a", version: "v1.0.0", licence: "MIT"}, {path: "example.com/b", version: "v2.0.0"}}
	at := time.Unix(0, 0).UTC()
	one, err := billOf("v1", "go1.26", at, parts)
	if err != nil {
		t.Fatal(err)
	}
	two, err := billOf("v1", "go1.26", at, parts)
	if err != nil || string(one) != string(two) {
		t.Errorf("two bills differ: %v", err)
	}
	other, err := billOf("v1", "go1.26", at, parts[:1])
	if err != nil || strings.Split(string(one), "\n")[3] == strings.Split(string(other), "\n")[3] {
		t.Errorf("bills of other parts have the same number: %v", err)
	}
}

func TestLicenceNames(t *testing.T) {
	bsd := "Redistribution and use in source and binary\nforms, with or without"
	for _, tt := range []struct{ text, want string }{
		{"                  Apache License\n         Version 2.0, January 2004", "Apache-2.0"},
		{"Permission is hereby granted, free of charge, to any person obtaining a copy", "MIT"},
		{bsd, "BSD-2-Clause"},
		{bsd + " Neither the name of", "BSD-3-Clause"},
		{"Permission is hereby granted, free of charge, to any person obtaining a copy. " + bsd, ""},
		{"All rights reserved.", ""},
	} {
		if got := nameOf(tt.text); got != tt.want {
			t.Errorf("%.40q is %q, not %q", tt.text, got, tt.want)
		}
	}
}

func TestNoLicence(t *testing.T) {
	texts, err := licenceTexts(t.TempDir())
	if err != nil || len(texts) != 0 {
		t.Errorf("an empty folder has %d licences, %v", len(texts), err)
	}
}

// Everything that is wrong is told, and nothing is touched.
func TestWrongUse(t *testing.T) {
	dir := t.TempDir()
	stays := filepath.Join(dir, "stays")
	if err := os.WriteFile(stays, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "1")
	err := run("v1", dir, []string{"linux", "/"})
	if err == nil || !strings.Contains(err.Error(), `"linux" is no platform`) || !strings.Contains(err.Error(), `"/" is no platform`) {
		t.Errorf("it says %v", err)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	if err := run("v1", dir, []string{"linux/amd64"}); err == nil || !strings.Contains(err.Error(), "SOURCE_DATE_EPOCH") {
		t.Errorf("it says %v", err)
	}
	if _, err := os.Stat(stays); err != nil {
		t.Error(err)
	}
}
