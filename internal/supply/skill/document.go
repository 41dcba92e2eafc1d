package skill

import (
	"fmt"
	"maps"
	"path"
	"regexp"
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
	// files lists the patterns of file names. If a pattern has a folder, the file is in that folder or below.
	files []string
	// needsMatter is true if the file must have front matter.
	needsMatter bool
	// fields contains the allowed fields of the front matter and the rules for their values. If fields is nil, the file
	// must not have front matter.
	fields map[string]rule
}

// rule describes the allowed values of a field.
type rule struct {
	shapes   []shape
	required bool
	// longest is the maximum number of characters. 0 means no limit.
	longest int
	// allowed lists the allowed values. If it is empty, any value is allowed.
	allowed []string
}

var (
	anyText  = rule{shapes: []shape{asText}}
	patterns = rule{shapes: []shape{asText, asList}}
	truth    = rule{shapes: []shape{asText}, allowed: []string{"true", "false"}}
)

// formats lists the supported formats. If several formats match a file, the first one is used.
var formats = []*format{
	{
		name: "an Agent Skill", needsMatter: true, files: []string{skillFile},
		fields: map[string]rule{
			"name":          {shapes: []shape{asText}, required: true, longest: 64},
			"description":   {shapes: []shape{asText}, required: true, longest: 1024},
			"license":       anyText,
			"compatibility": {shapes: []shape{asText}, longest: 500},
			"metadata":      {shapes: []shape{asTable}},
			"allowed-tools": patterns,
			"tags":          patterns,
		},
	},
	{
		name: "a Cursor rule", files: []string{"*.mdc", ".cursorrules"},
		fields: map[string]rule{"description": anyText, "globs": patterns, "alwaysApply": truth, "tags": patterns},
	},
	{
		name: "a Windsurf rule", files: []string{".windsurf/rules/*.md", ".windsurfrules"},
		fields: map[string]rule{
			"trigger":     {shapes: []shape{asText}, allowed: []string{"always_on", "manual", "model_decision", "glob"}},
			"description": anyText, "globs": patterns, "tags": patterns,
		},
	},
	{
		name: "a Continue rule", files: []string{".continue/rules/*.md"},
		fields: map[string]rule{
			"name": anyText, "description": anyText, "globs": patterns, "regex": patterns, "alwaysApply": truth,
			"tags": patterns,
		},
	},
	{
		name:   "a Copilot instruction",
		files:  []string{"copilot-instructions.md", ".github/instructions/*.instructions.md"},
		fields: map[string]rule{"description": anyText, "applyTo": patterns, "excludeAgent": anyText, "tags": patterns},
	},
	{
		name: "a Kiro steering file", files: []string{".kiro/steering/*.md"},
		fields: map[string]rule{
			"inclusion": anyText, "fileMatchPattern": patterns, "name": anyText, "description": anyText, "tags": patterns,
		},
	},
	{
		name: "an Augment rule", files: []string{".augment/rules/*.md", ".augment-guidelines"},
		fields: map[string]rule{"type": anyText, "description": anyText, "tags": patterns},
	},
	{
		name: "an OpenHands microagent", files: []string{".openhands/microagents/*.md"},
		fields: map[string]rule{
			"name": anyText, "type": anyText, "version": anyText, "agent": anyText, "triggers": patterns, "tags": patterns,
		},
	},
	{
		name: "a Trae rule", files: []string{".trae/rules/*.md"},
		fields: map[string]rule{"description": anyText, "globs": patterns, "alwaysApply": truth, "tags": patterns},
	},
	{
		// The rules of Cline, Roo Code, goose, Zed, Junie, Amazon Q, Kilo Code and Firebase Studio have no fields.
		name: "a rule of a client",
		files: []string{
			".clinerules", ".clinerules/*.md", ".roorules", ".roo/rules/*.md", ".goosehints", ".rules", ".junie/*.md",
			".amazonq/rules/*.md", ".kilocode/rules/*.md", ".idx/airules.md",
		},
	},
	{name: "an instruction file", files: instructionFiles},
}

const skillFile = "SKILL.md"

// instructionFiles lists the names of files in which projects instruct agents. A project can have such a file in every
// folder.
var instructionFiles = []string{
	"AGENTS.md", "AGENTS.override.md", "AGENT.md", "CLAUDE.md", "CLAUDE.local.md", "GEMINI.md", "QWEN.md", "WARP.md",
	"CRUSH.md", "CONVENTIONS.md",
}

// matches reports whether a file has the format.
func (f *format) matches(folder, name string) bool {
	return slices.ContainsFunc(f.files, func(pattern string) bool {
		within, file := path.Split(pattern)
		ok, _ := path.Match(file, name)
		return ok && strings.Contains("/"+folder+"/", "/"+within)
	})
}

