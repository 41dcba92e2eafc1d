package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/exec/lock"
)

// printf and notef escape control characters, except colours, even in text that the caller did not escape.
func TestControlCharactersAreEscaped(t *testing.T) {
	const name = "n\x1b]0;PWNED\a\x1b[2J\x1b[31\x9b\u202e\r\nambit: all is well"
	const start = `n\u001b]0;PWNED\u0007\u001b[2J\u001b[31` + "\ufffd"
	const note, part, line = start + `\u202e\u000d` + "\nambit: all is well", start + "\u202e\r\nambit: all is well", start + `\u202e\u000d\u000aambit: all is well`
	var out, errOut bytes.Buffer
	term := newTerminal(strings.NewReader(""), &out, &errOut)
	for styled, frame := range map[bool]string{false: "%s", true: "\x1b[1;31m%s\x1b[0m"} {
		term.styled = styled
		painted := func(text string) string { return strings.Replace(frame, "%s", text, 1) }
		out.Reset()
		errOut.Reset()

		term.notef("%s %s %s", term.paint(boldRed, "ambit:"), name, term.paint(boldRed, name))
		if got, want := errOut.String(), painted("ambit:")+" "+note+" "+painted(note)+"\n"; got != want {
			t.Errorf("notef: got\n%q, want\n%q", got, want)
		}
		term.printf("%s %s\n\tit's %s", term.paint(boldRed, "no:"), name, term.paint(boldRed, "m"))
		if err := term.flush(); err != nil {
			t.Fatal(err)
		}
		if got, want := out.String(), painted("no:")+" "+part+"\n\tit's "+painted("m"); got != want {
			t.Errorf("printf: got\n%q, want\n%q", got, want)
		}
		out.Reset()
		term.reportLocked(name, &lock.Result{File: name, Changed: true}, &lockDocument{})
		if err := term.flush(); err != nil {
			t.Fatal(err)
		}
		if got, want := out.String(), line+" is locked; "+line+" is written\n"; got != want {
			t.Errorf("locked: got\n%q, want\n%q", got, want)
		}
	}
}

// ambit prints a document unchanged, but escapes invisible and control characters. If escapes change a document
// that is not JSON, ambit prints a note.
func TestDocumentsAreEscaped(t *testing.T) {
	for text, want := range map[string]string{
		"{\"a\": \"\u202e\u200b\u00a0\"}\n":                       `{"a": "\u202e\u200b\u00a0"}` + "\n",
		"Hi\u202e\u2028\u200b!\r\n":                               `Hi\u202e\u2028\u200b!` + "\n",
		"\tn\u00e9\u00a0\u3000\u06cc\u200c\u06a9 👩\u200d👧\r\nx\n": "\tn\u00e9\u00a0\u3000\u06cc\u200c\u06a9 👩\u200d👧\r\nx\n",
	} {
		var out, notes bytes.Buffer
		term := newTerminal(strings.NewReader(""), &out, &notes)
		term.text(text)
		if err := term.flush(); err != nil {
			t.Fatal(err)
		}
		if out.String() != want {
			t.Errorf("text(%q): got\n%q, want\n%q", text, out.String(), want)
		}
		if noted := notes.Len() > 0; noted != strings.HasPrefix(text, "Hi") {
			t.Errorf("text(%q): got the note %q, want a note only if escapes change the text", text, notes.String())
		}
	}
}
