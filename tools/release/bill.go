package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// part is third-party content of the binaries: a module, or a table made from third-party data.
type part struct {
	path, version string
	sum           string   // from go.sum
	texts         []string // its licences and notices
	table         string   // the embedded file, if the part is a table
	from          string   // package URL of the table's source
	only          []string // the platforms whose binaries contain it, if not all do
}

// ownPath is the module that is released.
const ownPath = "github.com/ambit-run/ambit"

// The parts of CycloneDX 1.6 that are used here.
type (
	billDocument struct {
		Format       string      `json:"bomFormat"`
		Spec         string      `json:"specVersion"`
		Serial       string      `json:"serialNumber"`
		Version      int         `json:"version"`
		Metadata     metadata    `json:"metadata"`
		Components   []component `json:"components"`
		Dependencies []relation  `json:"dependencies"`
	}
	metadata struct {
		Time      string    `json:"timestamp"`
		Component component `json:"component"`
	}
	component struct {
		Type       string     `json:"type"`
		Ref        string     `json:"bom-ref"`
		Name       string     `json:"name"`
		Version    string     `json:"version"`
		PURL       string     `json:"purl,omitempty"`
		Licences   []licensed `json:"licenses,omitempty"`
		Data       []contents `json:"data,omitempty"`
		Properties []property `json:"properties,omitempty"`
	}
	contents struct {
		Type string `json:"type"`
	}
	licensed struct {
		Licence licenceName `json:"license"`
	}
	licenceName struct {
		ID   string `json:"id,omitempty"`
		Name string `json:"name,omitempty"`
	}
	property struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	relation struct {
		Ref  string   `json:"ref"`
		Uses []string `json:"dependsOn"`
	}
)

// billOf encodes the bill of materials. The same parts give the same bytes.
func billOf(version, goVersion string, made time.Time, parts []part) ([]byte, error) {
	self := componentOf(part{path: ownPath, version: version})
	self.Type, self.Licences = "application", []licensed{{licenceName{ID: "Apache-2.0"}}}
	self.Properties = []property{{"ambit:go", goVersion}}
	doc := billDocument{
		Format: "CycloneDX", Spec: "1.6", Version: 1,
		Metadata:   metadata{Time: made.Format(time.RFC3339), Component: self},
		Components: []component{},
	}
	uses := relation{Ref: self.Ref, Uses: []string{}}
	for _, p := range parts {
		c := componentOf(p)
		doc.Components = append(doc.Components, c)
		uses.Uses = append(uses.Uses, c.Ref)
	}
	doc.Dependencies = []relation{uses}
	text, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	// The serial number is a hash of the content, as a UUID of version 8.
	id := sha256.Sum256(text)
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80
	doc.Serial = fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:16])
	if text, err = json.MarshalIndent(doc, "", "  "); err != nil {
		return nil, err
	}
	return append(text, '\n'), nil
}

func componentOf(p part) component {
	url := packageURL(p.path, p.version)
	c := component{Type: "library", Ref: url, Name: p.path, Version: p.version, PURL: url}
	if p.table != "" {
		c.Type, c.Ref, c.PURL = "data", "table:"+p.table, p.from
		c.Data = []contents{{"dataset"}}
		c.Properties = append(c.Properties, property{"ambit:table", p.table})
	}
	var names []string
	for _, text := range p.texts {
		names = append(names, nameOf(text))
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if name == "" {
			c.Licences = append(c.Licences, licensed{licenceName{Name: "see LICENSES.txt"}})
			continue
		}
		c.Licences = append(c.Licences, licensed{licenceName{ID: name}})
	}
	if p.sum != "" {
		c.Properties = append(c.Properties, property{"ambit:go.sum", p.sum})
	}
	for _, platform := range p.only {
		c.Properties = append(c.Properties, property{"ambit:only", platform})
	}
	return c
}

// packageURL returns a module's package URL of the type golang: in lower case, with the plus sign escaped.
func packageURL(path, version string) string {
	return "pkg:golang/" + strings.ToLower(path) + "@" + strings.ReplaceAll(version, "+", "%2B")
}
