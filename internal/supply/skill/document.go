package skill

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/secretlike"
)

// format is a kind of skill file.
type format struct {
	name string
	// is reports whether a path has this format.
	is func(folder, name string) bool
	// needs means that front matter is required.
	needs bool
	// fields are the allowed fields of the front matter.
	fields map[string]rule
}

// rule describes the allowed values of a field.
type rule struct {
	shapes   []shape
	required bool
	// longest is the limit in characters; 0 means none.
	longest int
	// words are the allowed values, if there are any.
	words []string
}

var (
	anyText  = rule{shapes: []shape{asText}}
	patterns = rule{shapes: []shape{asText, asList}}
	truth    = rule{shapes: []shape{asText}, words: []string{"true", "false"}}
)

// formats are the supported formats. The first match counts.
var formats = []*format{
	{
		name: "an Agent Skill", needs: true,
		is: func(_, name string) bool { return name == skillFile },
		fields: map[string]rule{
			"name":          {shapes: []shape{asText}, required: true, longest: 64},
			"description":   {shapes: []shape{asText}, required: true, longest: 1024},
			"license":       anyText,
			"compatibility": {shapes: []shape{asText}, longest: 500},
			"metadata":      {shapes: []shape{asTable}},
			"allowed-tools": {shapes: []shape{asText, asList}},
		},
	},
	{
		name:   "a Cursor rule",
		is:     func(_, name string) bool { return strings.HasSuffix(name, ".mdc") || name == ".cursorrules" },
		fields: map[string]rule{"description": anyText, "globs": patterns, "alwaysApply": truth},
	},
	{
		name: "a Windsurf rule",
		is: func(folder, name string) bool {
			return under(folder, ".windsurf/rules") && strings.HasSuffix(name, ".md") || name == ".windsurfrules"
		},
		fields: map[string]rule{
			"trigger":     {shapes: []shape{asText}, words: []string{"always_on", "manual", "model_decision", "glob"}},
			"description": anyText, "globs": patterns,
		},
	},
	{
		name: "a Continue rule",
		is: func(folder, name string) bool {
			return under(folder, ".continue/rules") && strings.HasSuffix(name, ".md")
		},
		fields: map[string]rule{"name": anyText, "description": anyText, "globs": patterns, "regex": patterns, "alwaysApply": truth},
	},
	{
		name: "an AGENTS.md",
		is:   func(_, name string) bool { return name == agentsFile },
	},
}

const (
	skillFile  = "SKILL.md"
	agentsFile = "AGENTS.md"
)

// under reports whether folder is in a folder whose path ends in rules.
func under(folder, rules string) bool {
	return strings.Contains("/"+folder+"/", "/"+rules+"/")
}

// formatOf is the format of a file, nil if it is not a skill.
func formatOf(file string) *format {
	folder, name := path.Split(file)
	for _, f := range formats {
		if f.is(strings.TrimSuffix(folder, "/"), name) {
			return f
		}
	}
	return nil
}

// Document is one skill.
type Document struct {
	ID          string
	Name        string
	Description string
	Tags        []string
	// File is its path in the bundle, Format its format.
	File, Format string
	// Text is the file without its front matter.
	Text string
	// Tools are the tools that it allows.
	Tools *Tools
}

// idOf derives the id of a file from its path; empty for an Agent Skill at the top,
// which has only its name.
func idOf(file string) string {
	folder, name := path.Split(file)
	folder = strings.TrimSuffix(folder, "/")
	switch {
	case name == skillFile && folder == "":
		return ""
	case name == skillFile:
		name = path.Base(folder)
	case name == agentsFile:
		name = agent.Slug(folder + "-agents")
	default:
		if base := strings.TrimSuffix(name, path.Ext(name)); base != "" {
			name = base
		}
		name = strings.TrimPrefix(name, ".")
	}
	if name = strings.ToLower(name); isID(name) {
		return name
	}
	return agent.Slug(name)
}

func isID(s string) bool {
	for i, c := range []byte(s) {
		if !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || i > 0 && (c == '_' || c == '-')) {
			return false
		}
	}
	return s != "" && len(s) <= 64
}

