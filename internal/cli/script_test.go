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

// exits is the script command "exits CODE COMMAND ARGS…". It runs a command and checks its exit code. The output of
// the command is then in stdout and stderr, as after exec.
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

// jsonpath is the script command "jsonpath PATH VALUE". It compares the value at PATH in the JSON document on stdout
// with VALUE. An example is "jsonpath files.0.valid true". A number in the path is an index. The word len in the path
// is the length of a list or object.
func jsonpath(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) == 1 {
		args = append(args, "") // if VALUE is missing, compare with the empty string
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
		ts.Fatalf("stdout contains more than one JSON document")
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
				ts.Fatalf("%q is not an index in a list of %d items: %s", part, len(v), args[0])
			}
			cur = v[i]
		default:
			ts.Fatalf("%s: a value of type %T contains no other values", args[0], cur)
		}
	}
	if got := fmt.Sprint(cur); (got == os.Expand(args[1], ts.Getenv)) == neg {
		ts.Fatalf("unexpected value of %s in the JSON document: %s", args[0], got)
	}
}
