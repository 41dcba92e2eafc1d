package cli

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// ran matches a line of a script that runs ambit. It captures the expected exit code and the arguments.
var ran = regexp.MustCompile(`(?m)^(?:\[[^]]*\] )?(?:(! )?exec|exits (\d+)) ambit (.*)$`)

// TestTranscripts checks that the scripts in testdata run every verb. Each verb that can fail must also fail in one
// of the scripts.
func TestTranscripts(t *testing.T) {
	root := newRoot(newTerminal(strings.NewReader(""), io.Discard, io.Discard))
	root.InitDefaultCompletionCmd()
	shown, refused := map[*cobra.Command]bool{}, map[*cobra.Command]bool{}
	scripts, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(scripts) == 0 {
		t.Fatal("there are no scripts in testdata", err)
	}
	for _, script := range scripts {
		text, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range ran.FindAllStringSubmatch(string(text), -1) {
			verb, _, err := root.Find(strings.Fields(m[3]))
			if err != nil {
				continue // the line tests an unknown verb
			}
			shown[verb] = true
			if m[1] != "" || m[2] > "0" {
				refused[verb] = true
			}
		}
	}
	// neverFails reports whether the verb takes no arguments and needs nothing that can be missing.
	neverFails := func(verb *cobra.Command) bool {
		return verb.Name() == "man" || verb.Parent().Name() == "completion"
	}
	var look func(verb *cobra.Command)
	look = func(verb *cobra.Command) {
		if verb.Short == "" {
			t.Errorf("verbs.txt does not describe %s", verb.CommandPath())
		}
		for _, below := range verb.Commands() {
			look(below)
		}
		switch name := verb.CommandPath(); {
		case verb.HasSubCommands() || verb.Hidden:
		case !shown[verb]:
			t.Errorf("no script runs %s", name)
		case !refused[verb] && !neverFails(verb):
			t.Errorf("no script shows how %s fails", name)
		}
	}
	look(root)
}
