package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
)

// source describes the source code of a module.
type source struct {
	module  string
	version string
	root    string   // the module's top folder
	folders []string // the folders of the module's linked packages
	embeds  []string // the files that these packages embed, relative to the top folder
}

// sources returns the source of each module in the binaries for the given platforms. The keys are module paths.
func sources(env environment, platforms []string) (map[string]*source, error) {
	root, err := env.run("env", "GOROOT")
	if err != nil {
		return nil, err
	}
	all := map[string]*source{"std": {module: "std", root: strings.TrimSpace(string(root))}}
	for _, platform := range platforms {
		out, err := env.forPlatform(platform).run("list", "-deps", "-json=Dir,Standard,EmbedFiles,Module", "./cmd/ambit")
		if err != nil {
			return nil, err
		}
		for d := json.NewDecoder(bytes.NewReader(out)); ; {
			var p struct {
				Dir        string
				Standard   bool
				EmbedFiles []string
				Module     module
			}
			if err := d.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, err
			}
			if p.Standard {
				continue // the whole standard library has one licence
			}
			m := p.Module.orReplacement()
			s := all[m.Path]
			if s == nil {
				s = &source{module: m.Path, version: m.Version, root: m.Dir}
				all[m.Path] = s
			}
			if slices.Contains(s.folders, p.Dir) {
				continue
			}
			s.folders = append(s.folders, p.Dir)
			for _, f := range p.EmbedFiles {
				name, err := filepath.Rel(m.Dir, filepath.Join(p.Dir, f))
				if err != nil {
					return nil, err
				}
				s.embeds = append(s.embeds, filepath.ToSlash(name))
			}
		}
	}
	return all, nil
}

// module is a module in the output of go list.
type module struct {
	Path, Version, Dir string
	Replace            *module
}

// orReplacement returns the module that replaces m. If there is none, it returns m itself.
func (m module) orReplacement() module {
	if m.Replace != nil {
		return *m.Replace
	}
	return m
}

// linkedModule is a module and the platforms whose binaries contain it.
type linkedModule struct {
	*debug.Module
	platforms []string
}

// modules returns the parts that are Go modules, including the standard library. The first map contains the modules in
// the binaries, and the second map contains their sources. The last argument is the total number of platforms.
func modules(in map[string]*linkedModule, where map[string]*source, all int) ([]part, error) {
	var parts []part
	var missing error
	for _, path := range slices.Sorted(maps.Keys(in)) {
		p := part{path: path, version: in[path].Version, sum: in[path].Sum}
		if len(in[path].platforms) < all {
			p.only = in[path].platforms
		}
		var err error
		if s := where[path]; s != nil {
			p.texts, err = s.licences()
		}
		if err != nil || len(p.texts) == 0 {
			missing = errors.Join(missing, fmt.Errorf("found no readable licence for %s %s", path, p.version), err)
		}
		parts = append(parts, p)
	}
	return parts, missing
}

// licences returns the licences of a module. It looks in the module's top folder, in the folders of the linked
// packages, and in all folders between them. Code that was copied from another project can have its own licence in its
// folder.
func (s *source) licences() ([]string, error) {
	texts, err := licenceTexts(s.root)
	if err != nil || len(texts) == 0 {
		return nil, err
	}
	seen := map[string]bool{s.root: true}
	slices.Sort(s.folders)
	for _, dir := range s.folders {
		for ; !seen[dir] && strings.HasPrefix(dir, s.root); dir = filepath.Dir(dir) {
			seen[dir] = true
			more, err := licenceTexts(dir)
			if err != nil {
				return nil, err
			}
			texts = append(texts, more...)
		}
	}
	return texts, nil
}

// licences returns the content of LICENSES.txt, which consists of ambit's own licence and the licences of all parts.
// If several parts have the same licence, the licence appears once, after the list of these parts.
func licences(version, own string, parts []part) []byte {
	users := map[string][]string{own: {ownPath + " " + version}}
	order := []string{own}
	for _, p := range parts {
		for _, text := range p.texts {
			if users[text] == nil {
				order = append(order, text)
			}
			name := p.path + " " + p.version
			if p.table != "" {
				name += ", in " + p.table
			}
			if !slices.Contains(users[text], name) {
				users[text] = append(users[text], name)
			}
		}
	}
	var b bytes.Buffer
	b.WriteString("ambit is licensed under the Apache License 2.0. " +
		"Its binaries contain third-party code under these licences.\n")
	for _, text := range order {
		fmt.Fprintf(&b, "\n%s\n%s\n\n%s\n", strings.Repeat("=", 80), strings.Join(users[text], "\n"), strings.TrimSpace(text))
	}
	return b.Bytes()
}

var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|unlicense)([-._].*)?$`)

// licenceTexts returns the contents of the licence and notice files in a folder, in the order of their names.
func licenceTexts(dir string) ([]string, error) {
	if dir == "" {
		return nil, errors.New("the module's folder is unknown; to download the modules, run: make modules")
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

// licenceSentences lists sentences that identify a licence. More specific sentences come first.
var licenceSentences = []struct{ name, sentence string }{
	{"Apache-2.0", "Apache License Version 2.0"},
	{"MPL-2.0", "Mozilla Public License Version 2.0"},
	{"MPL-2.0", "Mozilla Public License, version 2.0"},
	{"Unicode-3.0", "UNICODE LICENSE V3"},
	{"ISC", "Permission to use, copy, modify, and/or distribute this software for any purpose"},
	{"ISC", "Permission to use, copy, modify, and distribute this software for any purpose"},
	{"MIT", "Permission is hereby granted, free of charge, to any person obtaining a copy"},
	{"BSD-3-Clause", "Neither the name of"},
	{"BSD-3-Clause", "may be used to endorse or promote products"},
	{"BSD-2-Clause", "Redistribution and use in source and binary forms"},
	{"Unlicense", "This is free and unencumbered software released into the public domain"},
}

// licenceName returns the SPDX identifier of a licence text. It returns "" if no known licence matches, or if several
// match.
func licenceName(text string) string {
	flat := strings.Join(strings.Fields(text), " ")
	found := ""
	for _, k := range licenceSentences {
		if !strings.Contains(flat, k.sentence) || k.name == found {
			continue
		}
		switch {
		case found == "":
			found = k.name
		case found == "BSD-3-Clause" && k.name == "BSD-2-Clause": // BSD-3-Clause contains BSD-2-Clause
		case found == "Unicode-3.0" && k.name == "MIT": // Unicode-3.0 begins with the same words as MIT
		default:
			return ""
		}
	}
	return found
}
