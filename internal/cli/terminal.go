package cli

// All output follows these rules:
//
//   - The answer goes to stdout. Warnings, progress, next steps and errors go to stderr.
//   - An error is "ambit: " and what happened. The next line is "  hint: " and the next step. Sentences start in
//     lower case and end without a full stop.
//   - Colours are used only on a terminal. NO_COLOR and --color=never turn colours off. CLICOLOR_FORCE and
//     --color=always turn colours on. Colour is never the only carrier of meaning.
//   - Text from a manifest is printed through diag.Printable, because the text could control the terminal. File names
//     and errors could also do so. Therefore notef escapes all invisible characters, and printf escapes all control
//     characters except colours.
//   - With --json, stdout contains exactly one document, with the same characters escaped.

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
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
	raw    io.Writer // stdout without a buffer, for verbs that speak a protocol such as MCP
	out    *bufio.Writer
	outMu  sync.Mutex // the mutex of terminal.out, to which other goroutines also write
	err    io.Writer
	file   *os.File // stdout, or nil if stdout is not a file
	json   bool
	colour string
	styled bool
	width  int
	cut    bool         // set if stdout is a terminal; lines are shortened to its width
	bar    *bar         // the progress line of servers; nil until first shown
	log    *slog.Logger // the log of a verb that keeps running; nil for other verbs
	policy *policy.Live // the user's policy; nil until first used
	home   home.Home    // the home; zero if no home was found and the verb does not need one
	// lastRead is the path of the last loaded manifest.
	lastRead string
	keyNames map[string]string // the names of API keys, by principal
	// interrupted is set if a signal arrived while ambit waited for an answer.
	interrupted bool
}

// syncWriter makes a writer safe for use by several goroutines. Files do not need it.
type syncWriter struct {
	mu sync.Mutex
	to io.Writer
}

func (s *syncWriter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.to.Write(p)
}

