package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
)

// table is an embedded file made from third-party data. The linker does not know its source.
type table struct {
	file   string
	module string // its source, if that is a module
	folder string // the folder whose go.mod requires the module
	part   string // the file in the module
	// name, version and from describe a source that is not a module.
	name, version, from string
	terms               string // terms in addition to the module's licence
}

// unicodeTerms refers to Unicode's licence, because no module contains its text.
const unicodeTerms = `Copyright © 1991-2025 Unicode, Inc. The table is a part of Unicode's confusables.txt in another form, under the
UNICODE LICENSE V3 (SPDX-License-Identifier: Unicode-3.0): https://www.unicode.org/license.txt`

// gitleaks is the folder of a separate module, which a build does not need.
const gitleaks = "internal/gateway/guard/secret/gitleaks"

// tables returns all tables. own is ambit's licence, which is also that of libphonenumber, the source of the phone numbers.
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

// tablesIn returns the tables as parts. Every embedded .gz file must be listed, because ambit's own files are not
// compressed.
func tablesIn(env environment, where map[string]*source, own string) ([]part, error) {
	self := where[ownPath]
	if self == nil {
		return nil, fmt.Errorf("go list does not list %s", ownPath)
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
				err = errors.New("not found")
			}
			if err != nil {
				return nil, fmt.Errorf("the licence of %s %s, the source of %s: %w", m.Path, m.Version, t.file, err)
			}
		}
		if t.terms != "" {
			p.texts = append(p.texts, t.terms)
		}
		parts = append(parts, p)
	}
	return parts, nil
}
