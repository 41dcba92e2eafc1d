package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway/guard/literal"
	"github.com/ambit-run/ambit/internal/manifest/secretlike"
)

// Value is a credential that ambit stores.
type Value struct {
	// Name identifies the credential. The name is not confidential.
	Name   string
	Secret string
}

// Known finds the credentials that ambit stores. It finds each value as plain text, in JSON, in a URL, in hex, and in
// base64 at each of the three alignments. It ignores letter case, because a host that returns a credential can change
// the case.
type Known struct {
	set   *literal.Set
	forms []form
}

// form is one encoding of a value.
type form struct {
	name string
	text []byte
}

// minKnown is the minimum length of a value. minFragment is the minimum length of the value's hex and base64 encodings,
// and of a secret nested in the value. Shorter strings also occur in many harmless texts.
const (
	minKnown    = 6
	minFragment = 8
)

// NewKnown compiles values and ignores those of fewer than six bytes. It returns nil if no value remains.
func NewKnown(values []Value) (*Known, error) {
	k := &Known{}
	seen := map[string]bool{}
	add := func(name string, shortest int, text string) {
		if len(text) >= shortest && !seen[text] {
			seen[text] = true
			k.forms = append(k.forms, form{name, []byte(text)})
		}
	}
	for _, v := range values {
		nested, _ := nestedStrings(v.Secret, func(name, s string) bool { return secretlike.Name(name) && len(s) >= minFragment })
		for _, secret := range append(nested, v.Secret) {
			if len(secret) < minKnown {
				continue
			}
			add(v.Name, minKnown, secret)
			if quoted, err := json.Marshal(secret); err == nil {
				add(v.Name, minKnown, string(quoted[1:len(quoted)-1]))
			}
			for _, escaped := range []string{url.QueryEscape(secret), url.PathEscape(secret)} {
				add(v.Name, minKnown, escaped)
			}
			add(v.Name, minFragment, hex.EncodeToString([]byte(secret)))
			for shift := range 3 {
				for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
					add(v.Name, minFragment, encodeAligned(enc, secret, shift))
				}
			}
		}
	}
	if len(k.forms) == 0 {
		return nil, nil
	}
	words := make([]string, len(k.forms))
	for i, f := range k.forms {
		words[i] = string(f.text)
	}
	set, err := literal.New(words, maxWord)
	if err != nil {
		return nil, err
	}
	k.set = set
	return k, nil
}

// encodeAligned encodes a value in base64 as if other bytes preceded it; shift is the number of those bytes. It returns
// only the characters that do not depend on the bytes around the value.
func encodeAligned(enc *base64.Encoding, secret string, shift int) string {
	text := enc.EncodeToString(append(make([]byte, shift), secret...))
	return text[(8*shift+5)/6 : 8*(shift+len(secret))/6]
}

// nestedStrings finds the strings inside a JSON object, such as a service account key. It returns the strings for which
// the callback returns true. The callback takes a string and the name of the field that contains it. The second result
// is false for a value that is not a JSON object.
func nestedStrings(value string, include func(name, s string) bool) (list []string, object bool) {
	if len(value) == 0 || value[0] != '{' || !jsontext.Value(value).IsValid() {
		return nil, false
	}
	d := jsontext.NewDecoder(bytes.NewReader([]byte(value)))
	name := ""
	for {
		kind, length := d.StackIndex(d.StackDepth())
		t, err := d.ReadToken()
		if err != nil {
			return list, true
		}
		if t.Kind() != '"' {
			continue
		}
		switch s := t.String(); {
		case kind == '{' && length%2 == 0:
			name = s
		case include(name, s):
			list = append(list, s)
		}
	}
}

// findValues appends a match to dst for each stored value in text.
func (k *Known) findValues(text []byte, h *literal.Hits, dst []Match) []Match {
	for from := 0; from < len(text); from += literal.Block {
		k.set.Scan(text, from, min(from+literal.Block, len(text)), h)
		for _, lane := range h {
			for _, hit := range lane {
				for _, w := range k.set.Words(hit) {
					f := &k.forms[w]
					start := hit.End - k.set.Size(w)
					end := start + len(f.text)
					if end > len(text) {
						continue
					}
					if bytes.EqualFold(text[start:end], f.text) {
						dst = append(dst, Match{Rule: f.name, Start: start, End: end})
					}
				}
			}
		}
	}
	return dst
}

// Replace replaces each value in text, in any encoding. The callback takes the name of a value and returns the
// replacement. Overlapping values get one replacement.
func (k *Known) Replace(text string, replacement func(name string) string) string {
	if k == nil {
		return text
	}
	var h literal.Hits
	var out strings.Builder
	done := 0
	for _, m := range Merge(k.findValues([]byte(text), &h, nil)) {
		out.WriteString(text[done:m.Start] + replacement(m.Rule))
		done = m.End
	}
	return out.String() + text[done:]
}

// Find returns the positions of the values in text as pairs of offsets. The pairs are in order and do not overlap.
func (k *Known) Find(text []byte) [][2]int {
	if k == nil {
		return nil
	}
	var h literal.Hits
	var found [][2]int
	for _, m := range Merge(k.findValues(text, &h, nil)) {
		found = append(found, [2]int{m.Start, m.End})
	}
	return found
}

// Longest returns the length in bytes of the longest encoding of any value.
func (k *Known) Longest() (n int) {
	if k == nil {
		return 0
	}
	for i := range k.forms {
		n = max(n, len(k.forms[i].text))
	}
	return n
}

// InLine reports whether every encoding of every value fits on one line.
func (k *Known) InLine() bool {
	if k == nil {
		return true
	}
	for i := range k.forms {
		if bytes.IndexByte(k.forms[i].text, '\n') >= 0 {
			return false
		}
	}
	return true
}
