package doc

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/go-json-experiment/json/jsontext"
)

// Digest is the sha256 of the document's canonical form. Two documents have the same
// digest exactly when they have the same content, however they are written.
func (t *Tree) Digest() string {
	sum := sha256.Sum256(t.Root().AppendCanonical(nil))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// AppendCanonical appends the value's RFC 8785 form: no white space, keys
// sorted by UTF-16 code units, numbers as ECMAScript prints them.
func (v Value) AppendCanonical(b []byte) []byte {
	switch v.Kind() {
	case Object:
		members := make([]Value, 0, v.Len())
		for m := range v.Each() {
			members = append(members, m)
		}
		slices.SortFunc(members, func(x, y Value) int { return compareUTF16(x.Key(), y.Key()) })
		b = append(b, '{')
		for i, m := range members {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendString(b, m.Key())
			b = append(b, ':')
			b = m.AppendCanonical(b)
		}
		return append(b, '}')
	case Array:
		b = append(b, '[')
		i := 0
		for m := range v.Each() {
			if i > 0 {
				b = append(b, ',')
			}
			i++
			b = m.AppendCanonical(b)
		}
		return append(b, ']')
	case String, Date:
		return appendString(b, v.Text())
	case Number:
		return appendNumber(b, v.Text())
	case Bool:
		return append(b, v.Text()...)
	default:
		return append(b, "null"...)
	}
}

func appendString(b []byte, s string) []byte {
	// AppendQuote fails only on invalid UTF-8, which no tree contains. Then two
	// different documents must not get the same output.
	out, err := jsontext.AppendQuote(b, s)
	if err != nil {
		return append(b, strings.ToValidUTF8(s, "\uFFFD")...)
	}
	return out
}

func appendNumber(b []byte, lexeme string) []byte {
	if strings.Trim(lexeme, "0123456789") == "" {
		return append(b, lexeme...)
	}
	n := jsontext.Value(lexeme)
	if err := n.Canonicalize(); err != nil {
		return append(b, lexeme...)
	}
	return append(b, n...)
}

func compareUTF16(a, b string) int {
	for i := 0; i < len(a) && i < len(b); i++ {
		if a[i] >= 0x80 || b[i] >= 0x80 {
			return slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
		}
		if a[i] != b[i] {
			return cmp.Compare(a[i], b[i])
		}
	}
	return cmp.Compare(len(a), len(b))
}
