package matrix_test

import (
	"fmt"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/manifest/matrix"
)

// Parse rejects a version such as latest. Such a version does not identify the code that will run.
func ExampleParse() {
	rep := diag.Open("agent.json", `{"schema_version": 1, "agent": "matrix://agent/demo", "allowed_side_effects": ["read"],
 "servers": [{"alias": "fs", "transport": "stdio", "command": "fs-server", "version": "latest",
   "package_digest": "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
   "tools": [{"name": "read_file", "side_effect_class": "read"}]}]}`, false)
	tree, ok := doc.ParseJSON(rep.Source, rep)
	if !ok {
		fmt.Println("the file is not valid JSON")
		return
	}
	m := matrix.Parse(tree.Root(), rep)
	fmt.Println(m.Agent, m.Servers[0].Tools[0].Name)
	for _, d := range rep.Finish() {
		fmt.Println(d.Code, d.Pointer, d.Message)
	}
	// Output:
	// matrix://agent/demo read_file
	// MX020 /servers/0/version "latest" is not an exact version
}
