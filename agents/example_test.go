package agents_test

import (
	"fmt"

	"github.com/ambit-run/ambit/agents"
	"github.com/ambit-run/ambit/manifest"
)

// The shipped agents are embedded in the binary. They are parsed like any other manifest.
func ExampleFind() {
	path, ok := agents.Find("default")
	if !ok {
		fmt.Println("no agent named default ships with ambit")
		return
	}
	text, err := agents.Files.ReadFile(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := manifest.Parse(path, text, manifest.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(m.Dialect, m.Valid(), m.Agent().ID)
	// Output: matrix true matrix://agent/default
}
