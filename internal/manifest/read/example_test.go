package read_test

import (
	"fmt"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/manifest/read"
)

// A dialect reads the fields that it knows. The reader reports wrong types and unknown fields.
func ExampleReader() {
	rep := diag.Open("agent.json", `{"name": "scout", "calls": "many", "effcts": ["read"]}`, false)
	tree, ok := doc.ParseJSON(rep.Source, rep)
	if !ok {
		fmt.Println("the file is not valid JSON")
		return
	}
	r := &read.Reader{Reporter: rep, Unknown: diag.UnknownField}
	o := r.Object(tree.Root())
	name, _ := o.Text("name", read.Required)
	_, counted := o.Int("calls", read.Optional, 1, 100)
	o.Texts("effects", read.Optional)
	o.Done()
	fmt.Println(name, counted)
	for _, d := range rep.Finish() {
		fmt.Println(d.Pointer, d.Message)
	}
	// Output:
	// scout false
	// /calls "calls" must be a number, not a string
	// /effcts unknown field "effcts"
}
