package validate

import (
	"cmp"
	"encoding/json"
	"math/big"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

func (e *evaluation) number(s *jsonschema.Schema, n json.Number, report bool) bool {
	if s.Minimum == nil && s.Maximum == nil && s.ExclusiveMinimum == nil && s.ExclusiveMaximum == nil && s.MultipleOf == nil {
		return true
	}
	r, ok := e.rat(n)
	if !ok {
		return false
	}
	if s.Minimum != nil && e.compare(r, s.Minimum) < 0 {
		ok = report && e.fail("is less than %s", s.Minimum.RatString())
	}
	if s.Maximum != nil && e.compare(r, s.Maximum) > 0 {
		ok = report && e.fail("is more than %s", s.Maximum.RatString())
	}
	if s.ExclusiveMinimum != nil && e.compare(r, s.ExclusiveMinimum) <= 0 {
		ok = report && e.fail("must be more than %s", s.ExclusiveMinimum.RatString())
	}
	if s.ExclusiveMaximum != nil && e.compare(r, s.ExclusiveMaximum) >= 0 {
		ok = report && e.fail("must be less than %s", s.ExclusiveMaximum.RatString())
	}
	if s.MultipleOf != nil {
		if size := words(r) + words(s.MultipleOf); !e.spend(4*size + size*size/4) {
			return false
		}
		if !e.quotient.Quo(r, s.MultipleOf).IsInt() {
			ok = report && e.fail("is not a multiple of %s", s.MultipleOf.RatString())
		}
	}
	return ok
}

// compare compares two numbers. Most numbers in schemas and values are small integers.
func (e *evaluation) compare(a, b *big.Rat) int {
	if a.IsInt() && b.IsInt() && a.Num().IsInt64() && b.Num().IsInt64() {
		return cmp.Compare(a.Num().Int64(), b.Num().Int64())
	}
	if size := words(a) + words(b); !e.spend(2*size + size*size/8) {
		return 0
	}
	return a.Cmp(b)
}

// words returns how many machine words a number occupies. The work of a division or comparison grows with the square of
// this size.
func words(r *big.Rat) int {
	bits := r.Num().BitLen() + 63
	if !r.IsInt() {
		bits += r.Denom().BitLen() + 63
	}
	return bits / 64
}

// rat returns the value of a number, which is valid until the next call. It fails if the evaluation must end.
func (e *evaluation) rat(n json.Number) (*big.Rat, bool) {
	digits := len(n)
	if _, exponent, ok := strings.Cut(strings.ToLower(string(n)), "e"); ok {
		size, _ := strconv.Atoi(exponent)
		digits += max(size, -size)
	}
	if !e.spend(8 + digits) {
		return nil, false
	}
	if i, err := strconv.ParseInt(string(n), 10, 64); err == nil {
		return e.value.SetInt64(i), true
	}
	return e.value.SetString(string(n))
}

// decimal represents a number by its digits and a power of ten. The first and the last digit are not zero. Zero has no
// digits.
type decimal struct {
	negative        bool
	whole, fraction string // the digits before and after the decimal point
	exponent        int
}

func decimalOf(n json.Number) (d decimal) {
	text, negative := strings.CutPrefix(string(n), "-")
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		d.exponent, _ = strconv.Atoi(text[i+1:]) // Bounds has limited the exponent
		text = text[:i]
	}
	d.whole, d.fraction, _ = strings.Cut(text, ".")
	d.fraction = strings.TrimRight(d.fraction, "0")
	d.exponent -= len(d.fraction)
	if d.fraction == "" {
		d.exponent += len(d.whole)
		d.whole = strings.TrimRight(d.whole, "0")
		d.exponent -= len(d.whole)
	}
	if d.whole = strings.TrimLeft(d.whole, "0"); d.whole == "" {
		if d.fraction = strings.TrimLeft(d.fraction, "0"); d.fraction == "" {
			return decimal{}
		}
	}
	d.negative = negative
	return d
}

// append appends a text that is the same for equal numbers.
func (d decimal) append(to []byte) []byte {
	if d.negative {
		to = append(to, '-')
	}
	to = append(append(to, d.whole...), d.fraction...)
	return strconv.AppendInt(append(to, 'e'), int64(d.exponent), 10)
}
