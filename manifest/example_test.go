package manifest_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/manifest"
)

const starter = `{"schema_version": 1, "agent": "matrix://agent/demo", "allowed_side_effects": ["read"],
 "servers": [{"alias": "fs", "transport": "stdio", "command": "fs-server", "args": ["/data"], "version": "1.0.0",
   "package_digest": "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
   "tools": [{"name": "read_file", "side_effect_class": "read"}, {"name": "write_file", "side_effect_class": "write"}]}]}`

// parse returns a manifest that is known to be valid.
func parse(name, text string) *manifest.Manifest {
	m, err := manifest.Parse(name, []byte(text), manifest.Options{})
	if err != nil {
		panic(err)
	}
	return m
}

// Load a file and print its problems.
func ExampleLoad() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "agent.json")
	text := `{
  "schema_version": 1,
  "agent": "matrix://agent/demo",
  "allowed_side_effects": ["raed"],
  "servers": []
}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		fmt.Println(err)
		return
	}

	m, err := manifest.Load(file, manifest.Options{})
	var invalid *manifest.InvalidError
	if err != nil && !errors.As(err, &invalid) {
		fmt.Println("cannot read the file:", err)
		return
	}
	fmt.Println(m.Dialect, m.Valid())
	for _, d := range m.Diagnostics {
		fmt.Printf("%d:%d %s %s: %s (%s)\n", d.Line, d.Column, d.Severity, d.Code, d.Message, d.Hint)
	}
	// Output:
	// matrix false
	// 4:28 error MX004: "raed" is not a side-effect class (did you mean "read"?)
	// 5:14 warning MX060: the agent has no servers, so it cannot do anything (add a server)
}

// List the tools of an agent, and what it can reach.
func ExampleManifest_Agent() {
	a := parse("demo.json", starter).Agent()
	for _, t := range a.Tools {
		fmt.Println(t.Name, t.SideEffect, a.Callable(&t), t.URI)
	}
	r := a.Reach()
	fmt.Println("programs:", agent.CommandLine(r.Programs[0].Argv))
	fmt.Println("paths:", r.Paths)
	fmt.Println("any host:", r.AnyHost)
	// Output:
	// read_file read true matrix://tool/mcp/fs/read_file@1.0.0
	// write_file write false matrix://tool/mcp/fs/write_file@1.0.0
	// programs: fs-server /data
	// paths: [/data]
	// any host: false
}

// Compare a new version with the one that a person approved.
func ExampleDiff() {
	older := parse("demo.json", starter)
	newer := parse("demo.json", strings.Replace(starter, `["read"]`, `["read", "write"]`, 1))
	d := manifest.Diff(older.Agent(), newer.Agent())
	for _, c := range d.Widened {
		fmt.Println(c.What+":", c.Detail)
	}
	// Output:
	// side effect: new: write
	// tool fs/write_file: can now be called
	// server fs access: new: write /data
}

// Convert a manifest to another dialect. Lost and Added list the differences.
func ExampleConvert() {
	c, err := manifest.Convert(parse("demo.json", starter), agent.GPARS)
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

// The digest depends on the content of a manifest, not on its layout.
func ExampleManifest_Digest() {
	other := strings.ReplaceAll(starter, "\n", "")
	fmt.Println(parse("demo.json", starter).Digest() == parse("demo.json", other).Digest())
	// Output: true
}

// A fork is the same agent with another name.
func ExampleFork() {
	text, err := manifest.Fork(parse("demo.json", starter), "mine")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(parse("mine.json", string(text)).Agent().ID)
	// Output: matrix://agent/mine
}
