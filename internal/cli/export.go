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

// Values of --as.
const (
	asRecipe  = "recipe"
	asMCPJSON = "mcp.json"
	asSkills  = "skills"
)

var exportForms = []string{asRecipe, asMCPJSON, asSkills}

func newExport(t *terminal) *cobra.Command {
	var as, output, dialect string
	var force bool
	cmd := verb("export PATH --as FORMAT", exactly(1, "one manifest"), func(ctx context.Context, args []string) error {
		m, err := t.load(args[0], dialect)
		if err != nil {
			return err
		}
		e, err := exported(ctx, m, as)
		if err != nil {
			return err
		}
		return t.export(e, output, force)
	})
	cmd.Flags().StringVar(&as, "as", "", "the `format` to write: "+strings.Join(exportForms, ", "))
	dialectFlag(cmd, &dialect)
	outputFlags(cmd, &output, &force, "write to `file` instead of standard output; with --as skills, write to a folder")
	complete(cmd, "as", exportForms)
	return cmd
}

// export contains an agent in an export format, either as text or as files.
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
		return e, e.setClientConfig(m)
	case asRecipe, asSkills:
	case "":
		return nil, usage("add --as with one of "+strings.Join(exportForms, ", "), "ambit export needs --as")
	default:
		return nil, usage("use one of "+strings.Join(exportForms, ", "), "unknown format %q", as)
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
			e.notes = append(e.notes,
				"left out "+count(skills.Others, "other file")+" of the bundle: only the skills' text is exported")
		}
	}
	if as == asRecipe {
		e.text = recipe.Text(a, skills)
		return e, nil
	}
	e.files = recipe.Skills(a, skills)
	return e, nil
}

// skillsOf reads the skills of an agent. It returns nil if the agent has no skills.
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
	return b, err
}

// setClientConfig writes a configuration for MCP clients to e.text. With this configuration, a client starts "ambit
// run" with the manifest. The configuration never contains the command that the manifest declares.
func (e *export) setClientConfig(m *manifest.Manifest) error {
	if m.Path == stdinName {
		return usage("give the path of a file", "a client cannot start a manifest that comes from standard input")
	}
	if a := m.Agent(); a.Delivery.Exec == agent.HostedExec && !a.Hosted() {
		return no("install the agent on a machine with a daemon (ambit serve), and connect clients to DAEMON_URL/mcp/NAME",
			"%s is a hosted agent, which a client cannot start", m.Path)
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
	// A client does not inherit the environment of this shell.
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

// export writes an exported agent to a file or folder. If the output path is empty or "-", export prints the text.
func (t *terminal) export(e *export, output string, force bool) error {
	toFile := output != "" && output != "-"
	if len(e.files) > 1 && !toFile && !t.json {
		return usage("add -o FOLDER", "there are %d skills, and each needs its own file", len(e.files))
	}
	written := []string{}
	doc := map[string]any{"as": e.as, "name": e.name, "notes": notNil(e.notes)}
	files := e.files
	if files != nil {
		doc["files"] = files
	} else {
		doc["text"] = e.text
		files = []recipe.File{{Text: e.text}}
	}
	if toFile {
		for _, f := range files {
			file := filepath.Join(output, filepath.FromSlash(f.Path))
			if _, err := os.Lstat(file); err == nil && !force {
				return usage("choose another name, or overwrite the file with --force", "%s already exists", file)
			}
			written = append(written, file)
		}
		for i, f := range files {
			if err := writeNew(written[i], []byte(f.Text), force); err != nil {
				return err
			}
		}
	}
	doc["written"] = written
	return t.show(doc, func() {
		for _, file := range written {
			t.printf("%s\n", diag.Printable(file))
		}
		if !toFile {
			t.text(files[0].Text)
		}
		for _, n := range e.notes {
			t.remarkf("%s", diag.Printable(n))
		}
	})
}
