package mcpwire

import (
	"encoding/base64"
	"fmt"
	"math"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/ambit-run/ambit/internal/gateway/rawjson"
)

// mediaType returns a response's content type without its parameters.
func mediaType(h http.Header) string {
	switch raw := h.Get("Content-Type"); raw {
	case "application/json", "text/event-stream":
		return raw
	default:
		t, _, err := mime.ParseMediaType(raw)
		if err != nil {
			return ""
		}
		return t
	}
}

const (
	encodedPrefix = "=?base64?"
	encodedSuffix = "?="
)

// headerValue encodes a text for a header field by the rules of 2026-07-28: as it
// is if the field can contain it, in base64 otherwise.
func headerValue(s string) string {
	plain := printable(s) && strings.TrimSpace(s) == s &&
		!(strings.HasPrefix(s, encodedPrefix) && strings.HasSuffix(s, encodedSuffix))
	if plain {
		return s
	}
	return encodedPrefix + base64.StdEncoding.EncodeToString([]byte(s)) + encodedSuffix
}

// paramHeader is an argument that a tool also requires in a header field: the
// path to the argument and the name of the field.
type paramHeader struct {
	path []string
	name string
}

// paramHeaders reads the x-mcp-header annotations of a tool's input schema.
// The error is the reason that the annotations forbid calls of the tool.
func paramHeaders(schema []byte) ([]paramHeader, error) {
	var found []paramHeader
	seen := make(map[string]bool)
	var visit func(properties []byte, path []string) error
	visit = func(properties []byte, path []string) error {
		if len(properties) == 0 || properties[0] != '{' {
			return nil
		}
		w := rawjson.Walk(properties)
		for k, property, ok := w.Member(); ok; k, property, ok = w.Member() {
			key, isText := rawjson.Text(k)
			if !isText {
				continue
			}
			here := append(path[:len(path):len(path)], key)
			if raw := rawjson.Lookup(property, "x-mcp-header"); raw != nil {
				name, _ := rawjson.Text(raw)
				kind, _ := rawjson.Text(rawjson.Lookup(property, "type"))
				switch low := strings.ToLower(name); {
				case !httpguts.ValidHeaderFieldName(name):
					return fmt.Errorf("x-mcp-header %s is not a header name", sample(string(raw)))
				case seen[low]:
					return fmt.Errorf("x-mcp-header %q appears twice", name)
				case kind != "string" && kind != "integer" && kind != "boolean":
					return fmt.Errorf("x-mcp-header %q is on a value of type %s", name, sample(kind))
				default:
					seen[low] = true
					found = append(found, paramHeader{path: here, name: "Mcp-Param-" + name})
				}
			}
			if err := visit(rawjson.Lookup(property, "properties"), here); err != nil {
				return err
			}
		}
		return nil
	}
	return found, visit(rawjson.Lookup(schema, "properties"), nil)
}

// fromArguments returns the header field of one call, if the argument is present.
func (p paramHeader) fromArguments(arguments []byte) (header, bool) {
	raw := rawjson.Lookup(arguments, p.path...)
	if len(raw) == 0 {
		return header{}, false
	}
	switch c := raw[0]; {
	case c == '"':
		s, ok := rawjson.Text(raw)
		return header{p.name, headerValue(s)}, ok
	case c == 't' || c == 'f':
		return header{p.name, string(raw)}, true
	case c == '-' || isDigit(c):
		// 1e2 and 100.0 are integers too, as long as a double holds them exactly.
		f, err := strconv.ParseFloat(string(raw), 64)
		const safe = 1<<53 - 1
		if err != nil || f < -safe || f > safe || f != math.Trunc(f) {
			return header{}, false
		}
		return header{p.name, strconv.FormatInt(int64(f), 10)}, true
	default:
		return header{}, false
	}
}

// ReadHeader decodes a header value of 2026-07-28: plain text, or base64.
func ReadHeader(value string) (text string, ok bool) {
	value = strings.Trim(value, " \t")
	if !strings.HasPrefix(value, encodedPrefix) || !strings.HasSuffix(value, encodedSuffix) ||
		len(value) < len(encodedPrefix)+len(encodedSuffix) {
		return value, printable(value)
	}
	b, err := base64.StdEncoding.Strict().DecodeString(value[len(encodedPrefix) : len(value)-len(encodedSuffix)])
	return string(b), err == nil
}

// HeaderMismatch describes the Mcp-Param header that differs from the argument which the tool's input
// schema binds to it; empty if all match.
func HeaderMismatch(h http.Header, schema, arguments []byte) string {
	wanted, err := paramHeaders(schema)
	if err != nil {
		return "" // the tool is not served
	}
	for _, p := range wanted {
		got, sent := h[http.CanonicalHeaderKey(p.name)]
		want, set := p.fromArguments(arguments)
		switch {
		case !set && !sent:
			continue
		case set && !sent:
			return p.name + " is missing, but its argument is present"
		case !set:
			return p.name + " is present, but its argument is missing"
		}
		text, ok := ReadHeader(got[0])
		expected, _ := ReadHeader(want.value)
		if len(got) != 1 || !ok || text != expected {
			return p.name + " does not match its argument"
		}
	}
	return ""
}
