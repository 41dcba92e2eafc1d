package validate

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Limits of a value. They bound the memory of a check, because each value of a document takes more than a hundred bytes,
// and a number with an exponent takes as many digits as it stands for.
const (
	maxValues   = 100_000
	maxDigits   = 1000
	maxExponent = 400
)

// Bounds returns an error if a JSON text contains too many values, or a number that is too long. The error names what the
// text contains. Bounds ignores everything after the first syntax error.
func Bounds(text []byte) error { return bounds(text, maxValues) }

func bounds(text []byte, maxValues int) error {
	values := 0
	inString, escaped := false, false
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case inString:
			inString = escaped || c != '"'
			escaped = !escaped && c == '\\'
		case c == '"':
			inString = true
		case c == ',' || c == '{' || c == '[':
			if values++; values > maxValues {
				return fmt.Errorf("more than %d values", maxValues)
			}
		case c == '-' || '0' <= c && c <= '9':
			end := i
			for end < len(text) && strings.IndexByte("+-.0123456789eE", text[end]) >= 0 {
				end++
			}
			if err := checkNumber(text[i:end]); err != nil {
				return err
			}
			i = end - 1
		}
	}
	return nil
}

func checkNumber(text []byte) error {
	if len(text) > maxDigits {
		return fmt.Errorf("a number with more than %d digits", maxDigits)
	}
	_, exponent, _ := strings.Cut(strings.ToLower(string(text)), "e")
	if exponent == "" {
		return nil
	}
	if n, err := strconv.Atoi(exponent); err != nil && !errors.Is(err, strconv.ErrRange) {
		return nil // not a number; the parser rejects it
	} else if err != nil || n > maxExponent || n < -maxExponent {
		return fmt.Errorf("a number with an exponent beyond %d", maxExponent)
	}
	return nil
}
