package cli

import (
	"bufio"
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ambit-run/ambit/internal/gateway/guard"
	"github.com/ambit-run/ambit/internal/supply/registry/catalog"
	"github.com/ambit-run/ambit/manifest"
)

const crowded = `{
  "schema_version": 1, "agent": "matrix://agent/crowded", "allowed_side_effects": ["read"],
  "servers": [{
    "alias": "files", "transport": "stdio", "command": "npx", "version": "1.0.0",
    "args": ["-y", "pkg@1.0.0", "--first", "one", "--second", "two", "--third", "three", "--fourth", "four"],
    "package_digest": "sha256:a239da270c403c42eb03e1ca7cca07c858085819797b74856ddbb91b50491b1a",
    "tools": [
      {"name": "read", "side_effect_class": "read", "description": "Reads the given file line by line until the end of the file is reached."},
      {"name": "write", "side_effect_class": "write"}
    ]
  }]
}`

// On a narrow terminal, a long row is wrapped within its column, and no word is lost. If the output is not a
// terminal, the row stays on one line.
func TestInspectWraps(t *testing.T) {
	m, err := manifest.Parse("crowded.json", []byte(crowded), manifest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	show := func(width int, cut bool) string {
		var b bytes.Buffer
		term := &terminal{out: bufio.NewWriter(&b), width: width, cut: cut}
		needs, err := term.findNeeds(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		term.inspect(m, needs, guard.Rails{})
		if err := term.flush(); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	const row = "npx -y pkg@1.0.0 --first one --second two --third three --fourth four"
	if out := show(60, false); !strings.Contains(out, row) {
		t.Errorf("a row is wrapped without a terminal:\n%s", out)
	}
	out := show(60, true)
	lines := strings.Split(out, "\n")
	for i, line := range lines {
		if utf8.RuneCountInString(line) > 60 && !strings.Contains(line, "sha256:") {
			t.Errorf("a line has %d characters, want at most 60: %s", utf8.RuneCountInString(line), line)
		}
		if before, _, ok := strings.Cut(line, "npx "); ok && !strings.HasPrefix(lines[i+1], strings.Repeat(" ", len(before))+"-") {
			t.Errorf("the row continues in another column:\n%s\n%s", line, lines[i+1])
		}
	}
	if words := strings.Join(strings.Fields(out), " "); !strings.Contains(words, row) {
		t.Errorf("a part of the row is lost:\n%s", out)
	}
}

func TestNeedNewerNode(t *testing.T) {
	known := &catalog.Catalog{Entries: map[string]*catalog.Entry{
		"example.com/old": {Needs: "Node.js 18"}, "example.com/new": {Needs: "Node.js 22.5 or newer"}, "example.com/any": {},
	}}
	for version, want := range map[string]string{
		"v20.1.0 in /bin": "; these servers of the catalogue need a newer version: new (22.5)", "v22.5.0 in /bin": "", "?": "",
	} {
		if got := needNewerNode(version, known); got != want {
			t.Errorf("%s: got %q, want %q", version, got, want)
		}
	}
}
