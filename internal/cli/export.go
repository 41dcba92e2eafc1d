package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/credential"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/host"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/supply/skill"
	"github.com/ambit-run/ambit/internal/supply/skill/recipe"
	"github.com/ambit-run/ambit/manifest"
)

// The forms of an export.
const (
	asRecipe  = "recipe"
	asMCPJSON = "mcp.json"
	asSkills  = "skills"
)

var exportForms = []string{asRecipe, asMCPJSON, asSkills}

func newExport(t *terminal) *cobra.Command {
	var as, output, dialect string
	var force bool
	cmd := &cobra.Command{
		Use:     "export PATH --as FORM",
		GroupID: groupWrite,
		Short:   "Write an agent as a recipe, an mcp.json or Agent Skills",
		Long: "Write an agent in another form: recipe, the text to paste into a chat (instructions, tools in words,\n" +
			"examples); mcp.json, the entry with which an MCP client starts ambit run; skills, a folder of Agent Skills.\n" +
			"Credentials are named, never written.",
		Example: "  ambit export agents/examples/mcp-tool --as recipe\n  ambit export agents/default.json --as mcp.json -o .mcp.json\n  ambit export agents/examples/skills-bundle --as skills -o .claude/skills",
		Args:    exactly(1, "one manifest"),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := t.load(args[0], dialect)
			if err != nil {
				return err
			}
			e, err := exported(cmd.Context(), m, as)
			if err != nil {
				return err
			}
			return t.export(e, output, force)
		},
	}
	cmd.Flags().StringVar(&as, "as", "", "the `form` to write: "+strings.Join(exportForms, ", "))
	dialectFlag(cmd, &dialect)
	outputFlags(cmd, &output, &force, "write to `file` instead of standard output; for skills a folder")
	complete(cmd, "as", exportForms)
	return cmd
}

// export is an agent in another form: one text, or files in a folder.
type export struct {
	as, name string
	text     string
	files    []recipe.File
	notes    []string
}

func exported(ctx context.Context, m *manifest.Manifest, as string) (*export, error) {
	a := m.Agent()
	e := &export{as: as, name: agent.Slug(a.Name)}
	switch as {
	case asMCPJSON:
		return e, e.entry(m)
	case asRecipe, asSkills:
	case "":
		return nil, usage("add --as with one of "+strings.Join(exportForms, ", "), "export needs the form to write")
	default:
		return nil, usage("use one of "+strings.Join(exportForms, ", "), "there is no form %q", as)
	}
	skills, err := skillsOf(ctx, m)
	if err != nil {
		return nil, err
	}
	if skills != nil {
		for _, w := range skills.Warnings {
			e.notes = append(e.notes, "warning: "+w.String())
		}
		if skills.Others > 0 {
			e.notes = append(e.notes, count(skills.Others, "other file")+" of the bundle left behind: only the skills' own text is written")
		}
	}
	if as == asRecipe {
		e.text = recipe.Text(a, skills)
		return e, nil
	}
	e.files = recipe.Skills(a, skills)
	return e, nil
}

// skillsOf reads the skills of an agent; nil if it has none to read.
func skillsOf(ctx context.Context, m *manifest.Manifest) (*skill.Bundle, error) {
	if s := m.Agent().Skills; s == nil || len(s.List) == 0 {
		return nil, nil
	}
	h, err := home.Find()
	if err != nil {
		return nil, err
	}
	b, err := host.ReadSkills(ctx, m, h, &credential.Source{Vault: credential.Open(h)})
	if invalid, ok := errors.AsType[*skill.Invalid](err); ok {
		return nil, no(invalid.Hint(), "%w", err)
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}

// entry returns the configuration with which an MCP client starts ambit run. The command of
// the manifest is never written.
func (e *export) entry(m *manifest.Manifest) error {
	if m.Path == stdinName {
		return usage("name the file", "a manifest from standard input has no path for a client to start")
	}
	if d := m.Agent().Delivery; d.Exec == "findagent-hosted" {
		hint := "install it where ambit serve runs, and connect to URL/mcp/NAME there"
		if d.URL != "" {
			hint = "it is hosted at " + d.URL + "; connect a client to that, with ambit login for its token"
		}
		return no(hint, "%s is hosted: no client can start it", m.Path)
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	path, err := filepath.Abs(m.Path)
	if err != nil {
		return err
	}
	entry := map[string]any{"command": program, "args": []string{"run", path}}
	// A client does not inherit the variables of this shell.
	if dir := os.Getenv("AMBIT_HOME"); dir != "" {
		if dir, err = filepath.Abs(dir); err != nil {
			return err
		}
		entry["env"] = map[string]string{"AMBIT_HOME": dir}
	}
	var text strings.Builder
	err = writeJSON(&text, map[string]any{"mcpServers": map[string]any{e.name: entry}})
	e.text = text.String()
	return err
}

// export writes an agent in its other form.
func (t *terminal) export(e *export, output string, force bool) error {
	toFile := output != "" && output != "-"
	if len(e.files) > 1 && !toFile && !t.json {
		return usage("add -o FOLDER", "there are %d skills, and each is a file of its own", len(e.files))
	}
	written := []string{}
	if toFile {
		files := e.files
		if files == nil {
			files = []recipe.File{{Text: e.text}}
		}
		for _, f := range files {
			file := filepath.Join(output, filepath.FromSlash(f.Path))
			if _, err := os.Lstat(file); err == nil && !force {
				return usage("choose another name, or overwrite it with --force", "%s already exists", file)
			}
			written = append(written, file)
		}
		for i, f := range files {
			if err := writeNew(written[i], []byte(f.Text), force); err != nil {
				return err
			}
		}
	}
	if t.json {
		doc := map[string]any{"as": e.as, "name": e.name, "written": written, "notes": append([]string{}, e.notes...)}
		if e.files != nil {
			doc["files"] = e.files
		} else {
			doc["text"] = e.text
		}
		return t.document(doc)
	}
	for _, file := range written {
		t.printf("%s\n", diag.Printable(file))
	}
	if !toFile {
		text := e.text
		if e.files != nil {
			text = e.files[0].Text
		}
		t.text(text)
	}
	for _, n := range e.notes {
		t.notef("%s", t.paint(dim, diag.Printable(n)))
	}
	return nil
}
