package doc

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"

	"github.com/go-json-experiment/json/jsontext"
)

// Digest returns the SHA-256 of the document's canonical form. Two documents have the same digest if and only if they
// have the same content. White space, key order and syntax do not matter.
func (t *Tree) Digest() string {
	sum := sha256.Sum256(t.Root().Canonical())
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Canonical returns the value in the canonical form of RFC 8785. The form has no white space. Keys are sorted by
// UTF-16 code units, and numbers are written as ECMAScript prints them. The integers of TOML have 64 bits, so they are
// written with all their digits.
func (v Value) Canonical() []byte {
	text := jsontext.Value(v.appendJSON(nil))
	asDoubles := v.t == nil || !v.t.toml
	// Canonicalize fails only for a number that a double cannot represent. A document with such a number is invalid and
	// has no digest.
	_ = text.Canonicalize(jsontext.AllowDuplicateNames(true), jsontext.CanonicalizeRawInts(asDoubles))
	return text
}

func (v Value) appendJSON(b []byte) []byte {
	switch v.Kind() {
	case Object:
		b = append(b, '{')
		for m := range v.Each() {
			b, _ = jsontext.AppendQuote(b, m.Key()) // fails only for invalid UTF-8, which a tree never contains
			b = append(m.appendJSON(append(b, ':')), ',')
		}
		return append(bytes.TrimSuffix(b, []byte(",")), '}')
	case Array:
		b = append(b, '[')
		for m := range v.Each() {
			b = append(m.appendJSON(b), ',')
		}
		return append(bytes.TrimSuffix(b, []byte(",")), ']')
	case String, Date:
		b, _ = jsontext.AppendQuote(b, v.Text())
		return b
	case Number, Bool:
		return append(b, v.Text()...)
	default:
		return append(b, "null"...)
	}
}
