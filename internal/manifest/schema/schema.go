// Package schema contains the JSON Schemas (2020-12) of the dialects, for editors and other tools.
//
// If the Go rules report an error, the schema usually rejects the manifest too. Some rules, such as "this reference
// must resolve", exist only in Go, because JSON Schema cannot express them. If the Go rules only warn, the schema
// accepts the manifest. A test violates each constraint of each schema, and checks that the Go rules report an error
// too.
//
// Covenant manifests are TOML. Their schema describes the equivalent JSON.
package schema

import (
	"embed"

	"github.com/ambit-run/ambit/agent"
)

//go:embed *.json
var files embed.FS

// Of returns the schema of a dialect, or nil if the dialect is unknown.
func Of(d agent.Dialect) []byte {
	b, err := files.ReadFile(string(d) + ".json")
	if err != nil {
		return nil
	}
	return b
}
