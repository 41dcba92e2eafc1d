package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
)

// licences reads the licences of the modules, and of Go itself, whose library is
// in every binary. Texts that are the same are written once.
func licences(in map[string]*debug.Module, goVersion string) ([]part, []byte, error) {
	folders, err := folders()
	if err != nil {
		return nil, nil, err
	}
	in["std"] = &debug.Module{Path: "std", Version: strings.TrimPrefix(goVersion, "go")}
	var parts []part
	var missing error
	users := map[string][]string{}
	var order []string
	for _, path := range slices.Sorted(maps.Keys(in)) {
		m := in[path]
		texts, err := licenceTexts(folders[path])
		if err != nil || len(texts) == 0 {
			missing = errors.Join(missing, fmt.Errorf("%s %s has no licence that could be read", path, m.Version), err)
			continue
		}
		p := part{path: path, version: m.Version, sum: m.Sum, licence: nameOf(texts[0])}
		if len(texts) > 1 {
			p.licence = "" // what holds for what is for a reader
		}
		parts = append(parts, p)
		for _, text := range texts {
			if users[text] == nil {
				order = append(order, text)
			}
			users[text] = append(users[text], path+" "+m.Version)
		}
	}
	if missing != nil {
		return nil, nil, missing
	}
	var b bytes.Buffer
	b.WriteString("ambit is under the Apache License 2.0. Its binaries hold parts by others, under these licences.\n")
	for _, text := range order {
		fmt.Fprintf(&b, "\n%s\n%s\n\n%s\n", strings.Repeat("=", 80), strings.Join(users[text], "\n"), strings.TrimSpace(text))
	}
	return parts, b.Bytes(), nil
}

// folders tells where each module lies. Nothing is fetched.
func folders() (map[string]string, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("go", "list", "-m", "-json", "all")
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOPROXY=off", "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	all := map[string]string{"std": strings.TrimSpace(string(root))}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var m struct {
			Path, Dir string
			Replace   *struct{ Path, Dir string }
		}
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		if m.Replace != nil {
			m.Path, m.Dir = m.Replace.Path, m.Replace.Dir
		}
		all[m.Path] = m.Dir
	}
}

var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|unlicense)([-._].*)?$`)

// licenceTexts are those at the top of a module, the licence before the notices.
func licenceTexts(dir string) ([]string, error) {
	if dir == "" {
		return nil, errors.New("its folder is not known: go mod download")
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var texts []string
	for _, e := range entries {
		if e.IsDir() || !licenceFile.MatchString(e.Name()) || strings.HasSuffix(e.Name(), ".go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		texts = append(texts, strings.ReplaceAll(string(text), "\r\n", "\n"))
	}
	return texts, nil
}

// known are sentences that stand in one licence only, the narrower first.
var known = []struct{ name, sentence string }{
	{"Apache-2.0", "Apache License Version 2.0"},
	{"MPL-2.0", "Mozilla Public License Version 2.0"},
	{"MPL-2.0", "Mozilla Public License, version 2.0"},
	{"ISC", "Permission to use, copy, modify, and/or distribute this software for any purpose"},
	{"ISC", "Permission to use, copy, modify, and distribute this software for any purpose"},
	{"MIT", "Permission is hereby granted, free of charge, to any person obtaining a copy"},
	{"BSD-3-Clause", "Neither the name of"},
	{"BSD-3-Clause", "may be used to endorse or promote products"},
	{"BSD-2-Clause", "Redistribution and use in source and binary forms"},
	{"Unlicense", "This is free and unencumbered software released into the public domain"},
}

// nameOf is the SPDX name of a licence's text, empty where it is not known for
// sure: one that holds the sentences of two is left to a reader.
func nameOf(text string) string {
	flat := strings.Join(strings.Fields(text), " ")
	found := ""
	for _, k := range known {
		if !strings.Contains(flat, k.sentence) || k.name == found {
			continue
		}
		switch {
		case found == "":
			found = k.name
		case found == "BSD-3-Clause" && k.name == "BSD-2-Clause": // which is in it
		default:
			return ""
		}
	}
	return found
}
