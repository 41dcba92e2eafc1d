package jsonschema_test

import (
	"fmt"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/manifest/jsonschema"
)

var unusable = diag.NewError("EX001", "the schema cannot be used", "no call could be checked", "mend the schema")

// A schema that no validator could use is refused with the place of the mistake.
func ExampleCheck() {
	rep := diag.Open("schema.json", `{"type": "object", "properties": {"n": {"type": "nubmer"}, "o": {"$ref": "other.json"}}}`, false)
	tree, ok := doc.ParseJSON(rep.Source, rep)
	if !ok {
		fmt.Println("it is no JSON")
		return
	}
	fmt.Println(jsonschema.Check(tree.Root(), unusable, rep))
	for _, d := range rep.Finish() {
		fmt.Println(d.Pointer, d.Message)
	}
	// Output:
	// false
	// /properties/n/type "nubmer" is not a type that JSON Schema knows
	// /properties/o/$ref "other.json" refers to another document, and nothing is ever fetched
}
