package pack

import (
	"strings"
	"testing"
)

func TestAddTools(t *testing.T) {
	tools := []NewTool{{Name: "list", Class: "read"}, {Name: "run", Class: "shell", Review: true}}
	const indented = `{
  "servers": [
    {
      "alias": "other",
      "tools": []
    },
    {
      "alias": "s",
      "tools": TOOLS
    }
  ]
}
`
	const added = `[
        {"name": "list", "side_effect_class": "read"},
        {"name": "run", "side_effect_class": "shell"}
      ],
      "x-ambit": {"review": ["run"]}`
	for name, tt := range map[string][2]string{
		"empty":       {strings.Replace(indented, "TOOLS", "[]", 1), strings.Replace(indented, "TOOLS", added, 1)},
		"placeholder": {strings.Replace(indented, "TOOLS", `[{"name": "unknown"}]`, 1), strings.Replace(indented, "TOOLS", added, 1)},
		"partial": {
			strings.Replace(indented, "TOOLS", "[\n        { \"name\": \"a\" }\n      ],\n      \"x-ambit\": { \"review\": [\"a\"] }", 1),
			strings.Replace(indented, "TOOLS", "[\n        { \"name\": \"a\" },\n        {\"name\": \"list\", \"side_effect_class\": \"read\"},"+
				"\n        {\"name\": \"run\", \"side_effect_class\": \"shell\"}\n      ],\n      \"x-ambit\": { \"review\": [\"a\", \"run\"] }", 1),
		},
		"one line": {
			`{"servers": [{"alias": "s", "tools": [], "version": "1"}]}`,
			`{"servers": [{"alias": "s", "tools": [{"name": "list", "side_effect_class": "read"}, {"name": "run", "side_effect_class": "shell"}],` +
				` "version": "1", "x-ambit": {"review": ["run"]}}]}`,
		},
	} {
		got, err := AddTools([]byte(tt[0]), "s", tools, "unknown")
		if err != nil || string(got) != tt[1] {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, got, tt[1])
		}
	}
	for _, bad := range []string{`{`, `[]`, `{"servers": [{"alias": "s"}]}`, `{"servers": [{"alias": "t"}]}`, `{"servers": [{"alias": "s", "tools": {}}]}`} {
		if _, err := AddTools([]byte(bad), "s", tools, ""); CodeOf(err) != ManifestUnfit {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestAllowEffects(t *testing.T) {
	got, err := AllowEffects([]byte(`{"allowed_side_effects": ["read"], "x": 1}`), []string{"read", "write"})
	if want := `{"allowed_side_effects": ["read", "write"], "x": 1}`; err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
}
