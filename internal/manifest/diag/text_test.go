package diag

import (
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// TestShellWord checks that a real shell parses the quoted word as the original text.
func TestShellWord(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no such shell")
	}
	read := func(shell, s string) {
		got, err := exec.CommandContext(t.Context(), shell, "-c", "printf %s\\\\n -- "+ShellWord(s)).Output()
		if text := strings.TrimPrefix(string(got), "--\n"); err != nil || text != s+"\n" {
			t.Errorf("%q: %s reads %q as %q, %v", s, shell, ShellWord(s), text, err)
		}
	}
	for _, s := range []string{
		"", "plain", "agents/my agent.json", "$(touch x)", "`id`", "a'b", `a"b`, "a\\b", "*", "~", "~root", "{a,b}", "[ab]", "#x", "!x", "a;b", "a|b&c", "<x>", "ü€", "-n", "${HOME}", "''",
	} {
		read("sh", s)
	}
	// Invisible characters are tested only in bash, because not every sh has an escape for them.
	for _, s := range []string{
		"a\nb", "a\tb", "n\x1b]0;it's\a$(touch x)", "\x1bcafe\\n`id`", "a\u202eb\u200bc\u00a0d", "\x9b2J", "ü\x80\ufffd\u0085", "\U000e0041",
	} {
		for _, got := range []string{ShellWord(s), Printable(s)} {
			if !utf8.ValidString(got) || strings.IndexFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
				t.Errorf("%q: %q contains characters that a terminal could interpret", s, got)
			}
		}
		read("bash", s)
	}
	if got := ShellWord("agents/a-1.json"); got != "agents/a-1.json" {
		t.Errorf("ShellWord quoted a word that needs no quotes: %s", got)
	}
}

func TestCut(t *testing.T) {
	text := "aü€😀z"
	for most := range len(text) + 2 {
		got := Cut(text, most)
		if len(got) > most || !utf8.ValidString(got) || !strings.HasPrefix(text, got) || most >= len(text) && got != text {
			t.Errorf("Cut(%q, %d) = %q", text, most, got)
		}
	}
	if got := Cut("\x80\x80\x80", 2); got != "" {
		t.Errorf("Cut of invalid UTF-8 = %q, want an empty string", got)
	}
}
