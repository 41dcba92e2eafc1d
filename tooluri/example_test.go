package tooluri_test

import (
	"errors"
	"fmt"

	"github.com/ambit-run/ambit/tooluri"
)

// A tool URI names the tool's server and its exact version.
func ExampleParse() {
	u, err := tooluri.Parse("matrix://tool/mcp/fs/read_file@2026.1.14")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(u.Server, u.Name, u.Pin, u.Native())
	fmt.Println(u)
	// Output:
	// fs read_file 2026.1.14 false
	// matrix://tool/mcp/fs/read_file@2026.1.14
}

// A version that can change later, such as latest, is not a pin. Parse returns a different error for a malformed URI.
func ExampleParse_refused() {
	for _, s := range []string{
		"matrix://tool/mcp/fs/read_file",
		"matrix://tool/mcp/fs/read_file@latest",
		"https://example.com/read_file@1.0.0",
	} {
		_, err := tooluri.Parse(s)
		fmt.Println(errors.Is(err, tooluri.ErrUnpinnedTool), errors.Is(err, tooluri.ErrInvalidURI))
	}
	// Output:
	// true false
	// true false
	// false true
}

// A pin may also be the digest of the published package.
func ExampleParsePin() {
	p, err := tooluri.ParsePin("sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
	fmt.Println(p.Digest(), err)
	_, err = tooluri.ParsePin("1.x")
	fmt.Println(errors.Is(err, tooluri.ErrUnpinnedTool))
	// Output:
	// true <nil>
	// true
}
