package gpars_test

import (
	"fmt"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/manifest/gpars"
)

// A GPARS manifest lists the servers and scopes that the agent needs. It cannot contain a command.
func ExampleParse() {
	rep := diag.Open("agent.json", `{
  "id": "8f1d3a52-0c0b-4c6e-9a51-2f6f1c7f9b10",
  "required_mcp_servers": [{"server_id": "io.example/files", "version": "^1.2.0", "permission_scopes": ["files:read"]}],
  "command": "files-server"
}`, false)
	tree, ok := doc.ParseJSON(rep.Source, rep)
	if !ok {
		fmt.Println("the file is not valid JSON")
		return
	}
	for _, s := range gpars.Parse(tree.Root(), rep).RequiredMCPServers {
		fmt.Println(s.ServerID, s.Version, s.PermissionScopes)
	}
	for _, d := range rep.Finish() {
		fmt.Println(d.Code, d.Message)
	}
	// Output:
	// io.example/files ^1.2.0 [files:read]
	// GP001 unknown field "command"
}
