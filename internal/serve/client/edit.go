package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// editor reads and changes one entry in the text of a client's file.
type editor interface {
	// get returns the value of the entry with this key, or nil.
	get(text []byte, key string) (any, error)
	// set adds or replaces the entry with this key.
	set(text []byte, key string, e Entry) (edited, error)
	// remove removes the entry with this key. The parameter made reports whether ambit created the object or table that
	// contains the entries. If so, remove also removes the container when it has become empty.
	remove(text []byte, key string, made bool) (edited, error)
	// valueOf converts an entry to a value. The value has the same form as the result of get.
	valueOf(e Entry) any
}

// edited is the result of adding, replacing or removing an entry.
type edited struct {
	text           []byte // the new text of the file
	line           int    // the number of the first changed line, starting at 1
	removed, added string
	made           bool // whether the edit created the object or table that contains the entries
}

// diff returns a description of the edit for the user. If another program wrote the removed lines, diff shows only how
// many there are.
func (e edited) diff(theirs bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "@@ line %d @@\n", e.line)
	if theirs && e.removed != "" {
		n := strings.Count(strings.Trim(e.removed, "\r\n"), "\n") + 1
		fmt.Fprintf(&b, "- (the existing entry is not shown; number of lines: %d)\n", n)
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

// splice replaces a range of bytes in a text.
type splice struct {
	from, to int
	text     string
}

// apply applies splices to a text. The splices must be sorted and must not overlap.
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

// eolOf returns the line ending that the text uses.
func eolOf(text []byte) string {
	if i := bytes.IndexByte(text, '\n'); i > 0 && text[i-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}

func lineAt(text []byte, offset int) int { return bytes.Count(text[:offset], []byte("\n")) + 1 }

const byteOrderMark = "\ufeff"

// splitMark separates the byte order mark from the rest of a text. Parsers do not accept the mark.
func splitMark(text []byte) (mark string, rest []byte) {
	if rest, ok := bytes.CutPrefix(text, []byte(byteOrderMark)); ok {
		return byteOrderMark, rest
	}
	return "", text
}

func blank(text []byte) bool { return len(bytes.TrimSpace(text)) == 0 }

// quote returns s as a JSON string, which is also a valid TOML basic string.
func quote(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // encoding a string cannot fail
	// TOML requires an escape for the first character, and YAML for the second, but JSON does not.
	return strings.NewReplacer("\x7f", `\u007f`, "\u0085", `\u0085`).Replace(strings.TrimSuffix(b.String(), "\n"))
}

func quoteList(list []string) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = quote(s)
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// literal returns the value of a field as JSON. The colon separates the members of an object.
func literal(value any, colon string) string {
	switch v := value.(type) {
	case string:
		return quote(v)
	case []string:
		return quoteList(v)
	case map[string]string:
		return "{" + quote(homeVariable) + colon + quote(v[homeVariable]) + "}"
	}
	return fmt.Sprint(value)
}
