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

// mediaType returns the content type of a response without parameters.
func mediaType(h http.Header) string {
	t, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return t
}

const (
	encodedPrefix = "=?base64?"
	encodedSuffix = "?="
)

// headerValue encodes a text as a header value of revision 2026-07-28. Printable ASCII stays unchanged. Other text is
// encoded in base64.
func headerValue(s string) string {
	plain := isPrintable(s) && strings.TrimSpace(s) == s &&
		!(strings.HasPrefix(s, encodedPrefix) && strings.HasSuffix(s, encodedSuffix))
	if plain {
		return s
	}
	return encodedPrefix + base64.StdEncoding.EncodeToString([]byte(s)) + encodedSuffix
}

// paramHeader describes a tool argument that is also sent in a header.
type paramHeader struct {
	path []string // the path of member names that leads to the argument
	name string   // the name of the header
}

// paramHeaders reads the x-mcp-header annotations in a tool's input schema. A tool with invalid annotations must not
// be called.
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
					return fmt.Errorf("x-mcp-header %q is not allowed for a value of type %s", name, sample(kind))
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

// fromArguments returns the header for a call with these arguments. The second result is false if the argument is
// missing or cannot be sent in a header.
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
		// 1e2 and 100.0 are integers too. Do not send integers that a double cannot represent exactly.
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

// ReadHeader decodes a header value of revision 2026-07-28. The value is plain text or base64.
func ReadHeader(value string) (text string, ok bool) {
	value = strings.Trim(value, " \t")
	if !strings.HasPrefix(value, encodedPrefix) || !strings.HasSuffix(value, encodedSuffix) ||
		len(value) < len(encodedPrefix)+len(encodedSuffix) {
		return value, isPrintable(value)
	}
	b, err := base64.StdEncoding.Strict().DecodeString(value[len(encodedPrefix) : len(value)-len(encodedSuffix)])
	return string(b), err == nil
}

// HeaderMismatch checks whether the Mcp-Param headers of a call agree with the arguments, as the tool's input schema
// requires. The result describes the first difference, or is empty.
func HeaderMismatch(h http.Header, schema, arguments []byte) string {
	wanted, err := paramHeaders(schema)
	if err != nil {
		return "" // a tool with invalid annotations cannot be called
	}
	for _, p := range wanted {
		got, sent := h[http.CanonicalHeaderKey(p.name)]
		want, set := p.fromArguments(arguments)
		switch {
		case !set && !sent:
			continue
		case set && !sent:
			return "the header " + p.name + " is missing, but the argument " + strings.Join(p.path, ".") + " is present"
		case !set:
			return "the header " + p.name + " is present, but the argument " + strings.Join(p.path, ".") + " is missing"
		}
		text, ok := ReadHeader(got[0])
		expected, _ := ReadHeader(want.value)
		if len(got) != 1 || !ok || text != expected {
			return "the header " + p.name + " differs from the argument " + strings.Join(p.path, ".")
		}
	}
	return ""
}
