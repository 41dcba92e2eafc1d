package main

import (
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	var out strings.Builder
	if err := run(&out, 1, 3, 1); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"3 cases, seed 1", "hostile values ", "hostile schemas ", "hostile schemas in a manifest ", "limits "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
}
