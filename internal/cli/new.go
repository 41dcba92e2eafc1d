package cli

import (
	"cmp"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/agents"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/manifest"
)

func newNew(t *terminal) *cobra.Command {
	var from, dialect, output string
	var force bool
	cmd := &cobra.Command{
		Use:     "new NAME",
		GroupID: groupWrite,
		Short:   "Start an agent, or fork one",
		Long: "Start an agent: fork a shipped one or any manifest (--from), or take the small starting point of a dialect\n" +
			"(--dialect). Without either it forks the shipped agent default. With both, the fork is converted.\n\n" +
			"Shipped agents: " + strings.Join(agents.Names(), ", "),
		Example: "  ambit new mine --from default\n  ambit new scout --dialect covenant\n  ambit new helper --from ./their-agent/findagent.json -o helper.json",
		Args:    exactly(1, "one NAME"),
		RunE: func(_ *cobra.Command, args []string) error {
			name := args[0]
			if !isName(name) {
				return usage("use letters, digits, -, _ and .", "%s cannot be the name of an agent", diag.Quote(name))
			}
			d, err := parseDialect(dialect)
			if err != nil {
				return err
			}
			source, err := t.origin(from, d)
			if err != nil {
				return err
			}
			text, err := manifest.Fork(source.m, name)
			if err != nil {
				return no("", "%w", err)
			}
			written := source.m.Dialect
			if d != "" && d != written {
				fork, err := manifest.Parse(source.m.Path, text, manifest.Options{Dialect: written})
				if err != nil {
					return no("", "%w", err)
				}
				c, err := manifest.Convert(fork, d)
				if err != nil {
					return no("", "%w", err)
				}
				t.convertedNotes(c)
				text, written, source.files = c.Text, d, ""
			}
			return t.writeAgent(name, output, written, source.files, text, force)
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "the `agent` to fork: a shipped one by name, or a manifest by path")
	cmd.Flags().StringVar(&dialect, "dialect", "", "the `dialect` of the new agent: "+strings.Join(dialectNames(), ", "))
	outputFlags(cmd, &output, &force, "write to `file`, and what belongs to the agent beside it; - prints the manifest to standard output")
	complete(cmd, "from", agents.Names())
	complete(cmd, "dialect", dialectNames())
	return cmd
}

func isName(s string) bool {
	if s == "" || len(s) > 64 || s[0] == '.' || s[0] == '-' {
		return false
	}
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == ""
}

// origin is the manifest that a new agent is forked from.
type origin struct {
	m *manifest.Manifest
	// files is the folder among the shipped agents whose other files belong to
	// the agent; empty if there are none.
	files string
}

func (t *terminal) origin(from string, d agent.Dialect) (*origin, error) {
	file := ""
	switch {
	case from == "" && d != "":
		file = agents.Starter(string(d))
	case from == "":
		from = "default"
	}
	if file == "" {
		shipped, ok := agents.Find(from)
		if !ok {
			if _, err := os.Stat(from); err != nil {
				hint := cmp.Or(diag.DidYouMean(from, agents.Names()), "shipped agents: "+strings.Join(agents.Names(), ", "))
				return nil, usage(hint, "there is no shipped agent and no file %s", diag.Quote(from))
			}
			m, err := t.load(from, "")
			if err == nil && (m.Agent().Program != nil || m.Agent().Skills != nil) {
				t.notef("%s only the manifest is forked; copy what it needs from %s", t.paint(yellow, "note:"), filepath.Dir(m.Path))
			}
			return &origin{m: m}, err
		}
		file = shipped
	}
	src, err := agents.Files.ReadFile(file)
	if err != nil {
		return nil, no("", "%w", err)
	}
	m, err := manifest.Parse(file, src, manifest.Options{})
	if err != nil {
		return nil, no("", "%w", err)
	}
	o := &origin{m: m}
	if dir := path.Dir(file); path.Dir(dir) == "examples" {
		o.files = dir
	}
	return o, nil
}

// writeAgent puts the manifest where an agent of its dialect lives, with the
// files that belong to it.
func (t *terminal) writeAgent(name, output string, d agent.Dialect, files string, text []byte, force bool) error {
	text = append([]byte(strings.TrimRight(string(text), "\n")), '\n')
	if output == "-" {
		return t.say(map[string]any{"name": name, "dialect": d, "manifest": string(text)}, "%s", text)
	}
	if output == "" {
		output = placeOf(d, name)
	}
	beside, err := filesBeside(files, filepath.Dir(output))
	if err != nil {
		return no("", "%w", err)
	}
	// Write all files or none: a manifest without its program does not work.
	for _, f := range beside {
		if _, err := os.Lstat(f.to); err == nil && !force {
			return usage("choose another folder, or overwrite it with --force", "%s already exists", f.to)
		}
	}
	if err := writeNew(output, text, force); err != nil {
		return err
	}
	for _, f := range beside {
		if err := writeNew(f.to, f.content, force); err != nil {
			return err
		}
	}
	return t.show(map[string]any{"name": name, "dialect": d, "path": output}, func() {
		t.printf("%s\n", output)
		t.remarkf("next: edit it, then ambit validate %s", diag.ShellWord(output))
		if d == agent.Covenant && files == "" {
			t.remarkf("it is a program: write its entry beside it (one JSON line in, one JSON line out)")
		}
	})
}

// besideFile is a file that belongs to a shipped agent.
type besideFile struct {
	to      string
	content []byte
}

// filesBeside returns the other files of a shipped agent, with their new paths.
func filesBeside(from, to string) (files []besideFile, err error) {
	if from == "" {
		return nil, nil
	}
	err = fs.WalkDir(agents.Files, from, func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() == "agent.toml" || e.Name() == "findagent.json" {
			return err
		}
		b, err := agents.Files.ReadFile(file)
		files = append(files, besideFile{filepath.Join(to, filepath.FromSlash(strings.TrimPrefix(file, from+"/"))), b})
		return err
	})
	return files, err
}

// writeNew writes a file that must not exist, completely or not at all.
func writeNew(file string, content []byte, force bool) error {
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return no("", "cannot make the folder %s: %w", dir, err)
	}
	mode := fs.FileMode(0o666) // less what the user's umask takes away
	info, err := os.Stat(file)
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		return usage("choose another name", "%s is not a file", file)
	default:
		mode = info.Mode().Perm()
	}
	tmp, err := os.OpenFile(filepath.Join(dir, ".ambit-"+rand.Text()), os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return no("", "cannot write in %s: %w", dir, err)
	}
	defer os.Remove(tmp.Name()) // gone already if all went well
	_, err = tmp.Write(content)
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return no("", "cannot write %s: %w", file, err)
	}
	rename := renameNew
	if force {
		rename = os.Rename
	}
	err = rename(tmp.Name(), file)
	switch {
	case errors.Is(err, fs.ErrExist):
		return usage("choose another name, or overwrite it with --force", "%s already exists", file)
	case err != nil:
		return no("", "cannot write %s: %w", file, err)
	}
	return nil
}

// renameNew renames a file and fails if the new name exists. A link, unlike a rename, never
// replaces a file; a file system without links is only checked beforehand.
func renameNew(old, file string) error {
	err := os.Link(old, file)
	if _, statErr := os.Lstat(file); err != nil && errors.Is(statErr, fs.ErrNotExist) {
		err = os.Rename(old, file)
	}
	return err
}
