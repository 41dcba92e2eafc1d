package importer

import (
	"archive/zip"
	"bytes"
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

// Limits of a bundle. Sizes are counted while unpacking; those in the archive are not
// trusted.
const (
	maxEntries  = 20_000
	maxUnpacked = 512 << 20
	maxArchive  = 256 << 20
)

// bundle reads an MCPB bundle: a server with its files, in a zip archive.
func (b *builder) bundle(file string) (*Result, error) {
	archive, err := openArchive(file)
	if err != nil {
		return nil, err
	}
	defer archive.Close()
	raw, err := entry(archive, "manifest.json", maxInput)
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
	b.note(Guessed, "files", "the bundle's files are unpacked into the folder %s beside the manifest", name)
	return r, nil
}

// bundled returns the server in a bundle's manifest.
func (b *builder) bundled(root map[string]any, name string) (*server, error) {
	config := object(object(root["server"])["mcp_config"])
	s := &server{name: name, command: text(config["command"]), version: text(root["version"]), env: settings(config["env"])}
	user := object(root["user_config"])
	dependsOnFolder := func(arg string) string {
		return strings.ReplaceAll(strings.ReplaceAll(arg, "${__dirname}", "./"+name), "${/}", "/")
	}
	s.command = dependsOnFolder(s.command)
	for _, a := range texts(config["args"]) {
		s.args = append(s.args, dependsOnFolder(a))
	}
	if s.command == "" {
		entryPoint := text(object(root["server"])["entry_point"])
		if entryPoint == "" || !filepath.IsLocal(filepath.FromSlash(entryPoint)) {
			return nil, fail("", "the bundle has no command for its server")
		}
		runtime := map[string]string{"node": "node", "python": "python3"}[text(object(root["server"])["type"])]
		if runtime == "" {
			s.command = "./" + path.Join(name, entryPoint)
		} else {
			s.command, s.args = runtime, []string{"./" + path.Join(name, entryPoint)}
		}
	}
	if len(object(config["platform_overrides"])) > 0 {
		b.note(Dropped, "platform_overrides", "only the general command is kept")
	}
	for _, key := range sorted(user) {
		o := object(user[key])
		for _, v := range append(texts([]any{o["default"]}), texts(o["default"])...) {
			if truth(o["sensitive"]) || !harmless(v) {
				b.withhold(v)
			}
		}
		b.note(Secret, "user_config "+key, "it becomes the variable %s", variable(key))
	}
	for _, item := range list(root["tools"]) {
		o := object(item)
		s.tools = append(s.tools, tool{text(o["name"]), text(o["description"])})
	}
	if truth(root["tools_generated"]) {
		b.note(Guessed, "server "+name, "it adds tools at run time: ambit verify lists them")
	}
	if len(list(root["prompts"])) > 0 {
		b.note(Dropped, "prompts", "the server itself offers its prompts, if they are exposed")
	}
	return s, nil
}

// checked is an open archive whose entries have been checked.
type checked struct {
	*zip.Reader
	io.Closer
}

func openArchive(file string) (*checked, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	z, err := readArchive(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &checked{z, f}, nil
}

func readArchive(f *os.File) (*zip.Reader, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > maxArchive {
		return nil, fail("", "the bundle is larger than %d MiB", maxArchive>>20)
	}
	z, err := unzip.NewReader(f, info.Size(), maxEntries)
	if errors.Is(err, unzip.ErrTooMany) {
		return nil, fail("", "%v", err)
	}
	if err != nil {
		return nil, fail("", "the file is not a readable zip archive")
	}
	return z, checkEntries(z.File)
}

// checkEntries refuses an archive with entries that leave its folder, are not files,
// or share a name.
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
		case name == "" || strings.ContainsAny(name, "\\:\x00") || !filepath.IsLocal(filepath.FromSlash(name)) || path.Clean(name) != name:
			return fail("", "the archive has an entry whose path leaves it or is not simple")
		case !mode.IsRegular() && !mode.IsDir():
			return fail("", "the archive contains a link or device")
		case seen[folded]:
			return fail("", "the archive has two entries with one name")
		case total > maxUnpacked || f.UncompressedSize64 > maxUnpacked:
			return tooLarge()
		}
		seen[folded] = true
	}
	return nil
}

func tooLarge() error {
	return fail("", "the archive unpacks to more than %d MiB", maxUnpacked>>20)
}

// entry reads at most most bytes of one file of an archive.
func entry(archive *checked, name string, most int64) ([]byte, error) {
	for _, f := range archive.File {
		if f.Name != name {
			continue
		}
		in, err := f.Open()
		if err != nil {
			return nil, fail("", "%s in the archive cannot be read", name)
		}
		defer in.Close()
		raw, err := io.ReadAll(io.LimitReader(in, most+1))
		if err != nil || int64(len(raw)) > most {
			return nil, fail("", "%s in the archive cannot be read, or is too large", name)
		}
		return raw, nil
	}
	return nil, fail("an MCPB bundle has a manifest.json at its top", "the archive has no %s", name)
}

// unpack writes the files of a bundle into a new folder. It skips the bundle's
// manifest and names that begin with a dot, since they may contain secrets.
func unpack(file, dir string) error {
	archive, err := openArchive(file)
	if err != nil {
		return err
	}
	defer archive.Close()
	if err := os.Mkdir(dir, 0o755); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return fail("move it, or write the manifest elsewhere", "the folder %s already exists", dir)
		}
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	left := int64(maxUnpacked)
	for _, f := range archive.File {
		if f.Mode().IsDir() || f.Name == "manifest.json" || hidden(f.Name) {
			continue
		}
		n, err := unpackFile(root, f, left)
		if err != nil {
			return errors.Join(err, os.RemoveAll(dir))
		}
		left -= n
	}
	return nil
}

func hidden(name string) bool {
	return strings.HasPrefix(name, ".") || strings.Contains(name, "/.")
}

func unpackFile(root *os.Root, f *zip.File, left int64) (int64, error) {
	name := filepath.FromSlash(f.Name)
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return 0, err
	}
	in, err := f.Open()
	if err != nil {
		return 0, fail("", "the archive cannot be read")
	}
	defer in.Close()
	out, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644|f.Mode().Perm()&0o111)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(out, io.LimitReader(in, left+1))
	if n > left {
		err = tooLarge()
	}
	return n, errors.Join(err, out.Close())
}
