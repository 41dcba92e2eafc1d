package main

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// TestEveryPartHasALicence checks that every part of the binaries has a licence and that every table is listed. With
// this test, a missing licence is noticed before the next release.
func TestEveryPartHasALicence(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	env, err := goEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	where, err := sources(env, []string{runtime.GOOS + "/" + runtime.GOARCH})
	if err != nil {
		t.Fatal(err)
	}
	where["std"].version = "1.26" // a real release reads this version from the binaries
	in := map[string]*linkedModule{}
	for path, s := range where {
		if path != ownPath {
			in[path] = &linkedModule{Module: &debug.Module{Path: path, Version: s.version}}
		}
	}
	// Only tests use chromedp.
	if in["std"] == nil || in["github.com/spf13/cobra"] == nil || in["github.com/chromedp/chromedp"] != nil {
		t.Errorf("a build uses the modules %q, want std and cobra, but not chromedp", slices.Sorted(maps.Keys(in)))
	}
	parts, err := modules(in, where, 0)
	if err != nil {
		t.Error(err)
	}
	own, err := os.ReadFile("LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	made, err := tablesIn(env, where, string(own))
	if err != nil {
		t.Fatal(err)
	}
	var named []string
	for _, p := range made {
		for _, text := range p.texts {
			named = append(named, p.table+" "+licenceName(text))
		}
	}
	if want := []string{
		"internal/gateway/guard/pii/phones.txt MIT", "internal/gateway/guard/pii/phones.txt Apache-2.0",
		"internal/gateway/guard/view/confusables.txt.gz Unicode-3.0",
	}; !slices.Equal(named, want) {
		t.Errorf("the tables' licences are %q, want %q", named, want)
	}
	bill, err := billOf("v1", "go1.26", time.Unix(0, 0).UTC(), append(parts, made...))
	if err != nil {
		t.Fatal(err)
	}
	checkBill(t, bill)

	self := where[ownPath]
	self.embeds = append(self.embeds, "internal/new.json.gz")
	if _, err := tablesIn(env, where, string(own)); err == nil || !strings.Contains(err.Error(), "internal/new.json.gz is embedded, but its source is not listed") {
		t.Errorf("an unlisted table: got error %v, want one that names the file", err)
	}
	self.embeds = nil
	if _, err := tablesIn(env, where, string(own)); err == nil || !strings.Contains(err.Error(), "is no longer embedded") {
		t.Errorf("a removed table: got error %v, want one that says that the file is no longer embedded", err)
	}
}

// These are the rules of CycloneDX 1.6 for the fields that a bill uses.
var (
	serialForm  = regexp.MustCompile(`^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	urlForm     = regexp.MustCompile(`^pkg:(golang/[0-9a-z._~/-]+@[0-9A-Za-z.%_-]+(#[0-9a-z./]+)?|generic/[a-z.]+@[0-9.]+\?download_url=https://[0-9A-Za-z./]+)$`)
	spdxNames   = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0", "Unicode-3.0", "Unlicense"}
	partsOfKind = map[cdx.ComponentType]bool{"application": true, "library": true, "data": true}
)

// checkBill checks a bill's format and completeness.
func checkBill(t *testing.T, text []byte) cdx.BOM {
	t.Helper()
	var doc cdx.BOM
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(&doc); err != nil {
		t.Fatal(err)
	}
	if doc.BOMFormat != "CycloneDX" || doc.SpecVersion != cdx.SpecVersion1_6 || doc.Version != 1 || !serialForm.MatchString(doc.SerialNumber) {
		t.Errorf("the format, version or serial number of the bill is wrong: %s %s %d %s", doc.BOMFormat, doc.SpecVersion, doc.Version, doc.SerialNumber)
	}
	if _, err := time.Parse(time.RFC3339, doc.Metadata.Timestamp); err != nil {
		t.Error(err)
	}
	var refs []string
	for _, c := range append([]cdx.Component{*doc.Metadata.Component}, *doc.Components...) {
		switch {
		case slices.Contains(refs, c.BOMRef) || c.BOMRef == "" || c.Name == "" || c.Version == "" || !partsOfKind[c.Type]:
			t.Errorf("the component %+v is incomplete or a duplicate", c)
		case !urlForm.MatchString(c.PackageURL):
			t.Errorf("%q is not a package URL", c.PackageURL)
		case len(*c.Licenses) == 0:
			t.Errorf("%s has no licence", c.Name)
		case (c.Type == "data") != (c.Data != nil) || c.Data != nil && (*c.Data)[0].Type != "dataset":
			t.Errorf("the component %s has the type %s and the data %v, want data only for the type data",
				c.Name, c.Type, c.Data)
		}
		for _, l := range *c.Licenses { // each licence must have either an SPDX id or a name
			if (l.License.ID == "") == (l.License.Name == "") || l.License.ID != "" && !slices.Contains(spdxNames, l.License.ID) {
				t.Errorf("the component %s has the licence %+v, want either a known SPDX id or a name", c.Name, l)
			}
		}
		refs = append(refs, c.BOMRef)
	}
	uses := *doc.Dependencies
	if len(uses) != 1 || uses[0].Ref != refs[0] || !slices.Equal(*uses[0].Dependencies, refs[1:]) {
		t.Errorf("the dependencies are %+v, want %q", uses, refs)
	}
	return doc
}

func TestBillIsReproducible(t *testing.T) {
	parts := []part{
		{path: "example.com/Some/a", version: "v1.0.0+incompatible", sum: "h1:x", texts: []string{"Mozilla Public License Version 2.0"}, only: []string{"windows/arm64"}},
		{path: "example.com/b", version: "v2.0.0", texts: []string{"Do as you like."}},
	}
	at := time.Unix(0, 0).UTC()
	one, err := billOf("v1", "go1.26", at, parts)
	if err != nil {
		t.Fatal(err)
	}
	doc := checkBill(t, one)
	if a := (*doc.Components)[0]; a.Name != "example.com/Some/a" || a.PackageURL != "pkg:golang/example.com/some/a@v1.0.0%2Bincompatible" ||
		(*a.Licenses)[0].License.ID != "MPL-2.0" || !slices.Equal(*a.Properties, []cdx.Property{{Name: "ambit:go.sum", Value: "h1:x"}, {Name: "ambit:only", Value: "windows/arm64"}}) {
		t.Errorf("the component of the first part is wrong: %+v", a)
	}
	if b := (*doc.Components)[1]; (*b.Licenses)[0].License.Name != "see LICENSES.txt" {
		t.Errorf("the component of a part with an unknown licence does not refer to LICENSES.txt: %+v", b)
	}
	two, err := billOf("v1", "go1.26", at, parts)
	if err != nil || string(one) != string(two) {
		t.Errorf("two bills of the same parts differ: %v", err)
	}
	other, err := billOf("v1", "go1.26", at, parts[:1])
	if err != nil || checkBill(t, other).SerialNumber == doc.SerialNumber {
		t.Errorf("bills of different parts have the same serial number: %v", err)
	}
}

func TestLicenceNames(t *testing.T) {
	bsd := "Redistribution and use in source and binary\nforms, with or without"
	mit := "Permission is hereby granted, free of charge, to any person obtaining a copy"
	for _, tt := range []struct{ text, want string }{
		{"                  Apache License\n         Version 2.0, January 2004", "Apache-2.0"},
		{mit, "MIT"},
		{bsd, "BSD-2-Clause"},
		{bsd + " Neither the name of", "BSD-3-Clause"},
		{"UNICODE LICENSE V3\n" + mit, "Unicode-3.0"},
		{mit + ". " + bsd, ""},
		{"All rights reserved.", ""},
	} {
		if got := licenceName(tt.text); got != tt.want {
			t.Errorf("%.40q: got %q, want %q", tt.text, got, tt.want)
		}
	}
}

// The licences of a module include the licences of copied code in its packages. They do not include licences in
// folders that are not built. A module without a readable licence is an error.
func TestLicencesOfAModule(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"LICENSE": "top\r\n", "NOTICE.txt": "notice", "license.go": "package p", "taken/COPYING": "taken", "taken/deep/x.go": "", "unused/LICENSE": "unused",
	} {
		file := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	in := map[string]*linkedModule{"example.com/a": {Module: &debug.Module{Path: "example.com/a", Version: "v1.0.0"}, platforms: []string{"linux/amd64"}}}
	where := map[string]*source{"example.com/a": {root: root, folders: []string{filepath.Join(root, "taken", "deep"), root}}}
	parts, err := modules(in, where, 2)
	if err != nil || len(parts) != 1 || !slices.Equal(parts[0].texts, []string{"top\n", "notice", "taken"}) || !slices.Equal(parts[0].only, []string{"linux/amd64"}) {
		t.Errorf("the parts are %+v (error %v), want one part with three licences", parts, err)
	}
	all := string(licences("v1", "ours", append(parts, part{path: "example.com/b", version: "v2.0.0", texts: []string{"top\n"}})))
	if strings.Count(all, "\ntop\n") != 1 || !strings.Contains(all, ownPath+" v1\n\nours\n") ||
		!strings.Contains(all, "example.com/a v1.0.0\nexample.com/b v2.0.0\n\ntop\n") {
		t.Errorf("LICENSES.txt contains %s, want each licence once", all)
	}
	for name, s := range map[string]*source{
		"unknown module":   nil,
		"no licence":       {root: filepath.Join(root, "taken", "deep")},
		"missing folder":   {root: filepath.Join(root, "gone")},
		"unfetched module": {},
	} {
		if _, err := modules(in, map[string]*source{"example.com/a": s}, 1); err == nil || !strings.Contains(err.Error(), "found no readable licence for example.com/a v1.0.0") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// If the command line is wrong, run reports all problems together and deletes no files.
func TestWrongUse(t *testing.T) {
	dir := t.TempDir()
	stays := filepath.Join(dir, "stays")
	if err := os.WriteFile(stays, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		epoch, version string
		platforms      []string
		want           []string
	}{
		"platforms": {"1", "v1", []string{"linux", "/", "/"}, []string{
			`"linux" is not a platform`, `"/" is not a platform`, `the platform "/" is given twice`, "are not from a release",
		}},
		"no platforms": {"1", "v1", nil, []string{"no platforms"}},
		"time":         {"yesterday", "v1", []string{"linux/amd64"}, []string{"SOURCE_DATE_EPOCH"}},
		"version":      {"1", "v1 -X main.other=1", []string{"linux/amd64"}, []string{"is not a valid -version"}},
		"other files":  {"1", "v1", []string{"linux/amd64"}, []string{"contains files that are not from a release"}},
	} {
		t.Setenv("SOURCE_DATE_EPOCH", tt.epoch)
		err := run(tt.version, dir, tt.platforms)
		for _, want := range tt.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %s", name, err, want)
			}
		}
	}
	if _, err := os.Stat(stays); err != nil {
		t.Error(err)
	}
}

func TestUncommittedFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := checkCommitted("v1"); err != nil {
		t.Errorf("without a repository: %v", err)
	}
	if out, err := exec.Command("git", "init", "-q").CombinedOutput(); err != nil {
		t.Fatalf("git init: %v\n%s", err, out)
	}
	if err := checkCommitted("v1"); err != nil {
		t.Errorf("checkCommitted failed in a repository without files: %v", err)
	}
	if err := os.WriteFile("more.go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := checkCommitted("v1"); err == nil || !strings.Contains(err.Error(), "more.go") {
		t.Errorf("with an uncommitted file: got %v, want an error with its name", err)
	}
	if err := checkCommitted("v1-3-gabc-dirty"); err != nil {
		t.Errorf("with a dirty version: %v", err)
	}
}
