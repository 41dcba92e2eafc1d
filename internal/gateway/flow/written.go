package flow

import (
	"bytes"
	"slices"
)

// maxWritten is the maximum size of Memory.written in bytes.
const maxWritten = 1 << 20

// wrote records the addresses and numbers that a call with an effect takes from untrusted text into free text, such as
// a note, a file or a memory. A tool can later return them as fields, in any session and after the text has expired.
// Such fields still do not come from the user.
func (s *Session) wrote(t *Tool, leaves []leaf) {
	d := &decision{Session: s, tool: t, steps: maxSteps}
	for i := range leaves {
		l := &leaves[i]
		if l.role != prose && l.role != code && l.role != other && (l.role != destination || t.Network && !t.addsContact(l.name)) || s.own.has(l.key()) {
			continue
		}
		for _, part := range valuesIn(l.value, l.words()) {
			w := wordsOf(part)
			key := w.key()
			if s.own.has(key) || s.attested.has(key) {
				continue
			}
			// Text can hide an address in a form that ambit cannot decode, so record addresses of unknown origin too.
			if bytes.IndexByte(part, '@') < 0 && !bytes.Contains(part, []byte("://")) && len(d.occurrences(w, true)) == 0 {
				continue
			}
			if s.m.written.size() > maxWritten {
				s.m.written, s.m.forgot = keySet{}, s.used
			}
			s.m.written.add(key, 0)
		}
	}
}

// valuesIn returns the addresses, the account numbers and the long numbers in a text.
func valuesIn(text []byte, w *words) [][]byte {
	parts := slices.Concat(addresses(text), accounts(text))
	for i := range w.len() {
		if token := w.token(i); digits(token) >= minNumber {
			parts = append(parts, token)
		}
	}
	return parts
}

// distrust turns fields of a result that do not come from the user into running text: written values, arguments that
// come from text, and addresses that a program printed.
func (s *splitter) distrust(written *keySet, o *origin) {
	if written.n == 0 && len(o.doubted) == 0 && !o.printed {
		return
	}
	kept, values := s.atoms[:0], s.values[:0]
	for i, key := range s.atoms {
		w := wordsOf(s.values[i])
		if written.has(key) || slices.Contains(o.doubted, key) ||
			o.printed && (bytes.IndexByte(s.values[i], '@') > 0 || len(accounts(s.values[i])) > 0) ||
			slices.ContainsFunc(valuesIn(s.values[i], w), func(part []byte) bool {
				key := keyOf(part, &s.view)
				return written.has(key) || slices.Contains(o.doubted, key)
			}) {
			s.texts = append(s.texts, nil, s.values[i])
			continue
		}
		kept, values = append(kept, key), append(values, s.values[i])
	}
	s.atoms, s.values = kept, values
}
