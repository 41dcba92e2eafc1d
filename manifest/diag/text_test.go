package diag

import (
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestShellWord has a real shell read what is written for it.
func TestShellWord(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no such shell")
	}
	for _, s := range []string{
		"", "plain", "agents/my agent.json", "$(touch x)", "`id`", "a'b", `a"b`, "a\\b", "*", "~", "~root", "{a,b}", "[ab]", "#x", "!x", "a;b", "a|b&c", "<x>", "a\nb", "ü€", "-n", "${HOME}", "''",
	} {
		got, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s\\\\n -- "+ShellWord(s)).Output()
		if text := strings.TrimPrefix(string(got), "--\n"); err != nil || text != s+"\n" {
			t.Errorf("%q: a shell reads %q as %q, %v", s, ShellWord(s), text, err)
		}
	}
	if got := ShellWord("agents/a-1.json"); got != "agents/a-1.json" {
		t.Errorf("what needs no quotes became %s", got)
	}
}

func TestCut(t *testing.T) {
	text := "aü€😀z"
	for most := range len(text) + 2 {
		got := Cut(text, most)
		if len(got) > most || !utf8.ValidString(got) || !strings.HasPrefix(text, got) || most >= len(text) && got != text {
			t.Errorf("%d bytes: %q", most, got)
		}
	}
	if got := Cut("\x80\x80\x80", 2); got != "" {
		t.Errorf("what is no text became %q", got)
	}
}