// formatOf returns the format of a file, or nil if the file is not a skill.
func formatOf(file string) *format {
	folder, name := path.Split(file)
	for _, f := range formats {
		if f.matches(strings.TrimSuffix(folder, "/"), name) {
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
	// File is the path of the skill's file in the bundle. Format is the name of the file's format.
	File, Format string
	// Text is the content of the file without the front matter.
	Text string
	// Tools is the set of tools that the skill allows.
	Tools *Tools
}

// idOf derives the id of a skill from the path of its file. It returns "" for an Agent Skill at the top of the
// bundle, because only the front matter contains its name.
func idOf(file string) string {
	folder, name := path.Split(file)
	folder = strings.TrimSuffix(folder, "/")
	switch {
	case name == skillFile && folder == "":
		return ""
	case name == skillFile:
		name = path.Base(folder)
	case slices.Contains(instructionFiles, name):
		name = agent.Slug(folder + "-" + strings.TrimSuffix(name, path.Ext(name)))
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

var (
	isID = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`).MatchString
	// isName reports whether a string is a valid name for an Agent Skill.
	isName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`).MatchString
)

// parse parses one skill and calls add for each problem. In the §TOOLS section, it accepts tool URIs and the given tool
// names.
func parse(file, id string, raw []byte, tools []string, add func(Problem)) *Document {
	f := formatOf(file)
	d := &Document{ID: id, File: file, Format: f.name}
	note := func(line int, warning bool, hint, message string) {
		add(Problem{File: file, Line: line, Message: diag.Printable(message), Hint: hint, Warning: warning})
	}
	if !utf8.Valid(raw) {
		note(0, false, "save the file as UTF-8", "the file is not UTF-8 text")
		return d
	}
	all := strings.TrimPrefix(string(raw), "\ufeff")
	checkContent(all, note)
	matter := readFrontmatter(all, note)
	d.Text = strings.TrimSpace(matter.body)
	switch {
	case f.needsMatter && !matter.present:
		note(1, false, "start the file with front matter: the lines \"---\", \"name: …\", \"description: …\" and \"---\"",
			f.name+" needs front matter")
	case matter.present && f.fields == nil:
		note(1, true, "remove the front matter; otherwise the model sees it", f.name+" must not have front matter")
		d.Text = strings.TrimSpace(all)
	case !matter.broken:
		f.check(&matter, note)
	}
	if d.Text == "" {
		note(0, false, "write the skill's text, or remove the file", "the skill has no text")
	}
	if f.name == formats[0].name && matter.present {
		d.agentSkill(&matter, note)
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
		note(p.line, false, "on each line of §TOOLS, write a pinned tool URI or the name of one of the agent's tools; "+
			"to allow no tools, write \"none\"", p.Error())
	}
	return d
}

// checkContent reports secrets and invisible characters in the file.
func checkContent(all string, note report) {
	line := func(at int) int { return 1 + strings.Count(all[:at], "\n") }
	for _, found := range secretlike.All(all) {
		note(line(found.Start), false, "remove the secret from the file, revoke it, and create a new one",
			"the line contains something that looks like a secret: "+found.Kind)
	}
	if start, _, what := diag.HiddenRun(all); what != "" {
		note(line(start), true, "remove the invisible characters", "the text contains "+what)
	}
}

// check reports unknown, missing and invalid fields in the front matter of a file.
func (f *format) check(m *frontmatter, note report) {
	known := slices.Sorted(maps.Keys(f.fields))
	for i := range m.fields {
		v := &m.fields[i]
		r, ok := f.fields[v.key]
		if !ok {
			hint := diag.DidYouMean(v.key, known)
			if hint == "" {
				hint = "the fields are " + diag.Words(known, "and")
			}
			note(v.line, true, hint, f.name+" has no field "+diag.Quote(v.key))
			continue
		}
		v.check(r, note)
	}
	for _, key := range known {
		if v := m.field(key); m.present && f.fields[key].required && (v == nil || v.shape == asText && v.text == "") {
			line := 1
			if v != nil {
				line = v.line
			}
			note(line, false, "add the line \""+key+": …\"", f.name+" needs the field "+key)
		}
	}
}

func (v *field) check(r rule, note report) {
	// A key without a value is accepted as an empty string, list or mapping.
	if !slices.Contains(r.shapes, v.shape) && (v.shape != asText || v.text != "") {
		note(v.line, false, "", "the field "+v.key+" is "+v.shape.String()+", but must be "+r.shapes[0].String())
		return
	}
	if n := utf8.RuneCountInString(v.text); r.longest > 0 && n > r.longest {
		note(v.line, true, "shorten the value", fmt.Sprintf("%s has %d characters; the limit is %d", v.key, n, r.longest))
	}
	if len(r.allowed) > 0 && !slices.Contains(r.allowed, v.text) && v.text != "" {
		note(v.line, false, "write "+diag.Words(r.allowed, "or"), v.key+" cannot be "+diag.Quote(v.text))
	}
}

// longBody is the maximum number of lines that the Agent Skills format recommends.
const longBody = 500

// agentSkill checks the rules that apply only to Agent Skills.
func (d *Document) agentSkill(m *frontmatter, note report) {
	if n := 1 + strings.Count(d.Text, "\n"); n > longBody {
		note(0, true, "move details into separate files",
			fmt.Sprintf("the text has %d lines; the format recommends at most %d", n, longBody))
	}
	v := m.field("name")
	if v == nil || v.shape != asText || v.text == "" {
		return
	}
	name := v.text
	if !isName(name) {
		note(v.line, false, "use a name such as code-review",
			diag.Quote(name)+" is not a valid name: use lower-case letters and digits, separated by single hyphens")
		return
	}
	if folder := path.Dir(d.File); folder == "." {
		d.ID = name
	} else if path.Base(folder) != name {
		note(v.line, false, "rename the skill or the folder",
			"the skill is named "+diag.Quote(name)+", but its folder is named "+diag.Quote(path.Base(folder)))
	}
}

// tagsOf returns the tags in the fields tags and metadata.tags. A text is split at the commas.
func tagsOf(m *frontmatter) []string {
	var texts []string
	if v := m.field("tags"); v != nil {
		texts = append(texts, v.text)
		for _, e := range v.items {
			texts = append(texts, e.text)
		}
	}
	if v := m.field("metadata"); v != nil {
		for _, e := range v.items {
			if e.key == "tags" {
				texts = append(texts, e.text)
			}
		}
	}
	var tags []string
	for tag := range strings.SplitSeq(strings.Join(texts, ","), ",") {
		if tag = strings.TrimSpace(tag); tag != "" && !slices.Contains(tags, tag) {
			tags = append(tags, tag)
		}
	}
	return tags
}
