package cli

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/supply/importer"
)

func newImport(t *terminal) *cobra.Command {
	var output string
	var force bool
	cmd := &cobra.Command{
		Use:     "import SRC",
		GroupID: groupWrite,
		Short:   "Make a manifest of an MCP configuration, bundle, skills or OpenAPI",
		Long: "Make a valid manifest of what is there already: the configuration of an MCP client (JSON, TOML or YAML), a\n" +
			"registry's server.json, an MCPB bundle, a Claude sub-agent (.md), a folder of skills or rules, or an OpenAPI 3\n" +
			"description. The address of a git repository (https://….git) is cloned beside the manifest and read as a folder.\n" +
			"Nothing is run, and nothing else is fetched. Secrets are not copied: values become $env:NAME references or\n" +
			"credential slots, and doubtful arguments are left out. What was guessed or left out is listed; look at it, and at\n" +
			"args, before you share or run the agent.",
		Example: "  ambit import ~/.cursor/mcp.json -o team.json\n  ambit import petstore.yaml -o petstore/findagent.json\n  ambit import ./skills -o findagent.json",
		Args:    exactly(1, "one file, folder or repository"),
		RunE: func(cmd *cobra.Command, args []string) error {
			src := args[0]
			if isRepository(src) {
				var err error
				if src, err = t.clone(cmd.Context(), src, output); err != nil {
					return err
				}
			}
			return t.importAgent(src, output, force)
		},
	}
	outputFlags(cmd, &output, &force, "write to `file` instead of standard output")
	return cmd
}

func (t *terminal) importAgent(src, output string, force bool) error {
	if src == "-" || strings.Contains(src, "://") {
		return usage("save it to a file first; a repository's address ends in .git", "import takes a file, a folder or a git repository")
	}
	if output == "-" {
		output = ""
	}
	r, err := importer.Import(src, filepath.Dir(output))
	if e, ok := errors.AsType[*importer.Error](err); ok {
		return no(e.Hint, "%s cannot be imported: %w", src, err)
	}
	if err != nil {
		return unreadable(src, err)
	}
	if output != "" {
		if err := t.writeImported(r, output, force); err != nil {
			return err
		}
	}
	where := output
	if where == "" {
		where = "FILE"
	}
	next := "ambit " + r.Next + " " + diag.ShellWord(where)
	if t.json {
		return t.document(map[string]any{
			"source": r.Source, "dialect": r.Dialect, "name": r.Name, "manifest": json.RawMessage(r.Text),
			"notes": append([]importer.Note{}, r.Notes...), "next": next, "output": output,
		})
	}
	if output == "" {
		t.printf("%s", escapeJSON(string(r.Text)))
	}
	for _, n := range r.Notes {
		s := yellow
		if n.Kind == importer.Guessed {
			s = cyan
		}
		t.notef("%s %s: %s", t.paint(s, n.Kind), diag.Printable(n.What), diag.Printable(n.Detail))
	}
	t.notef("%s, as a %s manifest; %s to check", diag.Printable(r.Source), r.Dialect, count(len(r.Notes), "thing"))
	t.notef("next: %s", diag.Printable(next))
	return nil
}

// writeImported writes the manifest, and first the files that it needs.
func (t *terminal) writeImported(r *importer.Result, output string, force bool) error {
	if err := writeNew(output, r.Text, force); err != nil {
		return err
	}
	if _, err := r.Unpack(filepath.Dir(output)); err != nil {
		if e, ok := errors.AsType[*importer.Error](err); ok {
			return no(e.Hint, "the manifest is written, and its files are not: %w", err)
		}
		return no("", "the manifest is written, and its files are not: %w", err)
	}
	return nil
}
