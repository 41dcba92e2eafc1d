package pack

import (
	"errors"
	"fmt"
	"testing"
)

func TestLockTool(t *testing.T) {
	base := `{"name":"t","description":"é","inputSchema":{"type":"object","maximum":1000}}`
	want, err := LockTool([]byte(base))
	check(t, err)
	if string(want.Definition) != `{"description":"é","inputSchema":{"maximum":1000,"type":"object"},"name":"t"}` {
		t.Errorf("the canonical form is %s, want sorted keys and no white space", want.Definition)
	}
	// The expected hash is the output of: printf '%s' '{"name":"t"}' | sha256sum
	if got, _ := LockTool([]byte(` { "name" : "t" } `)); got.Hash != "sha256:3647a67649228b62fe3d139c47f7a3c673c31ce57da824082b6654fc0b15751f" {
		t.Errorf("the hash of {\"name\":\"t\"} is %s", got.Hash)
	}
	for name, c := range map[string]struct {
		text string
		same bool
	}{
		"another spelling": {`{ "description":"\u00e9", "name":"t", "inputSchema":{"maximum":1e3,"type":"object"} }`, true},
		"a description":    {`{"name":"t","description":"e","inputSchema":{"type":"object","maximum":1000}}`, false},
		"a schema":         {`{"name":"t","description":"é","inputSchema":{"type":"object","maximum":1001}}`, false},
		"an unknown field": {`{"name":"t","description":"é","inputSchema":{"type":"object","maximum":1000},"x":1}`, false},
	} {
		if got, err := LockTool([]byte(c.text)); err != nil || (got.Hash == want.Hash) != c.same {
			t.Errorf("%s: got the hash %s, %v; want the original hash %s: %v", name, got.Hash, err, want.Hash, c.same)
		}
	}
	for _, bad := range []string{"", "[]", `"t"`, `{"a":1,"a":2}`, `{"a":"\ud800"}`, "{\"a\":\"\xff\"}", `{"a":1} {}`} {
		if _, err := LockTool([]byte(bad)); !errors.Is(err, BadDefinition) {
			t.Errorf("%q: got %v, want %s", bad, err, BadDefinition)
		}
	}
}

func TestDiffTool(t *testing.T) {
	for _, c := range []struct{ name, a, b, want string }{
		{"no difference", `{"name":"t"}`, `{ "name": "t" }`, "[]"},
		{"a description", `{"description":"a"}`, `{"description":"b <&>"}`, `[{description "a" "b <&>"}]`},
		{"an added field", `{}`, `{"annotations":{"x":null}}`, `[{annotations  {"x":null}}]`},
		{"a removed field", `{"a":1,"b":2}`, `{"b":2}`, `[{a 1 }]`},
		{"a nested field of a schema", `{"inputSchema":{"properties":{"p":{"type":"string"}}}}`, `{"inputSchema":{"properties":{"p":{"type":"number"}},"required":["p"]}}`, `[{inputSchema.properties.p.type "string" "number"} {inputSchema.required  ["p"]}]`},
		{"a list", `{"enum":["a","b"]}`, `{"enum":["b","a"]}`, `[{enum ["a","b"] ["b","a"]}]`},
		{"a name with a dot", `{"a":{"b.c":1}}`, `{"a":{"b.c":2}}`, `[{a."b.c" 1 2}]`},
		{"another type", `{"a":{"b":1}}`, `{"a":[1]}`, `[{a {"b":1} [1]}]`},
		{"null and absent", `{"a":null}`, `{}`, `[{a null }]`},
		{"invalid JSON", `{`, `{}`, `[{ { {}}]`},
	} {
		if got := fmt.Sprint(DiffTool([]byte(c.a), []byte(c.b))); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}
