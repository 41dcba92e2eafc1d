package cli_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// exits runs ambit and checks its exit code: exits CODE ambit ARGS…. Its output is then in
// stdout and stderr, as after exec.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND [ARGS]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if ee, ok := errors.AsType[*exec.ExitError](err); ok {
		got = ee.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("%s exited %d, want %d", strings.Join(args[1:], " "), got, want)
	}
}

// jsonpath compares one value of the JSON document on stdout:
// jsonpath files.0.valid true. A number in the path is an index; len is a length.
func jsonpath(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) == 1 {
		args = append(args, "") // the empty text
	}
	if len(args) != 2 {
		ts.Fatalf("usage: jsonpath PATH [VALUE]")
	}
	var cur any
	d := json.NewDecoder(strings.NewReader(ts.ReadFile("stdout")))
	d.UseNumber()
	if err := d.Decode(&cur); err != nil {
		ts.Fatalf("stdout is not JSON: %v", err)
	}
	if d.More() {
		ts.Fatalf("stdout holds more than one JSON document")
	}
	for _, part := range strings.Split(args[0], ".") {
		switch v := cur.(type) {
		case map[string]any:
			if part == "len" {
				cur = len(v)
				continue
			}
			child, ok := v[part]
			if !ok {
				ts.Fatalf("there is no %q in %s", part, args[0])
			}
			cur = child
		case []any:
			if part == "len" {
				cur = len(v)
				continue
			}
			i, err := strconv.Atoi(part)
			if err != nil || i >= len(v) {
				ts.Fatalf("there is no item %q of %d in %s", part, len(v), args[0])
			}
			cur = v[i]
		default:
			ts.Fatalf("%s leads through %T", args[0], cur)
		}
	}
	if got := fmt.Sprint(cur); (got == os.Expand(args[1], ts.Getenv)) == neg {
		ts.Fatalf("%s is %s", args[0], got)
	}
}
