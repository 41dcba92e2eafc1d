package cli

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// The list of a tool's arguments begins with the required arguments, and its length is limited.
func TestArgumentList(t *testing.T) {
	var many []string
	for i := range 20 {
		many = append(many, fmt.Sprintf(`"a%02d": {"type": "string"}`, i))
	}
	for _, tt := range []struct{ name, schema, want string }{
		{"required first", `{"properties": {"limit": {"type": "integer"}, "range": {"type": "string"}}, "required": ["range"]}`, "range (string, required) and limit (integer)"},
		{"no type, or several", `{"properties": {"a": {}, "b": {"type": ["string", "null"]}, "c": {"type": "boolean"}}}`, "a, b and c (boolean)"},
		{"many", `{"properties": {` + strings.Join(many, ",") + `}}`, "a00 (string), a01 (string), a02 (string), a03 (string), a04 (string), a05 (string), a06 (string), a07 (string) and 12 more"},
		{"none", `{"type": "object"}`, "the arguments in its schema"},
		{"no object", `true`, "the arguments in its schema"},
	} {
		if got := argumentList(tt.schema); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
	if long := argumentList(`{"properties": {"` + strings.Repeat("x", 1000) + `": {}}}`); utf8.RuneCountInString(long) > 400 {
		t.Errorf("the list with a long name has %d characters, want at most 400", utf8.RuneCountInString(long))
	}
}
