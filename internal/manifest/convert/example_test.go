package convert_test

import (
	"errors"
	"fmt"

	"github.com/ambit-run/ambit/internal/manifest/convert"
)

// A conversion lists its losses and the additions that a person should check.
func ExampleNotes() {
	var n convert.Notes
	n.Lose("server fs: package_digest", "the other dialect pins no packages")
	n.Add("required_mcp_servers/0/server_id", "derived from the alias %s", "fs")
	for _, note := range n.Lost {
		fmt.Printf("lost %s: %s\n", note.What, note.Detail)
	}
	for _, note := range n.Added {
		fmt.Printf("added %s: %s\n", note.What, note.Detail)
	}
	// Output:
	// lost server fs: package_digest: the other dialect pins no packages
	// added required_mcp_servers/0/server_id: derived from the alias fs
}

func ExampleRefuse() {
	err := convert.Refuse("a program has no prompts")
	fmt.Println(errors.Is(err, convert.ErrNothingSurvives))
	// Output: true
}
