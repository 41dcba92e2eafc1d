package cli

// The rules for all output:
//
//   - The answer goes to stdout. Losses, progress, next steps and errors go to stderr.
//   - An error is "ambit: what happened"; the line below is "  hint: " and the next
//     step. Sentences start in lower case and end without a full stop.
//   - Colours are used only on a terminal. NO_COLOR and --color=never turn them off,
//     CLICOLOR_FORCE and --color=always on. Colour is never the only carrier of meaning.
//   - Text from a manifest is printed through diag.Printable, so that it cannot control
//     the terminal. As a second line of defence for file names and errors, notef escapes
//     every invisible character, and printf every control character except colours.
//   - With --json, stdout is exactly one document, with the same characters escaped.

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/policy"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/supply/pack"
)

type terminal struct {
	in     io.Reader
	raw    io.Writer // stdout itself, for a protocol
	out    *bufio.Writer
	outMu  sync.Mutex // guards out: background work logs too
	err    io.Writer
	file   *os.File // stdout, if it is a file
	json   bool
	colour string
	styled bool
	width  int
	cut    bool         // stdout is a terminal: lines are cut to its width
	bar    *bar         // the progress of servers; nil until it is shown
	policy *policy.Live // the user's rules; nil until they are read
	home   home.Home    // zero if there is none and needsHome is false
	// lastRead is the path of the last manifest that was loaded.
	lastRead string
	// interrupted means that a signal came in place of an answer.
	interrupted bool
}

// shared makes a writer safe for concurrent use, as a file is.
type shared struct {
	mu sync.Mutex
	to io.Writer
}

func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.to.Write(p)
}

func newTerminal(in io.Reader, out, errOut io.Writer) *terminal {
	if _, file := errOut.(*os.File); !file {
		errOut = &shared{to: errOut}
	}
	t := &terminal{in: in, raw: out, out: bufio.NewWriter(out), err: errOut, colour: "auto", width: 100}
	t.file, _ = out.(*os.File)
	t.styled = t.wantsColour()
	if t.file != nil {
		if w, _, err := term.GetSize(int(t.file.Fd())); err == nil && w > 40 {
			t.width, t.cut = min(w, 140), true
		}
	}
	return t
}

// setUp applies the flags of every verb and finds the home.
func (t *terminal) setUp(cmd *cobra.Command, args []string) (err error) {
	if t.home, err = home.Find(); err != nil && needsHome(cmd, args) {
		return err
	}
	switch t.colour {
	case "always":
		t.styled = true
	case "never":
		t.styled = false
	case "auto":
		t.styled = t.wantsColour()
	default:
		return usage("use auto, always or never", "--color cannot be %q", t.colour)
	}
	return nil
}

func (t *terminal) wantsColour() bool {
	if os.Getenv("NO_COLOR") != "" {
		return false
	}
	if force := os.Getenv("CLICOLOR_FORCE"); force != "" && force != "0" {
		return true
	}
	return t.file != nil && term.IsTerminal(int(t.file.Fd())) && os.Getenv("TERM") != "dumb"
}

// interactive reports whether stderr is a terminal.
func (t *terminal) interactive() bool {
	f, ok := t.err.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func (t *terminal) flush() error {
	t.bar.hide()
	t.outMu.Lock()
	defer t.outMu.Unlock()
	return t.out.Flush()
}

// style is an ANSI colour or weight.
type style string

const (
	bold    style = "1"
	dim     style = "2"
	red     style = "31"
	green   style = "32"
	yellow  style = "33"
	cyan    style = "36"
	boldRed style = "1;31"
	normal  style = "0"
)

var styles = []style{bold, dim, red, green, yellow, cyan, boldRed, normal}

func (t *terminal) paint(s style, text string) string {
	if !t.styled || text == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[" + string(normal) + "m"
}

// escapeBetweenStyles applies escape to the text between our own colour codes.
func (t *terminal) escapeBetweenStyles(text string, escape func(string) string) string {
	if !t.styled {
		return escape(text)
	}
	var b strings.Builder
	for i, part := range strings.Split(text, "\x1b[") {
		code, rest, ended := strings.Cut(part, "m")
		switch {
		case i == 0:
			rest = part
		case ended && slices.Contains(styles, style(code)):
			b.WriteString("\x1b[" + code + "m")
		default:
			rest = "\x1b[" + part
		}
		b.WriteString(escape(rest))
	}
	return b.String()
}

// printableLines applies diag.Printable to each line.
func printableLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = diag.Printable(lines[i])
	}
	return strings.Join(lines, "\n")
}

// withoutControls escapes control characters except tabs and line ends. Documents contain
// none, so they stay as they are.
func withoutControls(text string) string { return escaped(text, unicode.IsControl) }

