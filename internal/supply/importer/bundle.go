package importer

import (
	"archive/zip"
	"bytes"
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/supply/unzip"
)

// Limits for bundles. Sizes are in bytes.
const (
	maxEntries  = 20_000
	maxUnpacked = 512 << 20
	maxArchive  = 256 << 20
)

// bundle converts an MCPB bundle, which is a zip archive with a server and its files.
func (b *builder) bundle(file string) (*Result, error) {
	archive, err := openArchive(file)
	if err != nil {
		return nil, err
	}
	defer archive.Close()
	raw, err := manifestOf(archive)
	if err != nil {
		return nil, err
	}
	root, err := decode(".json", bytes.TrimPrefix(raw, []byte("\ufeff")))
	if err != nil {
		return nil, err
	}
	name := agent.Slug(text(root["name"]))
	s, err := b.bundled(root, name)
	if err != nil {
		return nil, err
	}
	r, err := b.matrixOf("an MCPB bundle", name, text(root["description"]), []server{*s})
	if err != nil {
		return nil, err
	}
	r.Next = "lock"
	r.unpack = func(dir string) error { return unpack(file, filepath.Join(dir, name)) }
	b.note(Guessed, "files", "the bundle's files are unpacked to the folder %s next to the manifest", name)
	return r, nil
}

func (b *builder) bundled(root map[string]any, name string) (*server, error) {
	config := object(object(root["server"])["mcp_config"])
	s := &server{
		name: name, command: text(config["command"]), version: text(root["version"]), env: settings(config["env"]),
	}
	user := object(root["user_config"])
	expand := func(arg string) string {
		return strings.ReplaceAll(strings.ReplaceAll(arg, "${__dirname}", "./"+name), "${/}", "/")
	}
	s.command = expand(s.command)
	for _, a := range texts(config["args"]) {
		s.args = append(s.args, expand(a))
	}
	if s.command == "" {
		entryPoint := text(object(root["server"])["entry_point"])
		if entryPoint == "" || !filepath.IsLocal(filepath.FromSlash(entryPoint)) {
			return nil, fail("", "the bundle has neither a command nor an entry point for its server")
		}
		runtime := map[string]string{"node": "node", "python": "python3"}[text(object(root["server"])["type"])]
		if runtime == "" {
			s.command = "./" + path.Join(name, entryPoint)
		} else {
			s.command, s.args = runtime, []string{"./" + path.Join(name, entryPoint)}
		}
	}
	if len(object(config["platform_overrides"])) > 0 {
		b.note(Dropped, "platform_overrides", "the commands for specific platforms are left out")
	}
	for _, key := range sorted(user) {
		o := object(user[key])
		for _, v := range append(texts([]any{o["default"]}), texts(o["default"])...) {
			if truth(o["sensitive"]) || !harmless(v) {
				b.withhold(v)
			}
		}
		b.note(Secret, "user_config "+key, "put the value in the environment variable %s", variable(key))
	}
	for _, item := range list(root["tools"]) {
		o := object(item)
		s.tools = append(s.tools, tool{text(o["name"]), text(o["description"])})
	}
	if truth(root["tools_generated"]) {
		b.note(Guessed, "server "+name, "the server adds tools at run time; to list them, run: ambit verify")
	}
	if len(list(root["prompts"])) > 0 {
		b.note(Dropped, "prompts", "the manifest does not list prompts; clients get them from the server")
	}
	return s, nil
}

func openArchive(file string) (*unzip.Archive, error) {
	if info, err := os.Stat(file); err != nil || info.Size() > maxArchive {
		return nil, cmp.Or(err, fail("", "the bundle is larger than %d MiB", maxArchive>>20))
	}
	z, err := unzip.OpenReader(file, maxEntries)
	switch {
	case errors.Is(err, unzip.ErrTooMany):
		return nil, fail("", "%v", err)
	case err != nil:
		return nil, fail("", "the file is not a readable zip archive")
	}
	if err := checkEntries(z.File); err != nil {
		return nil, errors.Join(err, z.Close())
	}
	return z, nil
}

// checkEntries returns an error if an archive is too large or has an invalid entry. Every entry must be a file or a
// folder with a unique name. The path of an entry must not lead out of the archive.
func checkEntries(files []*zip.File) error {
	if len(files) > maxEntries {
		return fail("", "the archive has more than %d entries", maxEntries)
	}
	seen := map[string]bool{}
	var total uint64
	for _, f := range files {
		name := strings.TrimSuffix(f.Name, "/")
		mode := f.Mode()
		folded := strings.ToLower(path.Clean(name))
		total += f.UncompressedSize64
		switch {
		case strings.ContainsAny(name, "\\:\x00") || !filepath.IsLocal(filepath.FromSlash(name)) || path.Clean(name) != name:
			return fail("", "the archive contains a path that leaves the archive or is not a simple relative path")
		case !mode.IsRegular() && !mode.IsDir():
			return fail("", "the archive contains a link or a device")
		case seen[folded]:
			return fail("", "the archive contains two entries with the same name")
		case total > maxUnpacked || f.UncompressedSize64 > maxUnpacked:
			return fail("", "the archive unpacks to more than %d MiB", maxUnpacked>>20)
		}
		seen[folded] = true
	}
	return nil
}

func manifestOf(archive *unzip.Archive) ([]byte, error) {
	in, err := archive.Open("manifest.json")
	if err != nil {
		return nil, fail("import an MCPB bundle, which has a manifest.json in its top folder",
			"the archive has no manifest.json in its top folder")
	}
	defer in.Close()
	raw, err := io.ReadAll(io.LimitReader(in, maxInput+1))
	if err != nil || len(raw) > maxInput {
		return nil, fail("", "manifest.json in the archive cannot be read or is too large")
	}
	return raw, nil
}

// unpack creates the folder dir and writes the files of a bundle to the folder. It skips the bundle's manifest. It
// also skips every name that begins with a dot, because such files could contain secrets.
func unpack(file, dir string) error {
	archive, err := openArchive(file)
	if err != nil {
		return err
	}
	defer archive.Close()
	if err := os.Mkdir(dir, 0o755); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return fail("move the folder, or write the manifest to another folder", "the folder %s already exists", dir)
		}
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, f := range archive.File {
		if f.Mode().IsDir() || f.Name == "manifest.json" || hidden(f.Name) {
			continue
		}
		if err := unzip.Extract(root, f, f.Name); err != nil {
			return errors.Join(err, os.RemoveAll(dir))
		}
	}
	return nil
}

func hidden(name string) bool {
	return strings.HasPrefix(name, ".") || strings.Contains(name, "/.")
}
