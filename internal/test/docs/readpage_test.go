//go:build unix

package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadPage checks that every block of a page is run, compared, saved as a file, or carries a reason.
func TestReadPage(t *testing.T) {
	const run = "\n\n```sh\ntrue\n```\n"
	for _, c := range []struct {
		name, page string
		want       string // a part of the error; empty if the page is valid
	}{
		{"prose", "# A page\n\n- a list\n  of two lines\n", ""},
		{"commands", "```sh\ntrue\n```\n```output\n```\n", ""},
		{"a picture", "```text\na → b\n     ambit, HTTP to stdio  1\n```\n", ""},
		{"output of make bench", "<!-- bench start -->\n```text\nambit run  p50\n```\n<!-- /bench -->\n", ""},
		{"a file that is read", "<!-- file: a.toml -->\n```toml\n```" + run, ""},
		{"a reason", "<!-- not run: it is long -->\n```yaml\n```\n", ""},
		{"a reason, in a list", "1. one\n\n   <!-- not run: it is long -->\n   ```toml\n   ```\n", ""},

		{"another language", "text\n\n```yaml\na: 1\n```\n", "page.md:3: a block of yaml needs the comment \"file: NAME\" or \"not run: REASON\""},
		{"no language", "```\nls\n```\n", "page.md:1: a block without a language"},
		{"words after the language", "```sh title=x\nls\n```\n", "a block of sh title=x needs"},
		{"another shell", "```bash\nls\n```\n", "commands must be in a block of sh"},
		{"an empty reason", "<!-- not run: -->\n```yaml\n```\n", "cannot read the comment"},
		{"a comment that is not a reason", "<!-- for people -->\n```yaml\n```\n", "a block of yaml"},
		{"a reason too far away", "<!-- not run: it is long -->\n\nprose\n\n```yaml\n```\n", "belongs to no block"},
		{"a reason for one block", "<!-- not run: it is long -->\n```yaml\n```\n\n```yaml\n```\n", "page.md:5: a block of yaml"},
		{"commands in a picture", "```text\nambit grant me ACTION…\n```\n", "page.md:2: commands must be in a block of sh"},
		{"commands after output of make bench", "<!-- bench agents -->\n| a |\n<!-- /bench -->\n\n```text\nambit run x\n```\n", "page.md:6: commands must be"},
		{"commands at a prompt in a picture", "```text\n  $ ambit grants\n```\n", "commands must be in a block of sh"},
		{"an unused file", "```sh\ntrue\n```\n\n<!-- file: a.toml -->\n```toml\n```\n", "page.md:6: no command below reads this file"},
		{"indented", "text\n\n    kubectl apply -k x\n", "page.md:3: preformatted text must be a block"},
		{"indented by a tab", "text\n\n\tkubectl apply -k x\n", "page.md:3: preformatted text"},
		{"indented in a list", "1. one\n\n       a = 1\n", "page.md:3: preformatted text"},
		{"indented in a quotation", ">     a = 1\n", "page.md:1: preformatted text"},
		{"tildes", "~~~\nls\n~~~\n", "page.md:1: preformatted text"},
		{"a fence in a quotation", "> ```\n> ls\n> ```\n", "page.md:1: preformatted text"},
		{"a fence in a list item", "- ```\n  ls\n  ```\n", "page.md:1: preformatted text"},
		{"HTML", "<pre>ls</pre>\n", "page.md:1: preformatted text"},
		{"output without commands", "```output\n```\n", "output must follow"},
		{"no closing fence", "```sh\ntrue\n", "no closing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "page.md")
			if err := os.WriteFile(path, []byte(c.page), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := readPage(path)
			if c.want == "" && err != nil {
				t.Errorf("unexpected error: %v", err)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got the error %v, want %s", err, c.want)
			}
		})
	}
}
