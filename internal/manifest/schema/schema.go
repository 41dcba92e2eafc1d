// Package schema holds the JSON Schemas (2020-12) of the dialects, for editors
// and other tools.
//
// They say no where the Go rules report an error, as far as a schema can
// express a rule; what needs more, such as a reference that must resolve, only
// the Go rules know. They never say no where the rules only warn. A test makes
// a violation of every constraint in every schema and shows that both refuse
// it.
//
// The Covenant schema describes the JSON that says the same as the TOML.
package schema

import (
	"embed"

	"github.com/ambit-run/ambit/agent"
)

//go:embed *.json
var files embed.FS

// Of returns the schema of a dialect; nothing for one that does not exist.
func Of(d agent.Dialect) []byte {
	b, err := files.ReadFile(string(d) + ".json")
	if err != nil {
		return nil
	}
	return b
}
