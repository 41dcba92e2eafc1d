package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
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
	cmd := verb("new NAME", exactly(1, "one NAME"), func(_ context.Context, args []string) error {
		name := args[0]
		if !isName(name) {
			return usage("use letters, digits, -, _ and .", "%s cannot be the name of an agent", diag.Quote(name))
		}
		d, err := parseDialect(dialect)
		if err != nil {
			return err
		}
		source, files, err := t.origin(from, d)
		if err != nil {
			return err
		}
		text, err := manifest.Fork(source, name)
		if err != nil {
			return no("", "%w", err)
		}
		written := source.Dialect
		if d != "" && d != written {
			fork, err := manifest.Parse(source.Path, text, manifest.Options{Dialect: written})
			if err != nil {
				return no("", "%w", err)
			}
			c, err := manifest.Convert(fork, d)
			if err != nil {
				return no("", "%w", err)
			}
			t.convertedNotes(c)
			text, written, files = c.Text, d, ""
		}
		return t.writeAgent(name, output, written, files, text, force)
	})
	cmd.Flags().StringVar(&from, "from", "", "the `agent` to copy: the name of a shipped agent, or the path of a manifest")
	cmd.Flags().StringVar(&dialect, "dialect", "", "the `dialect` of the new agent: "+strings.Join(dialectNames(), ", "))
	outputFlags(cmd, &output, &force,
		"write the manifest to `file`, and the agent's other files into the same folder; use - to print the manifest")
	complete(cmd, "from", agents.Names())
	complete(cmd, "dialect", dialectNames())
	return cmd
}

// isName reports whether a string can be the name of an agent.
var isName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$`).MatchString

// origin returns the manifest to copy for a new agent. If a shipped agent consists of several files, the second result
// is the agent's folder in agents.Files.
func (t *terminal) origin(from string, d agent.Dialect) (m *manifest.Manifest, files string, err error) {
	file, shipped := agents.Find(cmp.Or(from, "default"))
	if from == "" && d != "" {
		file = agents.Starter(string(d))
	}
	if !shipped {
		if _, err := os.Stat(from); err != nil {
			hint := cmp.Or(diag.DidYouMean(from, agents.Names()), "use a shipped agent: "+strings.Join(agents.Names(), ", "))
			return nil, "", usage(hint, "there is no shipped agent or file named %s", diag.Quote(from))
		}
		m, err = t.load(from, "")
		if err == nil && (m.Agent().Program != nil || m.Agent().Skills != nil) {
			t.notef("%s only the manifest is copied; copy the other files yourself from %s",
				t.paint(yellow, "note:"), filepath.Dir(m.Path))
		}
		return m, "", err
	}
	src, err := agents.Files.ReadFile(file)
	if err == nil {
		m, err = manifest.Parse(file, src, manifest.Options{})
	}
	if err != nil {
		return nil, "", no("", "%w", err)
	}
	if dir := path.Dir(file); path.Dir(dir) == "examples" || m.Dialect == agent.Covenant {
		files = dir
	}
	return m, files, nil
}

// writeAgent writes a manifest to the output file, and the agent's other files into the same folder. If no output file
// is given, the path depends on the dialect.
func (t *terminal) writeAgent(name, output string, d agent.Dialect, files string, text []byte, force bool) error {
	text = append([]byte(strings.TrimRight(string(text), "\n")), '\n')
	if output == "-" {
		return t.say(map[string]any{"name": name, "dialect": d, "manifest": string(text)}, "%s", text)
	}
	if output == "" {
		output = defaultPath(d, name)
	}
	others, err := otherFiles(files, filepath.Dir(output))
	if err != nil {
		return no("", "%w", err)
	}
	// Write all files or none, because a manifest without its program does not work.
	for file := range others {
		if _, err := os.Lstat(file); err == nil && !force {
			return usage("choose another folder, or overwrite the file with --force", "%s already exists", file)
		}
	}
	if err := writeNew(output, text, force); err != nil {
		return err
	}
	for file, content := range others {
		if err := writeNew(file, content, force); err != nil {
			return err
		}
	}
	return t.show(map[string]any{"name": name, "dialect": d, "path": output}, func() {
		t.printf("%s\n", output)
		t.remarkf("next: edit the file, then run: ambit validate %s", diag.ShellWord(output))
		if d == agent.Covenant && files == "" {
			t.remarkf(`write the program named in "entry"; it must read one line of JSON and print one line of JSON`)
		}
	})
}

// otherFiles returns all files of a shipped agent except the manifest. The agent's folder is a path in agents.Files.
// The keys of the result are paths in the target folder.
func otherFiles(folder, target string) (map[string][]byte, error) {
	files := map[string][]byte{}
	if folder == "" {
		return files, nil
	}
	return files, fs.WalkDir(agents.Files, folder, func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || alwaysManifest(e.Name()) {
			return err
		}
		files[filepath.Join(target, strings.TrimPrefix(file, folder))], err = agents.Files.ReadFile(file)
		return err
	})
}

// writeNew writes a file completely or not at all. If force is not set, the file must not exist.
func writeNew(file string, content []byte, force bool) error {
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return no("", "cannot create the folder %s: %w", dir, err)
	}
	mode := fs.FileMode(0o666) // the user's umask removes permissions from this mode
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
		return no("", "cannot write to %s: %w", dir, err)
	}
	defer os.Remove(tmp.Name()) // Remove has no effect after the rename
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
		return usage("choose another name, or overwrite the file with --force", "%s already exists", file)
	case err != nil:
		return no("", "cannot write %s: %w", file, err)
	}
	return nil
}

// renameNew renames a file without replacing an existing file. It creates a hard link, because os.Rename would replace
// an existing file. The caller removes the old name. If the link fails although the new name is free, renameNew calls
// os.Rename.
func renameNew(old, file string) error {
	err := os.Link(old, file)
	if _, statErr := os.Lstat(file); err != nil && errors.Is(statErr, fs.ErrNotExist) {
		err = os.Rename(old, file)
	}
	return err
}
