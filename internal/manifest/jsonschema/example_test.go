package jsonschema_test

import (
	"fmt"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/manifest/jsonschema"
)

var unusable = &diag.Rule{Code: "EX001", Severity: diag.Error, Title: "the schema cannot be used", Why: "no call could be checked", Fix: "fix the schema"}

// Check reports the location of every mistake in a schema.
func ExampleCheck() {
	rep := diag.Open("schema.json", `{"type": "object", "properties": {"n": {"type": "nubmer"}, "o": {"$ref": "other.json"}}}`, false)
	tree, ok := doc.ParseJSON(rep.Source, rep)
	if !ok {
		fmt.Println("the file is not valid JSON")
		return
	}
	fmt.Println(jsonschema.Check(tree.Root(), unusable, rep))
	for _, d := range rep.Finish() {
		fmt.Println(d.Pointer, d.Message)
	}
	// Output:
	// false
	// /properties/n/type "nubmer" is not a JSON Schema type
	// /properties/o/$ref "other.json" refers to another document, which ambit never fetches
}
