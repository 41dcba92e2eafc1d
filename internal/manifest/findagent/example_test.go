package findagent_test

import (
	"fmt"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/manifest/findagent"
)

// Parse reports a credential slot without hosts. It also reports an attempt to disable the scan for leaked
// secrets.
func ExampleParse() {
	rep := diag.Open("findagent.json", `{
  "name": "Weather", "description": "Tells the weather.", "kind": "mcp-tool",
  "system_prompt": "You tell people what the weather will be like tomorrow.", "example_prompts": ["Will it rain?"],
  "tools": [{"name": "look", "description": "Look it up.", "action": {"type": "http", "method": "GET", "url": "https://api.example.com/{place}", "auth_ref": "KEY"},
    "input_schema": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}}],
  "credential_slots": [{"ref": "KEY", "label": "the key of the service"}],
  "guardrails": {"output": {"secret_leak_scan": false}},
  "delivery": "mcp.stdio", "exec": "user-local", "targets": ["cli"]
}`, false)
	tree, ok := doc.ParseJSON(rep.Source, rep)
	if !ok {
		fmt.Println("the file is not valid JSON")
		return
	}
	m := findagent.Parse(tree.Root(), rep)
	fmt.Println(m.Name, m.Tools[0].Action.Type)
	for _, d := range rep.Finish() {
		fmt.Println(d.Code, d.Pointer, d.Message)
	}
	// Output:
	// Weather http
	// FA074 /credential_slots/0/allowed_hosts the slot has no allowed_hosts, so its credential could be sent anywhere
	// FA083 /guardrails/output/secret_leak_scan secret_leak_scan is mandatory and cannot be set to false
}
