package covenant_test

import (
	"fmt"

	"github.com/ambit-run/ambit/internal/manifest/covenant"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
)

// Parse fills in the defaults for missing fields.
func ExampleParse() {
	rep := diag.Open("agent.toml", `
[agent]
id = "scout@local"
name = "scout"
version = "1.0.0"
runtime = "python3"
entry = "main.py"
[capabilities]
required = ["tool.search", "everything"]
`, false)
	tree, ok := doc.ParseTOML(rep.Source, rep)
	if !ok {
		fmt.Println("the file is not valid TOML")
		return
	}
	m := covenant.Parse(tree.Root(), rep)
	fmt.Println(m.Agent.ID, m.Resources.Network)
	for _, d := range rep.Finish() {
		fmt.Println(d.Code, d.Message)
	}
	// Output:
	// scout@local outbound-https-only
	// CV010 "everything" is outside the reserved namespaces intent., memory., identity., tool. and agent.
}
