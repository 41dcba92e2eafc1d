package flow

import (
	"bytes"
	"regexp"
	"slices"
)

// The result of a call with an effect repeats what the agent sent, and contains the id of what the call created.

// dropEchoes removes text that repeats an argument of the call from the texts of a result. The repeated text comes from
// the caller. If the caller has copied it from untrusted text, the memory already contains that text.
func (s *splitter) dropEchoes(arguments []leaf) {
	known := map[string]bool{}
	for i := range arguments {
		for line := range bytes.Lines(arguments[i].value) {
			if line = echoed(line); len(line) >= minEcho && bytes.Count(line, []byte(" ")) >= minEchoSpaces {
				known[string(line)] = true
			}
		}
	}
	if len(known) == 0 {
		return
	}
	for i, text := range s.texts {
		var kept []byte
		for line := range bytes.Lines(text) {
			if !known[string(echoed(line))] {
				kept = append(kept, line...)
			}
		}
		if text != nil {
			s.texts[i] = append([]byte{}, kept...)
		}
	}
	s.texts = slices.DeleteFunc(s.texts, func(text []byte) bool { return text != nil && len(bytes.TrimSpace(text)) == 0 })
}

// createdID attests the id in a short message, such as 4711 in "Created the channel news with id 4711". It ignores an
// id in the arguments, because the service did not choose it.
func (s *splitter) createdID(arguments []leaf) {
	texts := slices.DeleteFunc(slices.Clone(s.texts), func(text []byte) bool { return text == nil })
	if len(texts) != 1 || len(texts[0]) > maxMessage || len(s.atoms) > 0 {
		return // not a message alone
	}
	m := idMessage.FindSubmatch(texts[0])
	if m != nil && (digits(m[1]) == len(m[1]) || len(accounts(m[1])) == 0) && !slices.ContainsFunc(arguments, func(l leaf) bool { return bytes.Contains(l.value, m[1]) }) {
		s.attest(m[1])
	}
}

// idMessage matches one line with an id.
var idMessage = regexp.MustCompile(`^[^\n]*\b(?i:id):? ([\w-]{4,64})[.)]?\s*$`)

// maxMessage is the maximum length of a message that createdID searches.
const maxMessage = 200

// echoed returns a line without the quotation marks, blanks and commas around it.
func echoed(line []byte) []byte { return bytes.Trim(line, " \t\r\n\"'`,") }

// The limits of dropEchoes. A whole line of several words is certainly the caller's. Part of a line may be part of an
// address that an attacker wrote.
const (
	minEcho       = 20
	minEchoSpaces = 3
)
