package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
)

// table is an embedded file that was created from third-party data. The build information of a binary does not contain
// the source of the data, so the source is listed here.
type table struct {
	file   string
	module string // the module that contains the data; empty if the source is not a module
	folder string // the folder with the go.mod that requires the module
	part   string // the file in the module that contains the data
	// These fields describe a source that is not a module. The last field is the package URL of the source.
	name, version, from string
	terms               string // licence terms in addition to the module's licence
}

// unicodeTerms refers to Unicode's licence, because no module contains the text of that licence.
const unicodeTerms = `Copyright © 1991-2025 Unicode, Inc. The table is a part of Unicode's confusables.txt in another
form, under the UNICODE LICENSE V3 (SPDX-License-Identifier: Unicode-3.0): https://www.unicode.org/license.txt`

const guard = "internal/gateway/guard/"

// tables returns all tables. The source of the phone numbers, libphonenumber, has the same licence as ambit. The
// caller passes the text of that licence.
func tables(own string) []table {
	return []table{
		{file: guard + "pii/phones.txt", module: "github.com/nyaruka/phonenumbers", folder: ".", terms: own},
		{
			file: guard + "view/confusables.txt.gz", name: "Unicode confusables.txt", version: "17.0.0",
			from: "pkg:generic/confusables.txt@17.0.0?download_url=" +
				"https://www.unicode.org/Public/17.0.0/security/confusables.txt",
			terms: unicodeTerms,
		},
	}
}

// tablesIn returns the tables as parts. It returns an error if an embedded .gz file is missing from the list of tables.
// ambit's own files are not compressed, so every .gz file contains third-party data.
func tablesIn(env environment, where map[string]*source, own string) ([]part, error) {
	self := where[ownPath]
	if self == nil {
		return nil, fmt.Errorf("the output of go list does not contain the module %s", ownPath)
	}
	listed := tables(own)
	for _, file := range self.embeds {
		if path.Ext(file) == ".gz" && !slices.ContainsFunc(listed, func(t table) bool { return t.file == file }) {
			return nil, fmt.Errorf("%s is embedded, but its source is not listed in tools/release/tables.go", file)
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
			m = m.orReplacement()
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
				return nil, fmt.Errorf("cannot read the licence of %s %s, the source of %s: %w", m.Path, m.Version, t.file, err)
			}
		}
		if t.terms != "" {
			p.texts = append(p.texts, t.terms)
		}
		parts = append(parts, p)
	}
	return parts, nil
}
