package secret

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway/guard/literal"
	"github.com/ambit-run/ambit/internal/manifest/secretlike"
)

// Value is a secret that ambit itself holds.
type Value struct {
	// Name is what to call it. It is not secret.
	Name string
	// Secret is the value.
	Secret string
}

// Known finds the values that ambit holds, however they are written: as they
// are, in JSON, in a URL, in hex, and in base64 at any of its three alignments.
type Known struct {
	set   *literal.Set
	forms []form
}

// form is one way to write a value.
type form struct {
	name string
	text []byte
	fold bool // its case is not significant
}

// Shorter values and fragments are in too many innocent texts.
const (
	minKnown    = 6
	minFragment = 8
)

// NewKnown compiles values. Values of fewer than six bytes are left out.
func NewKnown(values []Value) (*Known, error) {
	k := &Known{}
	seen := map[string]bool{}
	add := func(name string, shortest int, fold bool, text string) {
		if len(text) >= shortest && !seen[text] {
			seen[text] = true
			k.forms = append(k.forms, form{name, []byte(text), fold})
		}
	}
	for _, v := range values {
		for _, secret := range append(leaves(v.Secret), v.Secret) {
			if len(secret) < minKnown {
				continue
			}
			add(v.Name, minKnown, false, secret)
			if quoted, err := json.Marshal(secret); err == nil {
				add(v.Name, minKnown, false, string(quoted[1:len(quoted)-1]))
			}
			for _, escaped := range []string{url.QueryEscape(secret), url.PathEscape(secret)} {
				add(v.Name, minKnown, true, escaped)
			}
			add(v.Name, minFragment, true, hex.EncodeToString([]byte(secret)))
			for shift := range 3 {
				for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
					add(v.Name, minFragment, false, aligned(enc, secret, shift))
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

// aligned is the part of a value's base64 that does not depend on the text around it, if
// shift bytes precede it.
func aligned(enc *base64.Encoding, secret string, shift int) string {
	text := enc.EncodeToString(append(make([]byte, shift), secret...))
	return text[(8*shift+5)/6 : 8*(shift+len(secret))/6]
}

// leaves are the secrets inside a value that is a JSON document, such as the key
// of a service account.
func leaves(secret string) []string {
	if len(secret) == 0 || secret[0] != '{' || !jsontext.Value(secret).IsValid() {
		return nil
	}
	var out []string
	d := jsontext.NewDecoder(bytes.NewReader([]byte(secret)))
	name := ""
	for {
		kind, length := d.StackIndex(d.StackDepth())
		t, err := d.ReadToken()
		if err != nil {
			return out
		}
		if t.Kind() != '"' {
			continue
		}
		switch s := t.String(); {
		case kind == '{' && length%2 == 0:
			name = s
		case secretlike.Name(name) && len(s) >= minFragment:
			out = append(out, s)
		}
	}
}

// pass finds the values in a text.
func (k *Known) pass(text []byte, h *literal.Hits, dst []Match) []Match {
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
					if bytes.Equal(text[start:end], f.text) || f.fold && bytes.EqualFold(text[start:end], f.text) {
						dst = append(dst, Match{Rule: f.name, Start: start, End: end})
					}
				}
			}
		}
	}
	return dst
}

// Replace is a text with something else in the place of each value in it, however
// it is written there; of two that begin alike, the longer one.
func (k *Known) Replace(text string, with func(name string) string) string {
	if k == nil {
		return text
	}
	var h literal.Hits
	found := k.pass([]byte(text), &h, nil)
	if len(found) == 0 {
		return text
	}
	slices.SortFunc(found, func(a, b Match) int { return cmp.Or(a.Start-b.Start, b.End-a.End) })
	var out strings.Builder
	done := 0
	for _, m := range found {
		if m.Start >= done {
			out.WriteString(text[done:m.Start] + with(m.Rule))
		}
		done = max(done, m.End)
	}
	return out.String() + text[done:]
}
