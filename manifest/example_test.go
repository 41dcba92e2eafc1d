package manifest_test

import (
	"fmt"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/manifest"
)

// Every problem is reported, each with its place and how to mend it.
func ExampleParse() {
	m := manifest.Parse("agent.json", []byte(`{
  "schema_version": 1,
  "agent": "matrix://agent/demo",
  "allowed_side_effects": ["raed"],
  "servers": []
}`), manifest.Options{})
	fmt.Println(m.Dialect, m.Valid())
	for _, d := range m.Diagnostics {
		fmt.Printf("%d:%d %s: %s (%s)\n", d.Line, d.Column, d.Code, d.Message, d.Hint)
	}
	// Output:
	// matrix false
	// 4:28 MX004: "raed" is not a side-effect class (did you mean "read"?)
	// 5:14 MX060: the agent has no servers and so can do nothing (add a server)
}

// A new version is compared with the one that somebody said yes to.
func ExampleDiff() {
	load := func(network string) *manifest.Manifest {
		return manifest.Parse("agent.toml", []byte(`
[agent]
id = "a@local"
name = "a"
version = "1.0.0"
runtime = "node"
entry = "a.mjs"
[resources]
network = "`+network+`"
`), manifest.Options{})
	}
	d := manifest.Diff(load("off").Agent(), load("full").Agent())
	for _, c := range d.Widened {
		fmt.Println(c.What+":", c.Detail)
	}
	// Output:
	// tool a: side effect write → network
	// host: its program may connect to any host
	// network: off → full
}

const starter = `{"schema_version": 1, "agent": "matrix://agent/demo", "allowed_side_effects": ["read"],
 "servers": [{"alias": "fs", "transport": "stdio", "command": "fs-server", "version": "1.0.0",
   "package_digest": "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
   "tools": [{"name": "read_file", "side_effect_class": "read"}]}]}`

// A manifest without errors is an agent, whatever dialect it was written in.
func ExampleManifest_Agent() {
	a := manifest.Parse("demo.json", []byte(starter), manifest.Options{}).Agent()
	for _, t := range a.Tools {
		fmt.Println(t.Name, t.SideEffect, t.URI)
	}
	// Output: read_file read matrix://tool/mcp/fs/read_file@1.0.0
}

// The digest is of what a manifest says, not of how it is laid out.
func ExampleManifest_Digest() {
	one := manifest.Parse("demo.json", []byte(starter), manifest.Options{})
	other := manifest.Parse("demo.json", []byte(strings.ReplaceAll(starter, "\n", "")), manifest.Options{})
	fmt.Println(one.Digest() == other.Digest())
	// Output: true
}

// A dialect may have no word for something, or ask for more. Both are told.
func ExampleConvert() {
	c, err := manifest.Convert(manifest.Parse("demo.json", []byte(starter), manifest.Options{}), agent.GPARS)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, n := range c.Lost {
		fmt.Println("lost:", n.What)
	}
	for _, n := range c.Added {
		fmt.Println("added:", n.What)
	}
	// Output:
	// lost: server fs: command
	// lost: server fs: package_digest
	// lost: server fs: tools
	// lost: allowed_side_effects
	// added: required_mcp_servers/0/server_id
	// added: required_mcp_servers/0/permission_scopes
}

// A fork is the same agent under another name.
func ExampleFork() {
	text, err := manifest.Fork(manifest.Parse("demo.json", []byte(starter), manifest.Options{}), "mine")
	if err != nil {
		fmt.Println(err)
		return
	}
	m := manifest.Parse("mine.json", text, manifest.Options{})
	fmt.Println(m.Valid(), m.Agent().ID)
	// Output: true matrix://agent/mine
}
