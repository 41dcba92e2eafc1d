package secret

import (
	"bytes"

	"github.com/ambit-run/ambit/internal/gateway/guard/literal"
)

// Find returns the positions of the values in a text: pairs of offsets, in order and
// without overlaps. It looks for nothing else.
func (k *Known) Find(text []byte) [][2]int {
	if k == nil {
		return nil
	}
	var h literal.Hits
	var found [][2]int
	for _, m := range Merge(k.pass(text, &h, nil)) {
		found = append(found, [2]int{m.Start, m.End})
	}
	return found
}

// Longest is the most bytes that a value takes, however it is written.
func (k *Known) Longest() (n int) {
	if k == nil {
		return 0
	}
	for i := range k.forms {
		n = max(n, len(k.forms[i].text))
	}
	return n
}

// InLine reports whether every value is within one line.
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
