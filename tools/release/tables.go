package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
)

// table is a file in the binary that was made of what others have gathered. Their
// code is not in the binary, so no linker knows of them.
type table struct {
	file   string
	module string // that it was made of
	folder string // whose go.mod names the module
	part   string // of the module
	// name, version and from are of one that no module has.
	name, version, from string
	terms               string // that hold besides those of the module; empty if none
}

// Unicode's terms are named and not repeated: no module carries their text, and so
// none can be read.
const unicodeTerms = `Copyright © 1991-2025 Unicode, Inc. The table is a part of Unicode's confusables.txt in another form, under the
UNICODE LICENSE V3 (SPDX-License-Identifier: Unicode-3.0): https://www.unicode.org/license.txt`

// gitleaks has a module of its own, that nobody needs for building.
const gitleaks = "internal/gateway/guard/secret/gitleaks"

// tables are all of them. own is our licence, under which libphonenumber is too,
// whose numbers the module about phones carries.
func tables(own string) []table {
	return []table{
		{file: "internal/gateway/guard/secret/gitleaks.json.gz", module: "github.com/zricethezav/gitleaks/v8", folder: gitleaks, part: "config/gitleaks.toml"},
		{file: "internal/gateway/guard/pii/phones.json.gz", module: "github.com/nyaruka/phonenumbers", folder: ".", terms: own},
		{
			file: "internal/gateway/guard/view/confusables.txt.gz", name: "Unicode confusables.txt", version: "17.0.0",
			from:  "pkg:generic/confusables.txt@17.0.0?download_url=https://www.unicode.org/Public/17.0.0/security/confusables.txt",
			terms: unicodeTerms,
		},
	}
}

// tablesIn are the tables by others. Every packed file in the binary has to be
// among them: ours are plain.
func tablesIn(env environment, where map[string]*source, own string) ([]part, error) {
	self := where[ownPath]
	if self == nil {
		return nil, fmt.Errorf("go list does not tell of %s", ownPath)
	}
	listed := tables(own)
	for _, file := range self.embeds {
		if path.Ext(file) == ".gz" && !slices.ContainsFunc(listed, func(t table) bool { return t.file == file }) {
			return nil, fmt.Errorf("%s is embedded without an owner: list it in tools/release/tables.go", file)
		}
	}
	var parts []part
	for _, t := range listed {
		if !slices.Contains(self.embeds, t.file) {
			return nil, fmt.Errorf("%s is no longer embedded: remove it from tools/release/tables.go", t.file)
		}
		p := part{path: t.name, version: t.version, table: t.file, from: t.from}
		if t.module != "" {
			out, err := env.run("-C", t.folder, "list", "-m", "-json", t.module)
			if err != nil {
				return nil, err
			}
			var m module
			if err := json.Unmarshal(out, &m); err != nil {
				return nil, err
			}
			m = m.effective()
			p.path, p.version = m.Path, m.Version
			p.from = packageURL(m.Path, m.Version)
			if t.part != "" {
				p.from += "#" + t.part
			}
			p.texts, err = licenceTexts(m.Dir)
			if err == nil && len(p.texts) == 0 {
				err = errors.New("there is none")
			}
			if err != nil {
				return nil, fmt.Errorf("the licence of %s %s, of which %s was made: %w", m.Path, m.Version, t.file, err)
			}
		}
		if t.terms != "" {
			p.texts = append(p.texts, t.terms)
		}
		parts = append(parts, p)
	}
	return parts, nil
}
