//go:build unix

package docs

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/cli"
)

// stubs let bash parse examples without running them: ambit prints its arguments, separated by NUL, and the other
// commands of a line do nothing.
const stubs = `set -e -o pipefail
PATH=
ambit() { printf '%s\0' "$@" >&3; printf '\n' >&3; }
claude() { "${@:5}"; }
curl() { :; }; echo() { :; }; git() { :; }; jq() { :; }; man() { :; }; pass() { :; }; xdg-open() { :; }
`

// TestExamples parses the examples of all commands, which docs/reference/verbs.md lists, with ambit's own
// parser. It does not run them, because they use the reader's files, agents and keys.
func TestExamples(t *testing.T) {
	t.Parallel()
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Example != "" && c.IsAvailableCommand() && c.Parent().Name() != "completion" { // the examples of completion come from cobra
			t.Run(c.CommandPath(), func(t *testing.T) {
				for line := range strings.Lines(c.Example) {
					if err := readExample(t, line); err != nil {
						t.Errorf("%s: %v", strings.TrimSpace(line), err)
					}
				}
			})
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(cli.Verbs())
}

// TestBrokenExamples checks that an example that ambit would refuse is reported.
func TestBrokenExamples(t *testing.T) {
	for line, want := range map[string]string{
		"ambit diff a b | jq '.x'":                 "",
		"ambit inspekt a.json":                     "no such verb",
		"ambit key fetch":                          "ambit key has no such verb",
		"ambit inspect a.json --colour x":          "unknown flag",
		"ambit inspect a.json b.json":              "takes",
		"ambit serve --grace soon":                 "invalid argument",
		"ambit inspect 'a.json":                    "exit status",
		"frobnicate | ambit inspect a.json":        "exit status",
		"xdg-open a.json":                          "the example does not run ambit",
		`git "$(ambit key fetch)" && ambit agents`: "ambit key has no such verb",
	} {
		if err := readExample(t, line); (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", line, err, want)
		}
	}
}

// readExample lets bash parse a line, and parses the arguments of each call to ambit in the line.
func readExample(t *testing.T, line string) error {
	t.Helper()
	dir := t.TempDir()
	arguments, err := os.Create(filepath.Join(dir, "arguments"))
	if err != nil {
		t.Fatal(err)
	}
	defer arguments.Close()
	cmd := exec.CommandContext(t.Context(), "bash", "--noprofile", "--norc", "-c", stubs+line)
	cmd.Dir, cmd.ExtraFiles = dir, []*os.File{arguments}
	if out, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(err, errors.New(string(out)))
	}
	text, err := os.ReadFile(arguments.Name())
	if err != nil {
		t.Fatal(err)
	}
	calls := strings.Split(string(text), "\x00\n")
	if len(calls) == 1 {
		return errors.New("the example does not run ambit")
	}
	for _, call := range calls[:len(calls)-1] {
		err = errors.Join(err, parse(strings.Split(call, "\x00")))
	}
	return err
}

// parse parses a command line without running it.
func parse(args []string) error {
	c, rest, err := cli.Verbs().Find(args)
	if err != nil {
		return err
	}
	if !c.Runnable() || !c.HasParent() {
		return errors.New("no such verb")
	}
	if err := c.ParseFlags(rest); err != nil {
		return err
	}
	return errors.Join(c.ValidateArgs(c.Flags().Args()), c.ValidateRequiredFlags())
}
