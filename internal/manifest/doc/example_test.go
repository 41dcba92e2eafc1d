package doc_test

import (
	"fmt"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
)

// A value knows its location. Methods of an absent value return zero values.
func ExampleParseJSON() {
	rep := diag.Open("agent.json", `{"servers": [{"alias": "fs"}]}`, false)
	tree, ok := doc.ParseJSON(rep.Source, rep)
	if !ok {
		fmt.Println("the file is not valid JSON")
		return
	}
	for server := range tree.Root().Get("servers").Each() {
		alias := server.Get("alias")
		fmt.Println(alias.Text(), alias.Pointer())
		fmt.Printf("%q\n", server.Get("command").Text())
	}
	// Output:
	// fs /servers/0/alias
	// ""
}

// The same content has the same digest, in either syntax.
func ExampleTree_Digest() {
	read := func(name, text string, parse func(*diag.Source, *diag.Reporter) (*doc.Tree, bool)) string {
		rep := diag.Open(name, text, false)
		tree, _ := parse(rep.Source, rep)
		return tree.Digest()
	}
	fmt.Println(read("a.json", `{"name": "a", "calls": 1}`, doc.ParseJSON) == read("a.toml", "calls = 1\nname = \"a\"", doc.ParseTOML))
	// Output: true
}
