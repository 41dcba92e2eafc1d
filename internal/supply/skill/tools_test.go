package skill

import (
	"strings"
	"testing"
)

const (
	read  = "matrix://tool/mcp/fs/read@1.0.0"
	write = "matrix://tool/mcp/fs/write@1.0.0"
)

func TestParseTools(t *testing.T) {
	tests := []struct {
		name, text          string
		constrained         bool
		allowsRead, allowsW bool
		err                 string
	}{
		{"absent", "# Title\nSome text about tools.\n", false, true, true, ""},
		{"list", "§TOOLS\n" + read + "\n", true, true, false, ""},
		{"heading", "intro\n## §TOOLS\n\n" + read + "\n\n## Next\n" + write + "\n", true, true, false, ""},
		{"next section", "§TOOLS\n" + read + "\n§STEPS\n" + write + "\n", true, true, false, ""},
		{"none", "§TOOLS\nnone\n", true, false, false, ""},
		{"empty", "§TOOLS\n\n# Next\n", true, false, false, ""},
		{"windows", "§TOOLS\r\n" + read + "\r\n", true, true, false, ""},
		{"colon", "#§TOOLS:\n" + read + "\n", true, true, false, ""},
		{"only mentioned", "Use the §TOOLS section.\n", false, true, true, ""},
		{"bullets", "§TOOLS\n- " + read + "\n* `" + write + "`\n", true, true, true, ""},
		{"bullet none", "§TOOLS\n+ none\n", true, false, false, ""},
		{"unclosed mark", "§TOOLS\n- `" + read + "\n", false, false, false, "line 2: invalid tool URI"},
		{"bullet without a tool", "§TOOLS\n-\n", false, false, false, "line 2: invalid tool URI"},
		{"unpinned", "§TOOLS\nmatrix://tool/mcp/fs/read\n", false, false, false, "line 2: tool URI is not pinned"},
		{"prose", "§TOOLS\nanything you like\n" + read + "\nall\n", false, false, false, "; line 4: invalid tool URI"},
		{"both", "§TOOLS\nnone\n" + read + "\n", false, false, false, `the word "none" but also lists tools`},
		{"twice", "§TOOLS\n" + read + "\n§TOOLS\n" + write + "\n", false, false, false, "second §TOOLS"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseTools(tt.text)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "\n") {
					t.Errorf("got %v, want an error with %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.constrained != tt.constrained || got.Allows(read) != tt.allowsRead || got.Allows(write) != tt.allowsW {
				t.Errorf("got constrained=%t read=%t write=%t, want %t %t %t", got.constrained, got.Allows(read), got.Allows(write), tt.constrained, tt.allowsRead, tt.allowsW)
			}
		})
	}
}

// A misspelled heading of the §TOOLS section is reported. A heading that only begins with the same word
// is not reported. A line that mentions the section is not reported either.
func TestMisspelledToolsHeading(t *testing.T) {
	for _, line := range []string{
		"§Tools", "§tools", "§ TOOLS", "§\u00a0TOOLS", "## § Tools:", "§Tools :", "# §tools of this skill", "§TOOLS\tall", "§TOOLS.", "§TOOLS::",
		"**§TOOLS**", "- §TOOLS", "> §TOOLS", "\ufeff§TOOLS", "§§TOOLS", "# #§Tools", "§_TOOLS_",
	} {
		_, err := ParseTools("intro\n" + line + "\n" + read + "\n")
		if err == nil || !strings.Contains(err.Error(), "line 2: ") || !strings.Contains(err.Error(), "write §TOOLS") {
			t.Errorf("%q: got %v, want an error that suggests §TOOLS", line, err)
		}
	}
	for _, line := range []string{"§TOOLSET", "§Toolbox", "§3 Tools", "§STEPS", "# Tools", "TOOLS:", "tools", "See §Tools.", "1. §Tools are listed below"} {
		if got, err := ParseTools(line + "\n" + read + "\n"); err != nil || got.constrained {
			t.Errorf("%q is treated as the §TOOLS section: %v", line, err)
		}
	}
}

func FuzzParseTools(f *testing.F) {
	f.Add("## §TOOLS\n" + read + "\n")
	f.Add("§TOOLS\nnone")
	f.Add("## § Tools:\n" + read)
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ParseTools(text)
		if err == nil && !got.constrained && len(got.uris) > 0 {
			t.Fatal("ParseTools returned tools although the text has no §TOOLS section")
		}
		for line := range strings.Lines(text) {
			if folded := strings.ToLower(strings.Join(strings.Fields(strings.Trim(line, "#: \t\r\n")), "")); err == nil && folded == "§tools" && !got.constrained {
				t.Fatalf("the heading %q was ignored", line)
			}
		}
	})
}
