// Package schema contains the JSON Schemas (2020-12) of the dialects, for editors and
// other tools.
//
// A schema refuses a manifest where the Go rules report an error, as far as a schema
// can express the rule. Rules such as "this reference must resolve" exist only in Go.
// A schema never refuses a manifest for which the rules only warn. A test violates
// every constraint of every schema and checks that the Go rules refuse it too.
//
// The Covenant schema describes the JSON equivalent of the TOML.
package schema

import (
	"embed"

	"github.com/ambit-run/ambit/agent"
)

//go:embed *.json
var files embed.FS

// Of returns the schema of a dialect; nil if the dialect is unknown.
func Of(d agent.Dialect) []byte {
	b, err := files.ReadFile(string(d) + ".json")
	if err != nil {
		return nil
	}
	return b
}
