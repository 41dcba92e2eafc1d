package diag_test

import (
	"fmt"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

var tooShort = &diag.Rule{Code: "EX001", Severity: diag.Error, Title: "the name is too short", Why: "short names are hard to distinguish", Fix: "write a longer name"}

// A reporter keeps all problems and returns them in the order of the file.
func ExampleReporter() {
	r := diag.Open("agent.json", "{\n  \"name\": \"x\"\n}", false)
	r.Report(tooShort, diag.Place{Start: 12, End: 15, Pointer: "/name"}, "three letters are enough", "%s is too short", diag.Quote("x"))
	for _, d := range r.Finish() {
		fmt.Printf("%s:%d:%d: %s %s: %s (%s)\n", r.Source.Name, d.Line, d.Column, d.Severity, d.Code, d.Message, d.Hint)
	}
	// Output: agent.json:2:11: error EX001: "x" is too short (three letters are enough)
}

// Printable escapes control characters, so that a terminal never interprets text from a manifest.
func ExamplePrintable() {
	fmt.Println(diag.Printable("plain \x1b[2J and \u202eturned"))
	// Output: plain \u001b[2J and \u202eturned
}

func ExampleDidYouMean() {
	fmt.Println(diag.DidYouMean("raed", []string{"read", "write", "network"}))
	// Output: did you mean "read"?
}
