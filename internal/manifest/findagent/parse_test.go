package findagent

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/manifest/schema"
)

// load parses a manifest as manifest.Parse does.
func load(text string) (*Manifest, *diag.Source, []diag.Diagnostic) {
	src := diag.NewSource("findagent.json", text)
	r := diag.NewReporter(src, false)
	tree, _ := doc.ParseJSON(src, r)
	m := Parse(tree.Root(), r)
	return m, src, r.Finish()
}

const prompt = "You are a careful assistant who reads reports and answers questions about them."

// with returns a valid manifest with additional members, which start at line 2.
func with(members string) string {
	return `{"name":"Test agent","system_prompt":"` + prompt + `","example_prompts":["Try it."],` + "\n" + members + "}"
}

// The function tool returns an mcp-tool agent with one tool. Line 2 contains the given members of the tool.
// Line 3 contains the slots.
func tool(members string, slots ...string) string {
	if len(slots) == 0 {
		slots = []string{`{"ref":"key","label":"Key","allowed_hosts":["example.com"]}`}
	}
	return with(`"tools":[{"name":"t","description":"d",` + members + `}],"kind":"mcp-tool",` + "\n" +
		`"credential_slots":[` + strings.Join(slots, ",") + `]`)
}

// httpTool is like the function tool. It adds an input "q" and an http action with the given
// members.
func httpTool(members string, slots ...string) string {
	return tool(`"input_schema":{"type":"object","properties":{"q":{}}},"action":{"type":"http","auth_ref":"key",`+members+`}`, slots...)
}

func shown(found []diag.Diagnostic) string {
	var parts []string
	for _, d := range found {
		parts = append(parts, fmt.Sprintf("%d:%d %s", d.Line, d.Column, d.Code))
	}
	return strings.Join(parts, ", ")
}

// ruleCase is a manifest with the problems that must be reported. Each ‹ in the field text marks the location of a
// problem. The field want lists the codes in the order of the marks. A code with the prefix "top/" has no mark,
// because the problem is reported at 1:1. The messages, hints and frames together must contain the text in the field
// says.
type ruleCase struct{ name, text, want, says string }

const mark = "‹"

// unmark removes the marks from a text. It puts the location of each mark before the code of the
// problem.
func unmark(text, want string) (clean, places string) {
	var at []string
	line, column := 1, 1
	for i, r := range text {
		switch {
		case strings.HasPrefix(text[i:], mark):
			at = append(at, fmt.Sprintf("%d:%d ", line, column))
		case r == '\n':
			line, column = line+1, 1
		default:
			column++
		}
	}
	var parts []string
	for _, code := range strings.Fields(want) {
		if top, ok := strings.CutPrefix(code, "top/"); ok {
			code = "1:1 " + top
		} else if len(at) > 0 {
			code, at = at[0]+code, at[1:]
		}
		parts = append(parts, code)
	}
	parts = append(parts, at...)
	return strings.ReplaceAll(text, mark, ""), strings.Join(parts, ", ")
}

func testRules(t *testing.T, cases []ruleCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			text, want := unmark(c.text, c.want)
			_, src, found := load(text)
			if got := shown(found); got != want {
				t.Errorf("%s\ngot  %s\nwant %s", text, got, want)
				for _, d := range found {
					t.Logf("%s %s; %s", d.Code, d.Message, d.Hint)
				}
			}
			said := ""
			for _, d := range found {
				said += d.Message + "; " + d.Hint + "\n" + src.Frame(d).Text + "\n"
			}
			if !strings.Contains(said, c.says) {
				t.Errorf("%s\ngot messages %q\nwant %q", text, said, c.says)
			}
			if strings.Contains(said, "hunter2") {
				t.Errorf("the messages contain a secret: %q", said)
			}
			if err := validateSchema(t, text); err != nil && len(errorsOf(found)) == 0 {
				t.Errorf("%s\nthe rules accept the manifest, but the schema rejects it: %v", text, err)
			}
		})
	}
}

var compiledSchema = sync.OnceValues(func() (*jsonschema.Schema, error) {
	raw, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema.Of(agent.FindAgent)))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("findagent.json", raw); err != nil {
		return nil, err
	}
	return c.Compile("findagent.json")
})

// validateSchema validates a manifest with the JSON Schema of the dialect.
func validateSchema(t *testing.T, text string) error {
	t.Helper()
	s, err := compiledSchema()
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(v)
}

func TestSeedExample(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "seed.json"))
	if err != nil {
		t.Fatal(err)
	}
	_, _, found := load(string(text))
	if got, want := shown(found), "4:20 FA003"; got != want {
		t.Errorf("got %s, want only %s for the shortened prompt", got, want)
	}
	if len(found) > 0 && !strings.Contains(found[0].Message, "has 41 characters, but it must have at least 50") {
		t.Errorf("unexpected message %q", found[0].Message)
	}
	longer := strings.Replace(string(text), "assistant ...", "assistant who answers with numbers.", 1)
	if _, _, found := load(longer); len(found) > 0 {
		t.Errorf("the example has problems even with a longer prompt: %+v", found)
	}
}
