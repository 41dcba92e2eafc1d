package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// part describes third-party content in the binaries. It is a Go module, or an embedded table with third-party data.
type part struct {
	path, version string
	sum           string   // the module's hash in go.sum
	texts         []string // the licences and notices of the part
	table         string   // the embedded file, if the part is a table
	from          string   // the package URL of the table's source
	only          []string // the platforms whose binaries contain the part; empty means all
}

// ownPath is the path of the module that is released.
const ownPath = "github.com/ambit-run/ambit"

// billOf returns the bill of materials in the CycloneDX 1.6 format. Equal arguments produce identical bytes.
func billOf(version, goVersion string, made time.Time, parts []part) ([]byte, error) {
	self := componentOf(part{path: ownPath, version: version})
	self.Type = cdx.ComponentTypeApplication
	self.Licenses = &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}}
	self.Properties = &[]cdx.Property{{Name: "ambit:go", Value: goVersion}}
	components, uses := []cdx.Component{}, []string{}
	for _, p := range parts {
		c := componentOf(p)
		components, uses = append(components, c), append(uses, c.BOMRef)
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Timestamp: made.Format(time.RFC3339), Component: &self}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: self.BOMRef, Dependencies: &uses}}
	hash := sha256.New()
	if err := cdx.NewBOMEncoder(hash, cdx.BOMFileFormatJSON).EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return nil, err
	}
	// The serial number is a hash of the content, in the form of a version 8 UUID.
	id := hash.Sum(nil)
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80
	bom.SerialNumber = fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:16])
	var text bytes.Buffer
	err := cdx.NewBOMEncoder(&text, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6)
	return text.Bytes(), err
}

func componentOf(p part) cdx.Component {
	url := packageURL(p.path, p.version)
	c := cdx.Component{Type: cdx.ComponentTypeLibrary, BOMRef: url, Name: p.path, Version: p.version, PackageURL: url}
	var properties []cdx.Property
	if p.table != "" {
		c.Type, c.BOMRef, c.PackageURL = cdx.ComponentTypeData, "table:"+p.table, p.from
		c.Data = &[]cdx.ComponentData{{Type: cdx.ComponentDataTypeDataset}}
		properties = append(properties, cdx.Property{Name: "ambit:table", Value: p.table})
	}
	var names []string
	for _, text := range p.texts {
		names = append(names, licenceName(text))
	}
	slices.Sort(names)
	c.Licenses = &cdx.Licenses{}
	for _, name := range slices.Compact(names) {
		licence := &cdx.License{ID: name}
		if name == "" {
			licence.Name = "see LICENSES.txt"
		}
		*c.Licenses = append(*c.Licenses, cdx.LicenseChoice{License: licence})
	}
	if p.sum != "" {
		properties = append(properties, cdx.Property{Name: "ambit:go.sum", Value: p.sum})
	}
	for _, platform := range p.only {
		properties = append(properties, cdx.Property{Name: "ambit:only", Value: platform})
	}
	c.Properties = &properties
	return c
}

// packageURL returns the package URL of a module. Package URLs of Go modules must be in lower case, with escaped plus
// signs.
func packageURL(path, version string) string {
	return "pkg:golang/" + strings.ToLower(path) + "@" + strings.ReplaceAll(version, "+", "%2B")
}