// parse parses one skill and reports its problems.
func parse(file string, raw []byte, tools []string, tell func(Problem)) *Document {
	f := formatOf(file)
	d := &Document{ID: idOf(file), File: file, Format: f.name}
	say := func(line int, warning bool, hint, message string) {
		tell(Problem{File: file, Line: line, Message: diag.Printable(message), Hint: hint, Warning: warning})
	}
	if !utf8.Valid(raw) {
		say(0, false, "save the file as UTF-8", "it is not UTF-8 text")
		return d
	}
	all := strings.TrimPrefix(string(raw), "\ufeff")
	hygiene(all, say)
	matter := readFrontmatter(all, say)
	d.Text = strings.TrimSpace(matter.body)
	switch {
	case f.needs && !matter.present:
		say(1, false, "start it with ---, name, description and ---", f.name+" needs front matter")
	case matter.present && f.fields == nil:
		say(1, true, "remove it: the model would see it as text", f.name+" has no front matter")
		d.Text = strings.TrimSpace(all)
	case !matter.broken:
		f.check(&matter, say)
	}
	if d.Text == "" {
		say(0, false, "write the skill's text, or remove the file", "the skill has no text")
	}
	if f.name == formats[0].name && matter.present {
		d.agentSkill(&matter, say)
	}
	if v := matter.field("name"); v != nil {
		d.Name = v.text
	}
	if v := matter.field("description"); v != nil {
		d.Description = v.text
	}
	d.Tags = tagsOf(&matter)
	var problems []lineError
	d.Tools, problems = parseTools(all, tools)
	d.Tools.name = d.ID
	for _, p := range problems {
		say(p.line, false, "list pinned tool URIs or names of the agent's tools, one per line, or the word none", p.Error())
	}
	return d
}

// hygiene reports secrets and invisible characters.
func hygiene(all string, say report) {
	line := func(at int) int { return 1 + strings.Count(all[:at], "\n") }
	for _, found := range secretlike.All(all) {
		say(line(found.Start), false, "remove the secret, and rotate it", "this looks like a secret: "+found.Kind)
	}
	if start, _, what := diag.HiddenRun(all); what != "" {
		say(line(start), true, "remove the invisible characters", "the text contains "+what)
	}
}

// check compares front matter with the fields of a format.
func (f *format) check(m *frontmatter, say report) {
	known := make([]string, 0, len(f.fields))
	for key := range f.fields {
		known = append(known, key)
	}
	slices.Sort(known)
	for i := range m.fields {
		v := &m.fields[i]
		r, ok := f.fields[v.key]
		if !ok {
			hint := diag.DidYouMean(v.key, known)
			if hint == "" {
				hint = "the fields are " + diag.Words(known, "and")
			}
			say(v.line, true, hint, f.name+" has no field "+diag.Quote(v.key))
			continue
		}
		v.check(r, say)
	}
	for _, key := range known {
		if v := m.field(key); m.present && f.fields[key].required && (v == nil || v.shape == asText && v.text == "") {
			line := 1
			if v != nil {
				line = v.line
			}
			say(line, false, "add "+key+": …", f.name+" needs a "+key)
		}
	}
}

func (v *field) check(r rule, say report) {
	// A key without a value is a text, an empty list or an empty table.
	if !slices.Contains(r.shapes, v.shape) && (v.shape != asText || v.text != "") {
		say(v.line, false, "", v.key+" is "+v.shape.String()+", but must be "+r.shapes[0].String())
		return
	}
	if n := utf8.RuneCountInString(v.text); r.longest > 0 && n > r.longest {
		say(v.line, false, "shorten it", fmt.Sprintf("%s has %d characters; the limit is %d", v.key, n, r.longest))
	}
	if len(r.words) > 0 && !slices.Contains(r.words, v.text) && v.text != "" {
		say(v.line, false, "write "+diag.Words(r.words, "or"), v.key+" cannot be "+diag.Quote(v.text))
	}
}

// longBody is the most lines that the format advises.
const longBody = 500

// agentSkill checks the rules that only Agent Skills have.
func (d *Document) agentSkill(m *frontmatter, say report) {
	if n := 1 + strings.Count(d.Text, "\n"); n > longBody {
		say(0, true, "move details into files of their own", fmt.Sprintf("the text has %d lines; the format advises at most %d", n, longBody))
	}
	v := m.field("name")
	if v == nil || v.shape != asText || v.text == "" {
		return
	}
	name := v.text
	if strings.IndexFunc(name, func(r rune) bool { return !('a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '-') }) >= 0 ||
		name[0] == '-' || name[len(name)-1] == '-' || strings.Contains(name, "--") {
		say(v.line, false, "use a name such as code-review", "a skill's name consists of lower-case letters, digits and single hyphens between them; not "+diag.Quote(name))
		return
	}
	if folder := path.Dir(d.File); folder == "." {
		d.ID = name
	} else if path.Base(folder) != name {
		say(v.line, false, "rename one of them", "the skill is named "+diag.Quote(name)+", but its folder is named "+diag.Quote(path.Base(folder)))
	}
}

// tagsOf returns the tags in metadata.tags, separated by commas.
func tagsOf(m *frontmatter) []string {
	v := m.field("metadata")
	if v == nil {
		return nil
	}
	var tags []string
	for _, e := range v.items {
		if e.key != "tags" {
			continue
		}
		for tag := range strings.SplitSeq(e.text, ",") {
			if tag = strings.TrimSpace(tag); tag != "" {
				tags = append(tags, tag)
			}
		}
	}
	return tags
}
