package validate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway/rawjson"
)

// Limits of a value. They bound the memory of a check: each value of a document takes up to a hundred bytes, and each
// object takes several hundred bytes. A number with an exponent takes memory for every digit of its full decimal form.
const (
	maxValues   = 100_000
	maxObjects  = 60_000
	maxDigits   = 1000
	maxExponent = 400
)

// Bounds returns an error if a JSON text contains too many values or objects, or a number that is too long. The error
// names the limit. Bounds ignores everything after the first syntax error.
func Bounds(text []byte) error { return bounds(text, maxValues) }

func bounds(text []byte, maxValues int) error {
	values, objects := 0, 0
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '"':
			i = rawjson.StringEnd(text, i+1)
		case c == ',' || c == '{' || c == '[':
			if values++; values > maxValues {
				return fmt.Errorf("more than %d values", maxValues)
			}
			if c != '{' {
				continue
			}
			if objects++; objects > maxObjects {
				return fmt.Errorf("more than %d objects", maxObjects)
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

// decode parses a JSON text into the types that the package jsonschema uses. It does not copy the whole text first. If
// a name occurs twice in an object, the last value is used.
func decode(text []byte) (any, error) {
	d := jsontext.NewDecoder(bytes.NewBuffer(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	v, err := decodeNext(d)
	if err != nil {
		return nil, err
	}
	if _, err := d.ReadToken(); err != io.EOF {
		return nil, errors.New("the text continues after the value")
	}
	return v, nil
}

func decodeNext(d *jsontext.Decoder) (any, error) {
	t, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	switch t.Kind() {
	case '{':
		object := map[string]any{}
		for d.PeekKind() != '}' {
			t, err := d.ReadToken()
			if err != nil {
				return nil, err
			}
			name := t.String()
			if object[name], err = decodeNext(d); err != nil {
				return nil, err
			}
		}
		_, err = d.ReadToken()
		return object, err
	case '[':
		array := []any{}
		for d.PeekKind() != ']' {
			item, err := decodeNext(d)
			if err != nil {
				return nil, err
			}
			array = append(array, item)
		}
		_, err = d.ReadToken()
		return array, err
	case '"':
		return t.String(), nil
	case '0':
		return json.Number(t.String()), nil
	case 'n':
		return nil, nil
	}
	return t.Bool(), nil
}
