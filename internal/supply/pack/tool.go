package pack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// HashTool returns the hash of a tool's whole definition: name, description, schemas,
// annotations and any other field. The hash is the sha256 of the definition's RFC 8785
// form, which is returned too, so only the spelling is free to vary.
//
// A definition with a duplicate key or invalid UTF-8 is refused, because two parsers
// could read two different tools.
func HashTool(raw []byte) (hash string, form []byte, err error) {
	form, err = canonical(raw)
	if err == nil && (len(form) == 0 || form[0] != '{') {
		err = fmt.Errorf("it is not an object")
	}
	if err != nil {
		return "", nil, &Error{
			Code: BadDefinition, Detail: "a tool's definition cannot be hashed", Err: err,
			Hint: "report it to the server's authors: clients would read the definition differently",
		}
	}
	return digestOf(form), form, nil
}

// LockTool returns the lock's entry for a tool definition.
func LockTool(raw []byte) (LockedTool, error) {
	hash, form, err := HashTool(raw)
	return LockedTool{Hash: hash, Definition: form}, err
}

// Change is one difference between two definitions.
type Change struct {
	// Field is the path of the difference, such as description or
	// inputSchema.properties.path.type.
	Field string `json:"field"`
	// Old and New are the values as JSON, empty if there is none. A server wrote them:
	// escape them before printing.
	Old string `json:"old,omitempty"`
	New string `json:"new,omitempty"`
}

// DiffTool lists the differences between two definitions of a tool, sorted by field. A
// definition that cannot be parsed counts as one value.
func DiffTool(before, after []byte) []Change {
	var a, b any
	if decode(before, &a) != nil || decode(after, &b) != nil {
		if bytes.Equal(before, after) {
			return nil
		}
		return []Change{{Old: string(before), New: string(after)}}
	}
	var d differ
	d.value("", a, b, true, true)
	return d.changes
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

type differ struct{ changes []Change }

// value compares two values, each of which may be missing.
func (d *differ) value(field string, a, b any, hasA, hasB bool) {
	oldText, newText := text(a, hasA), text(b, hasB)
	if oldText == newText {
		return
	}
	x, okX := a.(map[string]any)
	y, okY := b.(map[string]any)
	if okX && okY {
		keys := slices.Concat(slices.Collect(maps.Keys(x)), slices.Collect(maps.Keys(y)))
		for _, k := range sorted(keys) {
			va, inA := x[k]
			vb, inB := y[k]
			d.value(join(field, k), va, vb, inA, inB)
		}
		return
	}
	d.changes = append(d.changes, Change{Field: field, Old: oldText, New: newText})
}

// join returns the path of a nested field. A name that contains a separator is quoted.
func join(field, key string) string {
	if key == "" || strings.ContainsAny(key, ".\"\\ ") {
		key = text(key, true)
	}
	if field == "" {
		return key
	}
	return field + "." + key
}

// text returns a value as JSON with sorted keys.
func text(v any, there bool) string {
	if !there {
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
