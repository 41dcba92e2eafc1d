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

// ran is a line of a transcript that runs ambit, with the expected exit code.
var ran = regexp.MustCompile(`(?m)^(?:\[[^]]*\] )?(?:(! )?exec|exits (\d+)) ambit (.*)$`)

// TestTranscripts requires every verb in a transcript, and a refusal of each verb that can
// refuse.
func TestTranscripts(t *testing.T) {
	root := newRoot(newTerminal(strings.NewReader(""), io.Discard, io.Discard))
	root.InitDefaultCompletionCmd()
	shown, refused := map[*cobra.Command]bool{}, map[*cobra.Command]bool{}
	scripts, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(scripts) == 0 {
		t.Fatal("there are no transcripts", err)
	}
	for _, script := range scripts {
		text, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range ran.FindAllStringSubmatch(string(text), -1) {
			verb, _, err := root.Find(strings.Fields(m[3]))
			if err != nil {
				continue // a verb that does not exist is refused as such
			}
			shown[verb] = true
			if m[1] != "" || m[2] > "0" {
				refused[verb] = true
			}
		}
	}
	content := func(verb *cobra.Command) bool { // it takes no argument and needs nothing
		return verb.Name() == "man" || verb.Parent().Name() == "completion"
	}
	var look func(verb *cobra.Command)
	look = func(verb *cobra.Command) {
		for _, below := range verb.Commands() {
			look(below)
		}
		switch name := verb.CommandPath(); {
		case verb.HasSubCommands() || verb.Hidden:
		case !shown[verb]:
			t.Errorf("%s is in no transcript", name)
		case !refused[verb] && !content(verb):
			t.Errorf("no transcript shows how %s refuses", name)
		}
	}
	look(root)
}
