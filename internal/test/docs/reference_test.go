//go:build unix

package docs

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/cli"
	"github.com/ambit-run/ambit/internal/manifest/schema"
)

// TestReference compares the reference pages with the code. The flag -update writes the pages.
func TestReference(t *testing.T) {
	for name, text := range map[string]string{"verbs": verbs(), "codes": codes(t), "schemas": schemas(t)} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(root, "docs", "reference", name+".md")
			if *update {
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != text {
				t.Errorf("%s differs from the code: run go test ./internal/test/docs -run TestReference -update\n%s",
					file, firstDifference(string(got), text))
			}
		})
	}
}

func firstDifference(page, code string) string {
	a, b := strings.Split(page, "\n"), strings.Split(code, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("line %d: the page has %q, the code generates %q", i+1, a[i], b[i])
		}
	}
	return fmt.Sprintf("the page has %d lines, the code generates %d", len(a), len(b))
}

const made = "<!-- Made from the code: go test ./internal/test/docs -run TestReference -update -->\n\n"

// verbs returns the page of all verbs.
func verbs() string {
	var b strings.Builder
	r := cli.Verbs()
	b.WriteString(made + "# Verbs\n\n" + oneLine(r.Long) + "\n\n")
	b.WriteString("Exit codes of every verb: **0** yes · **1** no (invalid, refused, failed) · **2** wrong usage · **3** something\nrequired is missing on this machine · **130** interrupted, except for serve, run and worker, which run until they are\nstopped.\n\n")
	flagTable(&b, "Flags for every verb", r.PersistentFlags())
	for _, g := range r.Groups() {
		fmt.Fprintf(&b, "**%s:** ", g.Title)
		var names []string
		for _, c := range r.Commands() {
			if c.GroupID == g.ID && c.IsAvailableCommand() {
				names = append(names, fmt.Sprintf("[%s](#ambit-%s)", c.Name(), c.Name()))
			}
		}
		b.WriteString(strings.Join(names, " · ") + "\n\n")
	}
	for _, c := range r.Commands() {
		verb(&b, c)
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

func verb(b *strings.Builder, c *cobra.Command) {
	if !c.IsAvailableCommand() || c.Name() == "help" {
		return
	}
	level := strings.Repeat("#", 1+strings.Count(c.CommandPath(), " "))
	fmt.Fprintf(b, "%s %s\n\n%s.\n\n", level, c.CommandPath(), c.Short)
	if c.Parent().Name() == "completion" {
		return // the help text of this command is about shells, not about ambit
	}
	if c.Runnable() {
		fmt.Fprintf(b, "    %s\n\n", c.UseLine())
	}
	if c.Long != "" && c.Name() != "completion" {
		for _, par := range strings.Split(c.Long, "\n\n") {
			if strings.Contains(par, "\n ") { // a table
				b.WriteString(indent(par) + "\n\n")
				continue
			}
			b.WriteString(escape(oneLine(par)) + "\n\n")
		}
	}
	if c.Example != "" {
		b.WriteString("Examples:\n\n" + indent(strings.ReplaceAll("\n"+c.Example, "\n  ", "\n")[1:]) + "\n\n")
	}
	flagTable(b, "", c.LocalNonPersistentFlags())
	flagTable(b, "flag of all its verbs", c.PersistentFlags())
	for _, sub := range c.Commands() {
		verb(b, sub)
	}
}

func flagTable(b *strings.Builder, title string, set *pflag.FlagSet) {
	var rows []string
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		kind, text := pflag.UnquoteUsage(f)
		text = strings.TrimSuffix(text, " ("+kind+")") // the suffix only repeats the type of the value
		if kind != "" && kind != "bool" {
			name += " " + strings.ToUpper(kind)
		}
		switch {
		case f.Name == "concurrency": // the default value depends on the machine
			text += " (default: one for each CPU)"
		case f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" && f.DefValue != "0s" && f.DefValue != "0":
			text += " (default `" + f.DefValue + "`)"
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s |\n", name, escape(text)))
	})
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(b, "| %s | |\n|---|---|\n%s\n", cmp.Or(title, "flag"), strings.Join(rows, ""))
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func indent(s string) string { return "    " + strings.ReplaceAll(s, "\n", "\n    ") }

// escape escapes Markdown and HTML in a text, except between backticks.
func escape(s string) string {
	parts := strings.Split(s, "`")
	for i := range parts {
		if i%2 == 0 {
			parts[i] = strings.NewReplacer("<", "&lt;", "*", `\*`, "_", `\_`).Replace(parts[i])
		}
	}
	return strings.ReplaceAll(strings.Join(parts, "`"), "|", `\|`)
}

// codes returns the page of all codes, from the output of ambit explain.
func codes(t *testing.T) string {
	t.Helper()
	var out, errOut bytes.Buffer
	if code := cli.Run(t.Context(), []string{"explain", "--json"}, strings.NewReader(""), &out, &errOut); code != 0 {
		t.Fatalf("ambit explain: got exit code %d: %s", code, errOut.String())
	}
	var doc struct {
		Codes []struct{ Code, Kind, Severity, Title, Why, Fix string }
	}
	if err := json.Unmarshal(out.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString(made + "# Codes\n\nA code never changes its meaning and is never reused. `ambit explain CODE` prints the same text in a terminal.\n\n")
	for _, part := range []struct{ kind, title, about string }{
		{"diagnostic", "Diagnostics", "Problems of a manifest, a lock, a skill or a bundle. Codes that begin with MX are for Matrix, GP for GPARS, CV for Covenant, FA for FindAgent; the others are for all dialects."},
		{"refusal", "Refusals", "Reasons why a call was not made, or why its result was withheld."},
		{"policy", "Rules", "Problems that `ambit policy check` finds in the user's own rules."},
		{"data flow", "Data flow", "Reasons why an argument of a call is in doubt, as in the journal. See [data flow](../guides/data-flow.md)."},
		{"api", "The daemon's API", "Reasons why the daemon refused an HTTP request."},
	} {
		fmt.Fprintf(&b, "## %s\n\n%s\n\n", part.title, part.about)
		for _, c := range doc.Codes {
			if c.Kind != part.kind {
				continue
			}
			fmt.Fprintf(&b, "### %s\n\n", c.Code)
			if c.Severity != "" {
				fmt.Fprintf(&b, "*%s.* ", c.Severity)
			}
			fmt.Fprintf(&b, "**%s.** %s\n\n", escape(strings.TrimSuffix(c.Title, ".")), escape(oneLine(c.Why)))
			if c.Fix != "" {
				fmt.Fprintf(&b, "Fix: %s\n\n", escape(oneLine(c.Fix)))
			}
		}
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// schemas returns the page with every field of every dialect.
func schemas(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(made + "# Manifests, field by field\n\nFrom the JSON Schemas that `ambit schema DIALECT` prints for editors. `ambit validate` checks more rules than a\nschema can express.\n\n")
	for _, d := range []agent.Dialect{agent.Matrix, agent.GPARS, agent.Covenant, agent.FindAgent} {
		var s node
		if err := json.Unmarshal(schema.Of(d), &s); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "## %s\n\n%s\n\n| field | | |\n|---|---|---|\n", d, escape(oneLine(s.Description)))
		w := walker{b: &b, defs: s.Defs}
		w.fields("", &s, 0)
		b.WriteString("\n")
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// node is the part of a schema that the page shows.
type node struct {
	Ref                  string           `json:"$ref"`
	Defs                 map[string]*node `json:"$defs"`
	Description          string
	Type                 any
	Enum                 []any
	Const                any
	Pattern              string
	Properties           map[string]*node
	Required             []string
	Items                *node
	OneOf, AnyOf         []*node
	AdditionalProperties any
	Minimum, Maximum     *json.Number
	MinLength, MaxLength *int
	MinItems, MaxItems   *int
	Deprecated           bool
}

type walker struct {
	b    *strings.Builder
	defs map[string]*node
}

// follow resolves a schema's reference.
func (w *walker) follow(n *node) *node {
	for range 8 {
		name, ok := strings.CutPrefix(n.Ref, "#/$defs/")
		if !ok || w.defs[name] == nil {
			return n
		}
		to := *w.defs[name]
		to.Description = cmp.Or(n.Description, to.Description)
		n = &to
	}
	return n
}

func (w *walker) fields(path string, n *node, depth int) {
	n = w.follow(n)
	if depth > 6 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(n.Properties)) {
		p := w.follow(n.Properties[name])
		at := strings.TrimPrefix(path+"."+name, ".")
		must := ""
		if slices.Contains(n.Required, name) {
			must = "required "
		}
		fmt.Fprintf(w.b, "| `%s` | %s%s | %s |\n", at, must, escape(w.kind(p)), escape(oneLine(p.Description)))
		w.inside(at, p, depth)
	}
}

// inside adds the fields inside a field. These are the fields of an object, of the items of a list, or of one of
// several shapes.
func (w *walker) inside(at string, p *node, depth int) {
	w.fields(at, p, depth+1)
	if p.Items != nil {
		w.inside(at+"[]", w.follow(p.Items), depth)
	}
	if more, ok := p.AdditionalProperties.(map[string]any); ok {
		text, err := json.Marshal(more)
		var each node
		if err == nil && json.Unmarshal(text, &each) == nil {
			w.inside(at+".NAME", w.follow(&each), depth)
		}
	}
	for _, shape := range slices.Concat(p.OneOf, p.AnyOf) {
		if s := w.follow(shape); len(s.Properties) > 0 && len(p.Properties) == 0 {
			w.inside(at, s, depth)
		}
	}
}

func (w *walker) kind(n *node) string {
	var parts []string
	switch kind := n.Type.(type) {
	case string:
		parts = append(parts, kind)
	case []any:
		var names []string
		for _, k := range kind {
			names = append(names, fmt.Sprint(k))
		}
		parts = append(parts, strings.Join(names, " or "))
	}
	if n.Items != nil {
		if of := w.kind(w.follow(n.Items)); of != "" {
			parts = append(parts, "of "+of)
		}
	}
	if n.Const != nil {
		parts = append(parts, fmt.Sprintf("always `%v`", n.Const))
	}
	if len(n.Enum) > 0 {
		var values []string
		for _, v := range n.Enum {
			values = append(values, fmt.Sprintf("`%v`", v))
		}
		parts = append(parts, strings.Join(values, " "))
	}
	if n.Pattern != "" && len(n.Pattern) <= 60 {
		parts = append(parts, "like `"+n.Pattern+"`")
	}
	if n.MaxLength != nil {
		parts = append(parts, fmt.Sprintf("at most %d characters", *n.MaxLength))
	}
	if n.Minimum != nil {
		parts = append(parts, "from "+n.Minimum.String())
	}
	if n.Maximum != nil {
		parts = append(parts, "to "+n.Maximum.String())
	}
	if n.Deprecated {
		parts = append(parts, "deprecated")
	}
	return strings.Join(parts, ", ")
}

var fence = regexp.MustCompile("(?s)```.*?```")

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// TestLinks checks that every link from a page to a file of the repository leads to an existing file.
func TestLinks(t *testing.T) {
	for _, page := range append(pages(t), "ARCHITECTURE.md") {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range link.FindAllStringSubmatch(fence.ReplaceAllString(string(text), ""), -1) {
			target, _, _ := strings.Cut(l[1], "#")
			if target == "" || strings.Contains(target, "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(page), target)); err != nil {
				t.Errorf("%s links to %s, which does not exist", page, l[1])
			}
		}
	}
}
