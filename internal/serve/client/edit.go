package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// editor changes one entry in the text of a client's file.
type editor interface {
	// get returns the value under key, or nil.
	get(text []byte, key string) (any, error)
	// set adds or replaces the entry.
	set(text []byte, key string, e Entry) (edited, error)
	// remove removes the entry, and its container if that was created for it.
	remove(text []byte, key string, made bool) (edited, error)
	// meaning is the value that get returns for an entry.
	meaning(e Entry) any
}

// edited is the result of an edit.
type edited struct {
	text []byte
	// line is where the edit begins, from 1.
	line           int
	removed, added string
	// made means that the container of the entries was created.
	made bool
}

// diff shows an edit. Lines that others had written are counted, not shown.
func (e edited) diff(theirs bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "@@ line %d @@\n", e.line)
	if theirs && e.removed != "" {
		n := strings.Count(strings.Trim(e.removed, "\r\n"), "\n") + 1
		fmt.Fprintf(&b, "- (another entry with this name, %d lines, not shown)\n", n)
	} else {
		mark(&b, "-", e.removed)
	}
	mark(&b, "+", e.added)
	return b.String()
}

func mark(b *strings.Builder, sign, text string) {
	text = strings.TrimRight(strings.Trim(strings.ReplaceAll(text, "\r\n", "\n"), "\n"), " \t\n")
	if text == "" {
		return
	}
	for line := range strings.Lines(text + "\n") {
		b.WriteString(sign + " " + line)
	}
}

// splice is one replacement in a text.
type splice struct {
	from, to int
	text     string
}

// apply applies splices, which are sorted and do not overlap.
func apply(text []byte, splices ...splice) []byte {
	var b bytes.Buffer
	at := 0
	for _, s := range splices {
		b.Write(text[at:s.from])
		b.WriteString(s.text)
		at = s.to
	}
	b.Write(text[at:])
	return b.Bytes()
}

// eolOf returns the line end that a text uses.
func eolOf(text []byte) string {
	if i := bytes.IndexByte(text, '\n'); i > 0 && text[i-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}

func lineAt(text []byte, offset int) int { return bytes.Count(text[:offset], []byte("\n")) + 1 }

const byteOrderMark = "\ufeff"

// splitMark removes the byte order mark, which parsers do not accept.
func splitMark(text []byte) (mark string, rest []byte) {
	if rest, ok := bytes.CutPrefix(text, []byte(byteOrderMark)); ok {
		return byteOrderMark, rest
	}
	return "", text
}

func blank(text []byte) bool { return len(bytes.TrimSpace(text)) == 0 }

// quoted is a JSON string, which is also a TOML basic string.
func quoted(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // strings can always be encoded
	// TOML requires an escape that JSON does not.
	return strings.ReplaceAll(strings.TrimSuffix(b.String(), "\n"), "\x7f", `\u007f`)
}

func quotedList(list []string) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = quoted(s)
	}
	return "[" + strings.Join(out, ", ") + "]"
}
