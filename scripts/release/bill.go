package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"
)

// part is a module that is in the binaries.
type part struct {
	path, version string
	sum           string // as go.sum has it
	licence       string // its SPDX name, empty if the text is none that we know
}

// The words of CycloneDX 1.6, as far as they are used.
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
		PURL       string     `json:"purl"`
		Licences   []licensed `json:"licenses,omitempty"`
		Properties []property `json:"properties,omitempty"`
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

// billOf writes the bill of materials. It is the same for the same parts.
func billOf(version, goVersion string, made time.Time, parts []part) ([]byte, error) {
	self := componentOf(part{path: "github.com/ambit-run/ambit", version: version, licence: "Apache-2.0"})
	self.Type = "application"
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
	// A number of its own for each content, in the form of a UUID of version 8.
	id := sha256.Sum256(text)
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80
	doc.Serial = fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:16])
	if text, err = json.MarshalIndent(doc, "", "  "); err != nil {
		return nil, err
	}
	return append(text, '\n'), nil
}

func componentOf(p part) component {
	url := "pkg:golang/" + p.path + "@" + p.version
	c := component{Type: "library", Ref: url, Name: p.path, Version: p.version, PURL: url}
	if p.licence != "" {
		c.Licences = []licensed{{licenceName{ID: p.licence}}}
	} else {
		c.Licences = []licensed{{licenceName{Name: "see LICENSES.txt"}}}
	}
	if p.sum != "" {
		c.Properties = []property{{"ambit:go.sum", p.sum}}
	}
	return c
}
