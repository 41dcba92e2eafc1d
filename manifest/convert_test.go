package manifest_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/convert"
	"github.com/ambit-run/ambit/manifest"
)

// TestConvertEveryPair converts every shipped agent to every dialect. Each conversion either returns a valid manifest
// and lists its losses, or is refused. The golden file contains the losses, the additions and the reasons for
// refusals.
func TestConvertEveryPair(t *testing.T) {
	var b strings.Builder
	for _, file := range []string{
		"default.json", "neo.json", "forge.json", "examples/gpars-researcher.json", "examples/research/agent.toml",
		"examples/wordcount/agent.toml", "examples/static-recipe/findagent.json", "examples/mcp-tool/findagent.json",
		"examples/autonomous-agent/findagent.json", "examples/skills-bundle/findagent.json", "examples/code-bundle/findagent.json",
	} {
		m, err := manifest.Load(filepath.Join("../agents", file), manifest.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, to := range agent.Dialects {
			if to == m.Dialect {
				continue
			}
			fmt.Fprintf(&b, "== %s → %s\n", file, to)
			c, err := manifest.Convert(m, to)
			if errors.Is(err, convert.ErrNothingSurvives) {
				fmt.Fprintf(&b, "refused: %v\n", err)
				continue
			}
			if err != nil {
				t.Errorf("%s to %s: %v", file, to, err)
				continue
			}
			name := "out.json"
			if to == agent.Covenant {
				name = "out.toml"
			}
			again, _ := manifest.Parse(name, c.Text, manifest.Options{})
			if !again.Valid() || again.Dialect != to {
				t.Errorf("%s to %s: the result is invalid or is detected as dialect %q:\n%s", file, to, again.Dialect, listing(again))
			}
			if len(c.Lost) == 0 {
				t.Errorf("%s to %s: the conversion lists no losses, but no two dialects can express the same agent", file, to)
			}
			for _, n := range c.Lost {
				fmt.Fprintf(&b, "lost %s: %s\n", n.What, n.Detail)
			}
			for _, n := range c.Added {
				fmt.Fprintf(&b, "added %s: %s\n", n.What, n.Detail)
			}
		}
	}
	if err := os.MkdirAll("testdata/convert", 0o755); err != nil {
		t.Fatal(err)
	}
	compareGolden(t, "testdata/convert/pairs.golden", b.String())
}

func TestForkKeepsEverythingElse(t *testing.T) {
	for file, want := range map[string][2]string{
		"default.json":                          {`"matrix://agent/default"`, `"matrix://agent/mine"`},
		"examples/gpars-researcher.json":        {"", "mine"},
		"examples/research/agent.toml":          {"", `"mine@local"`},
		"examples/static-recipe/findagent.json": {"", `"mine"`},
	} {
		m, err := manifest.Load(filepath.Join("../agents", file), manifest.Options{})
		if err != nil {
			t.Fatal(err)
		}
		text, err := manifest.Fork(m, "mine")
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if !strings.Contains(string(text), want[1]) || want[0] != "" && strings.Contains(string(text), want[0]) {
			t.Errorf("%s: the fork does not have the new name", file)
		}
		fork, _ := manifest.Parse(file, text, manifest.Options{})
		d := manifest.Diff(m.Agent(), fork.Agent())
		if len(d.Widened)+len(d.Narrowed) > 0 && m.Dialect != agent.Covenant {
			t.Errorf("%s: the fork has other permissions than the original: %+v", file, d)
		}
	}
}
