package pack

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// LockTool returns the canonical form (RFC 8785) of a tool's definition, and its sha256. The hash covers the whole
// definition: name, description, schemas, annotations and any other field. The hash does not depend on white space,
// the order of keys, or the spelling of strings and numbers. LockTool rejects a definition with a duplicate key or
// invalid UTF-8, because two parsers could interpret it as two different tools.
func LockTool(raw []byte) (LockedTool, error) {
	form, err := canonical(raw)
	if err == nil && form[0] != '{' {
		err = errors.New("the definition is not a JSON object")
	}
	if err != nil {
		return LockedTool{}, fail(BadDefinition, "", "a tool's definition cannot be hashed",
			"report this to the server's authors, because clients could interpret the definition differently", err)
	}
	return LockedTool{Hash: digestOf(form), Definition: form}, nil
}

// Change is one difference between two definitions.
type Change struct {
	// Field is the path of the difference, such as description or inputSchema.properties.path.type.
	Field string `json:"field"`
	// Old and New are the values as JSON. An empty string means that there is no value. The values come from a
	// server, so escape them before printing.
	Old string `json:"old,omitempty"`
	New string `json:"new,omitempty"`
}

// DiffTool lists the differences between two definitions of a tool, sorted by field. If a definition cannot be
// parsed, DiffTool compares the two texts. If the texts differ, the result is a single Change with both texts.
func DiffTool(before, after []byte) []Change {
	var a, b any
	if decode(before, &a) != nil || decode(after, &b) != nil {
		if bytes.Equal(before, after) {
			return nil
		}
		return []Change{{Old: string(before), New: string(after)}}
	}
	return diff("", a, b, true, true)
}

func decode(text []byte, v *any) error {
	form, err := canonical(text)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(form))
	dec.UseNumber()
	return dec.Decode(v)
}

// diff lists the differences between the values a and b. The parameters hasA and hasB report whether the values exist.
func diff(field string, a, b any, hasA, hasB bool) []Change {
	before, after := jsonText(a, hasA), jsonText(b, hasB)
	if before == after {
		return nil
	}
	x, okX := a.(map[string]any)
	y, okY := b.(map[string]any)
	if !okX || !okY {
		return []Change{{Field: field, Old: before, New: after}}
	}
	var changes []Change
	for _, k := range bothKeys(x, y) {
		va, inA := x[k]
		vb, inB := y[k]
		changes = append(changes, diff(join(field, k), va, vb, inA, inB)...)
	}
	return changes
}

// join appends key to the path in field. It quotes a key that is empty or contains a dot, a quote, a backslash or a
// space.
func join(field, key string) string {
	if key == "" || strings.ContainsAny(key, ".\"\\ ") {
		key = jsonText(key, true)
	}
	if field == "" {
		return key
	}
	return field + "." + key
}

// jsonText returns v as JSON with sorted keys. It returns "" if v does not exist.
func jsonText(v any, exists bool) string {
	if !exists {
		return ""
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSuffix(b.String(), "\n")
}