func newTerminal(in io.Reader, out, errOut io.Writer) *terminal {
	if _, file := errOut.(*os.File); !file {
		errOut = &syncWriter{to: errOut}
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

// colourChoices lists the values of --color.
var colourChoices = []string{"auto", "always", "never"}

// setUp applies the flags that all verbs have in common, and finds the home.
func (t *terminal) setUp(cmd *cobra.Command, args []string) (err error) {
	if t.home, err = home.Find(); err != nil && needsHome(cmd, args) {
		return err
	}
	if !slices.Contains(colourChoices, t.colour) {
		return usage("use auto, always or never", "--color cannot be %q", t.colour)
	}
	t.styled = t.colour == "always" || t.colour == "auto" && t.wantsColour()
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

// writesFile reports whether stdout is a regular file, which other users may read later.
func (t *terminal) writesFile() bool {
	if t.file == nil {
		return false
	}
	info, err := t.file.Stat()
	return err != nil || info.Mode().IsRegular()
}

func (t *terminal) flush() error {
	t.bar.hide()
	t.outMu.Lock()
	defer t.outMu.Unlock()
	return t.out.Flush()
}

// style is an ANSI code for a colour or a font weight.
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

// ownStyle matches the colour codes that terminal.paint writes. anyStyle matches every colour code.
var (
	ownStyle = regexp.MustCompile(`\x1b\[(?:0|1|2|31|32|33|36|1;31)m`)
	anyStyle = regexp.MustCompile(`\x1b[^m]*m?`)
)

func (t *terminal) paint(s style, text string) string {
	if !t.styled || text == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[" + string(normal) + "m"
}

// escapeBetweenStyles applies the callback to all text except the colour codes of terminal.paint.
func (t *terminal) escapeBetweenStyles(text string, escape func(string) string) string {
	if !t.styled {
		return escape(text)
	}
	var b strings.Builder
	end := 0
	for _, code := range ownStyle.FindAllStringIndex(text, -1) {
		b.WriteString(escape(text[end:code[0]]) + text[code[0]:code[1]])
		end = code[1]
	}
	return b.String() + escape(text[end:])
}

func printableLines(text string) string {
	return strings.Join(each(strings.Split(text, "\n"), diag.Printable), "\n")
}

// withoutControls escapes control characters, except tabs and line breaks. It does not change JSON, which contains no
// control characters.
func withoutControls(text string) string { return escapeFunc(text, unicode.IsControl) }

// escapeFunc escapes the characters for which the callback returns true, except tabs and line breaks.
func escapeFunc(text string, odd func(rune) bool) string {
	var b strings.Builder
	for i, r := range text {
		if odd(r) && r != '\n' && r != '\t' && !strings.HasPrefix(text[i:], "\r\n") {
			b.WriteString(diag.Printable(string(r)))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// printf writes part of the answer to stdout.
func (t *terminal) printf(format string, args ...any) {
	t.outMu.Lock()
	defer t.outMu.Unlock()
	fmt.Fprint(t.out, t.escapeBetweenStyles(fmt.Sprintf(format, args...), withoutControls))
}

// text prints a document and escapes its invisible characters, because the document can contain text from a manifest.
// The escapes do not change a JSON value. For any other document, text prints a note if it escaped characters.
func (t *terminal) text(document string) {
	document = strings.TrimRight(document, "\r\n")
	if jsontext.Value(document).IsValid() {
		t.printf("%s\n", escapeJSON(document))
		return
	}
	// Do not escape spaces and joiners, because many languages and emoji need them.
	shown := escapeFunc(document, func(r rune) bool {
		return diag.Unseen(r) && !unicode.Is(unicode.Zs, r) && r != '\u200c' && r != '\u200d'
	})
	t.printf("%s\n", shown)
	if shown != document {
		t.remarkf("invisible characters are shown as escapes; to write them unchanged, use -o FILE")
	}
}

// notef writes a line to stderr.
func (t *terminal) notef(format string, args ...any) {
	_ = t.flush() // earlier output must appear before this line; if flush fails, Run reports the error
	fmt.Fprintln(t.err, t.escapeBetweenStyles(fmt.Sprintf(format, args...), printableLines))
}

// show prints the answer of a verb. With --json, it prints the document. Otherwise it calls the callback, which
// prints the answer for people.
func (t *terminal) show(document any, text func()) error {
	if t.json {
		return t.document(document)
	}
	text()
	return nil
}

// judge is like show, but returns errNo if ok is false.
func (t *terminal) judge(ok bool, document any, text func()) error {
	if err := t.show(document, text); err != nil || ok {
		return err
	}
	return errNo
}

// say is like show, but takes a format string and arguments instead of a callback.
func (t *terminal) say(document any, format string, args ...any) error {
	return t.show(document, func() { t.printf(format, args...) })
}

func (t *terminal) warnf(format string, args ...any) {
	if t.log != nil {
		t.troublef(format, args...)
		return
	}
	t.notef("%s %s", t.paint(yellow, "warning:"), fmt.Sprintf(format, args...))
}

// hintf prints a hint about the previous message, for example how to fix the problem.
func (t *terminal) hintf(format string, args ...any) {
	t.notef("  %s %s", t.paint(dim, "hint:"), fmt.Sprintf(format, args...))
}

// remarkf prints a less important line in a dim colour.
func (t *terminal) remarkf(format string, args ...any) {
	t.notef("%s", t.paint(dim, fmt.Sprintf(format, args...)))
}

// alertf prints a line that the user must not miss.
func (t *terminal) alertf(format string, args ...any) {
	if t.log != nil {
		t.event(slog.LevelError, fmt.Sprintf(format, args...))
		return
	}
	t.notef("%s %s", t.paint(boldRed, "ambit:"), fmt.Sprintf(format, args...))
}

// document prints v as indented JSON. It is for verbs that print only one document.
func (t *terminal) document(v any) error {
	t.outMu.Lock()
	defer t.outMu.Unlock()
	return writeJSON(t.out, v)
}

// jsonLine prints a JSON document on one line and flushes the output. It is for verbs that keep running.
func (t *terminal) jsonLine(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	t.printf("%s\n", escapeJSON(string(line)))
	return t.flush()
}

// escapeJSON escapes the characters in a JSON text that are invisible or that control a terminal. The JSON value stays
// the same.
func escapeJSON(text string) string {
	odd := func(r rune) bool { return r >= 0x7f && diag.Unseen(r) }
	var b strings.Builder
	for _, r := range text {
		if !odd(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}

// hint returns the hint of a failure. The hint of a call.Refusal or a pack.Error can end with a command that needs a
// manifest. In that case, hint inserts the path of the last loaded manifest.
func (t *terminal) hint(f *failure) string {
	if r, ok := errors.AsType[*call.Refusal](f.err); ok && f.hint == r.Hint {
		return r.HintFor(t.lastRead)
	}
	if e, ok := errors.AsType[*pack.Error](f.err); ok && f.hint == e.Hint {
		return e.Command.After(e.Hint, t.lastRead)
	}
	return f.hint
}

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
	t.notef("%s %s", t.paint(boldRed, "ambit:"), diag.Printable(strings.ReplaceAll(f.Error(), "\n", "; ")))
	if hint != "" {
		t.hintf("%s", diag.Printable(hint))
	}
}

// widths returns the width of each column. The last cell of each row is ignored, because it needs no padding.
func widths(rows [][]string) []int {
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
	return widths
}

// table prints rows with aligned columns.
func (t *terminal) table(indent string, rows [][]string) {
	widths := widths(rows)
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

// visible returns the number of characters of s, without colour codes.
func visible(s string) int { return utf8.RuneCountInString(anyStyle.ReplaceAllString(s, "")) }

// wrap breaks a text into indented lines of at most the given width.
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

// moment formats a time in the local time zone. It includes the name of the zone, because the console shows UTC.
func moment(at time.Time) string { return at.Local().Format("2006-01-02 15:04:05 MST") }

// bar is a progress line for downloads and server starts. It is redrawn in place, and removed before other output.
type bar struct {
	mu    sync.Mutex
	out   io.Writer
	width int
	paint func(style, string) string

	steps map[string]string // the current step of each server
	shown bool
}

// step sets the current step of a server and redraws the line.
func (b *bar) step(name, step string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.steps == nil {
		b.steps = map[string]string{}
	}
	b.steps[name] = step
	done := 0
	for _, step := range b.steps {
		done += btoi(step == "ready" || step == "refused")
	}
	b.clear()
	if done == len(b.steps) {
		b.steps = nil // all servers are done; the next step starts a new count
		return
	}
	text := fmt.Sprintf("%d of %s  %s: %s", done, count(len(b.steps), "server"), name, step)
	fmt.Fprint(b.out, b.paint(dim, clip(diag.Printable(text), b.width)))
	b.shown = true
}

// hide removes the line. The receiver may be nil.
func (b *bar) hide() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clear()
}

func (b *bar) clear() {
	if b.shown {
		fmt.Fprint(b.out, "\r\x1b[K")
		b.shown = false
	}
}
