package diag_test

import (
	"fmt"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

var tooShort = diag.NewError("EX001", "the name is too short", "nobody could tell it from another", "write a longer one")

// A reporter keeps all problems and returns them in the order of the file.
func ExampleReporter() {
	r := diag.Open("agent.json", "{\n  \"name\": \"x\"\n}", false)
	r.Report(tooShort, diag.Place{Start: 12, End: 15, Pointer: "/name"}, "three letters are enough", "%s is too short", diag.Quote("x"))
	for _, d := range r.Finish() {
		fmt.Printf("%s:%d:%d: %s %s: %s (%s)\n", r.Source.Name, d.Line, d.Column, d.Severity, d.Code, d.Message, d.Hint)
	}
	// Output: agent.json:2:11: error EX001: "x" is too short (three letters are enough)
}

// Text from a manifest is shown, and never acts on a terminal.
func ExamplePrintable() {
	fmt.Println(diag.Printable("plain \x1b[2J and \u202eturned"))
	// Output: plain \u001b[2J and \u202eturned
}

func ExampleDidYouMean() {
	fmt.Println(diag.DidYouMean("raed", []string{"read", "write", "network"}))
	// Output: did you mean "read"?
}