// escaped escapes the odd characters of a text, except tabs and line ends.
func escaped(text string, odd func(rune) bool) string {
	shown := func(r rune) bool { return odd(r) && r != '\n' && r != '\t' }
	if strings.IndexFunc(text, shown) < 0 && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for i, r := range text {
		if shown(r) && !strings.HasPrefix(text[i:], "\r\n") {
			b.WriteString(diag.Printable(string(r)))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// printf writes a part of the answer.
func (t *terminal) printf(format string, args ...any) {
	t.outMu.Lock()
	defer t.outMu.Unlock()
	fmt.Fprint(t.out, t.escapeBetweenStyles(fmt.Sprintf(format, args...), withoutControls))
}

// text prints a document that may contain text from a manifest. Escapes keep the meaning of
// JSON; other documents change, and the reader is warned.
func (t *terminal) text(document string) {
	document = strings.TrimRight(document, "\r\n")
	if jsontext.Value(document).IsValid() {
		t.printf("%s\n", escapeJSON(document))
		return
	}
	// Many languages and emoji need blanks and joiners.
	shown := escaped(document, func(r rune) bool {
		return diag.Unseen(r) && !unicode.Is(unicode.Zs, r) && r != '\u200c' && r != '\u200d'
	})
	t.printf("%s\n", shown)
	if shown != document {
		t.remarkf("invisible characters are shown as escapes; -o FILE writes them as they are")
	}
}

// notef writes a line about the answer.
func (t *terminal) notef(format string, args ...any) {
	_ = t.flush() // keeps the order of stdout and stderr; Run reports a write error
	fmt.Fprintln(t.err, t.escapeBetweenStyles(fmt.Sprintf(format, args...), printableLines))
}

// show prints the answer of a verb: the document with --json, otherwise with text.
func (t *terminal) show(document any, text func()) error {
	if t.json {
		return t.document(document)
	}
	text()
	return nil
}

// judge is show for an answer that is yes or no: it ends the verb with errNo if ok is false.
func (t *terminal) judge(ok bool, document any, text func()) error {
	if err := t.show(document, text); err != nil || ok {
		return err
	}
	return errNo
}

// say is show for a short text.
func (t *terminal) say(document any, format string, args ...any) error {
	return t.show(document, func() { t.printf(format, args...) })
}

// warnf writes a warning to stderr.
func (t *terminal) warnf(format string, args ...any) {
	t.notef("%s %s", t.paint(yellow, "warning:"), fmt.Sprintf(format, args...))
}

// hintf writes how to fix the problem in the line above.
func (t *terminal) hintf(format string, args ...any) {
	t.notef("  %s %s", t.paint(dim, "hint:"), fmt.Sprintf(format, args...))
}

// remarkf writes a line that a person may skip.
func (t *terminal) remarkf(format string, args ...any) {
	t.notef("%s", t.paint(dim, fmt.Sprintf(format, args...)))
}

// alertf writes a line that a person must not miss.
func (t *terminal) alertf(format string, args ...any) {
	t.notef("%s %s", t.paint(boldRed, "ambit:"), fmt.Sprintf(format, args...))
}

// document prints the one JSON document of a verb.
func (t *terminal) document(v any) error {
	t.outMu.Lock()
	defer t.outMu.Unlock()
	return writeJSON(t.out, v)
}

// escapeJSON escapes the characters of JSON that are invisible or control a terminal. The
// meaning stays the same.
func escapeJSON(text string) string {
	odd := func(r rune) bool { return r >= 0x7f && diag.Unseen(r) }
	if strings.IndexFunc(text, odd) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch first, second := utf16.EncodeRune(r); {
		case !odd(r):
			b.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\u%04x\u%04x`, first, second)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// hint returns the hint of a failure. If it is the hint of the error below, the command
// that completes it names the manifest.
func (t *terminal) hint(f *failure) string {
	if r, ok := errors.AsType[*call.Refusal](f.err); ok && f.hint == r.Hint {
		return r.HintFor(t.lastRead)
	}
	if e, ok := errors.AsType[*pack.Error](f.err); ok && f.hint == e.Hint {
		return e.Command.After(e.Hint, t.lastRead)
	}
	return f.hint
}

// fail prints why a verb failed.
func (t *terminal) fail(f *failure) {
	hint := t.hint(f)
	if t.json {
		body := map[string]any{"message": f.Error(), "hint": hint, "exit_code": f.code}
		if r, ok := errors.AsType[*call.Refusal](f.err); ok {
			body["code"], body["stage"], body["message"] = r.Code, r.Stage, r.Message
			body["retryable"], body["effect"] = r.Retryable, r.Effect
			if r.Reason != "" {
				body["reason"] = r.Reason
			}
			if s := r.RetrySeconds(); s != nil {
				body["retry_after"] = *s
			}
		}
		err := t.document(map[string]any{"error": body})
		if err == nil && t.flush() == nil {
			return
		}
	}
	t.alertf("%s", diag.Printable(f.Error()))
	if hint != "" {
		t.hintf("%s", diag.Printable(hint))
	}
}

// table prints rows with their columns aligned; the last column runs free.
func (t *terminal) table(indent string, rows [][]string) {
	var widths []int
	for _, r := range rows {
		for i, c := range r {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			if i < len(r)-1 {
				widths[i] = max(widths[i], visible(c))
			}
		}
	}
	for _, r := range rows {
		var b strings.Builder
		b.WriteString(indent)
		for i, c := range r {
			b.WriteString(c)
			if i < len(r)-1 {
				b.WriteString(strings.Repeat(" ", max(0, widths[i]-visible(c))+2))
			}
		}
		t.printf("%s\n", strings.TrimRight(b.String(), " "))
	}
}

// visible counts the characters of s without colour codes.
func visible(s string) int {
	n := 0
	for {
		i := strings.IndexByte(s, 0x1b)
		if i < 0 {
			return n + utf8.RuneCountInString(s)
		}
		n += utf8.RuneCountInString(s[:i])
		end := strings.IndexByte(s[i:], 'm')
		if end < 0 {
			return n
		}
		s = s[i+end+1:]
	}
}

// wrap breaks a text into indented lines of at most width characters.
func wrap(text, indent string, width int) string {
	var b strings.Builder
	line := 0
	for _, word := range strings.Fields(text) {
		w := utf8.RuneCountInString(word)
		switch {
		case line == 0:
			b.WriteString(indent)
		case line+1+w > width-len(indent):
			b.WriteString("\n" + indent)
			line = 0
		default:
			b.WriteByte(' ')
			line++
		}
		b.WriteString(word)
		line += w
	}
	return b.String()
}

// moment formats a time for people, in the local time zone. The zone is named because the
// console shows UTC.
func moment(at time.Time) string { return at.Local().Format("2006-01-02 15:04:05 MST") }
