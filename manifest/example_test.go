package manifest_test

import (
	"fmt"

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
