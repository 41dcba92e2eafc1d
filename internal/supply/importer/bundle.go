package importer

import (
	"archive/zip"
	"bytes"
	"cmp"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"unicode"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/supply/unzip"
)

// Limits for bundles. Sizes are in bytes.
const (
	maxEntries  = 20_000
	maxUnpacked = 512 << 20
	maxArchive  = 256 << 20
	maxPath     = 1024
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
	program := object(root["server"])
	config := object(program["mcp_config"])
	if override := object(object(config["platform_overrides"])[platform()]); override != nil {
		config = maps.Clone(config)
		maps.Copy(config, override)
	}
	p := b.places
	p.plugin = filepath.Join(p.output, name)
	p.project = p.output
	u := userConfig{builder: b, config: object(root["user_config"]), dir: filepath.ToSlash(p.plugin), server: name}
	s := &server{name: name, command: u.expand(text(config["command"])), version: text(root["version"]), places: p}
	for _, set := range settings(config["env"]) {
		if set.value, set.plain = u.value(set.value); set.value != "" {
			s.env = append(s.env, set)
		}
	}
	s.args = u.args(texts(config["args"]))
	if s.command == "" {
		entry := text(program["entry_point"])
		if entry == "" || !filepath.IsLocal(filepath.FromSlash(entry)) {
			return nil, fail("", "the bundle has neither a command nor an entry point for its server")
		}
		switch text(program["type"]) {
		case "node":
			s.command, s.args = "node", []string{u.dir + "/" + entry}
		case "python":
			s.command, s.args = "python3", []string{u.dir + "/" + entry}
		case "uv":
			s.command, s.args = "uv", []string{"--directory", u.dir, "run", entry}
		default:
			s.command = u.dir + "/" + entry
		}
	}
	if strings.ContainsAny(s.command, `/\`) {
		s.command = p.code(s.command)
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
	names := unzip.Names{}
	var total uint64
	for _, f := range files {
		name := strings.TrimSuffix(f.Name, "/")
		mode := f.Mode()
		total += f.UncompressedSize64
		switch {
		case len(name) > maxPath || strings.ContainsAny(name, `\:`) || strings.ContainsFunc(name, unicode.IsControl) ||
			!filepath.IsLocal(filepath.FromSlash(name)) || path.Clean(name) != name:
			return fail("", "the archive contains a path that leaves the archive or is not a simple relative path")
		case !mode.IsRegular() && !mode.IsDir():
			return fail("", "the archive contains a link or a device")
		case !mode.IsDir() && !names.Claim(name):
			return fail("", "the archive contains two entries with the same name, or a name that is both a file and a folder")
		case total > maxUnpacked || f.UncompressedSize64 > maxUnpacked:
			return fail("", "the archive unpacks to more than %d MiB", maxUnpacked>>20)
		}
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

// platform returns the name that bundles use for this operating system.
func platform() string {
	if runtime.GOOS == "windows" {
		return "win32"
	}
	return runtime.GOOS
}

// userConfig holds the settings that the user of a bundle can choose.
type userConfig struct {
	*builder
	config map[string]any
	// dir is the folder of the unpacked bundle. server is the name of the server.
	dir, server string
}

// expand replaces the variables that stand for folders.
func (u userConfig) expand(text string) string {
	return strings.NewReplacer("${__dirname}", u.dir, "${/}", "/", "${pathSeparator}", "/", "${HOME}", "$env:HOME",
		"${DESKTOP}", "$env:HOME/Desktop", "${DOCUMENTS}", "$env:HOME/Documents", "${DOWNLOADS}", "$env:HOME/Downloads").Replace(text)
}

var userVariable = regexp.MustCompile(`\$\{user_config\.([\w.-]+)\}`)

// value replaces the variables in a text. A variable becomes the default of its setting. If the setting is secret or
// has no default, the variable becomes a reference instead. If the text is a single variable whose setting is optional
// and has no default, value returns an empty string. The second result is true if variables were replaced, but none of
// them by a reference.
func (u userConfig) value(text string) (value string, plain bool) {
	plain, left := true, false
	value = userVariable.ReplaceAllStringFunc(u.expand(text), func(ref string) string {
		key := userVariable.FindStringSubmatch(ref)[1]
		o := object(u.config[key])
		fallback := strings.Join(u.defaults(o), ",")
		switch {
		case fallback != "" && !truth(o["sensitive"]):
			return fallback
		case o != nil && !truth(o["required"]) && fallback == "" && text == ref:
			left = true
			u.note(Dropped, "user_config "+key, "the setting is optional and is left out; to set it, add it to the manifest")
			return ""
		}
		u.withhold(fallback)
		plain = false
		u.note(Secret, "user_config "+key, "set the variable %s", variable(key))
		return "${" + variable(key) + "}"
	})
	if left {
		return "", false
	}
	return value, plain && value != text
}

// defaults returns the default of a setting. A switch without a default is off.
func (u userConfig) defaults(o map[string]any) []string {
	values := texts(o["default"])
	if one := oneText(o["default"]); one != "" {
		values = []string{one}
	} else if text(o["type"]) == "boolean" {
		values = []string{"false"}
	}
	for i := range values {
		values[i] = u.expand(values[i])
	}
	return values
}

// args replaces the variables in the arguments. If an argument is left out, its flag is left out too. A setting with
// several values becomes several arguments.
func (u userConfig) args(args []string) []string {
	var out []string
	for _, arg := range args {
		if m := userVariable.FindStringSubmatch(arg); m != nil && m[0] == arg {
			o := object(u.config[m[1]])
			if values := u.defaults(o); truth(o["multiple"]) && len(values) > 0 && !truth(o["sensitive"]) {
				out = append(out, values...)
				continue
			}
		}
		value, _ := u.value(arg)
		switch last := len(out) - 1; {
		case value != "" || arg == "":
			out = append(out, value)
		case last >= 0 && dashed(out[last]) && !strings.Contains(out[last], "="):
			out = out[:last]
		}
	}
	return out
}
