package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// editor changes one entry in the text of a client's file.
type editor interface {
	// get is what the file says under key, nil if nothing.
	get(text []byte, key string) (any, error)
	// set adds the entry, or puts it in the place of what is there.
	set(text []byte, key string, e Entry) (edited, error)
	// remove takes the entry out, and with it what was made to hold it.
	remove(text []byte, key string, made bool) (edited, error)
	// meaning is what get finds of an entry.
	meaning(e Entry) any
}

// edited is a text after an edit.
type edited struct {
	text []byte
	// line is where the edit begins, from 1.
	line           int
	removed, added string
	// made says that what holds the entries was not there before.
	made bool
}

// diff shows an edit. What others had written is counted, not shown.
func (e edited) diff(theirs bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "@@ line %d @@\n", e.line)
	if theirs && e.removed != "" {
		n := strings.Count(strings.Trim(e.removed, "\r\n"), "\n") + 1
		fmt.Fprintf(&b, "- (another entry of this name, %d lines, not shown)\n", n)
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

// apply carries out splices, which are in order and apart.
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

// eolOf is the line end that a text uses.
func eolOf(text []byte) string {
	if i := bytes.IndexByte(text, '\n'); i > 0 && text[i-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}

func lineAt(text []byte, offset int) int { return bytes.Count(text[:offset], []byte("\n")) + 1 }

const byteOrderMark = "\ufeff"

// splitMark takes the byte order mark off, which parsers do not know.
func splitMark(text []byte) (mark string, rest []byte) {
	if rest, ok := bytes.CutPrefix(text, []byte(byteOrderMark)); ok {
		return byteOrderMark, rest
	}
	return "", text
}

func blank(text []byte) bool { return len(bytes.TrimSpace(text)) == 0 }

// quoted is a text as JSON, which is a TOML basic string too.
func quoted(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a text can always be written
	// TOML wants what JSON may leave as it is.
	return strings.ReplaceAll(strings.TrimSuffix(b.String(), "\n"), "\x7f", `\u007f`)
}

func quotedList(list []string) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = quoted(s)
	}
	return "[" + strings.Join(out, ", ") + "]"
}
