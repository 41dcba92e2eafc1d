// Package importer creates manifests from existing files: the configuration of an MCP client, a server.json from a
// registry, an MCPB bundle, a Claude sub-agent, a folder of skills or rules, or an OpenAPI description.
//
// The result is always a valid manifest with as few permissions as possible. Every guess and every omission is
// recorded in a [Note]. A person must check the notes before using the agent.
//
// Secrets are not copied. Configurations contain secrets in unexpected places, such as arguments, addresses and
// prompts. The importer copies a variable, header or argument only if it is clearly a setting: a flag, a path, an
// address, a package, a number or an ordinary word. It replaces any other value with a reference such as $env:NAME, so
// that the server keeps working when the owner sets the variable. A reference cannot replace the program or package to
// run. The importer does not recognize a secret that is a short ordinary word. From descriptions and prompts, it
// removes everything that looks like a secret. Finally, it searches the result for all withheld values. If the result
// contains such a value, the import fails. The files of a bundle are the program of the server, so they are unpacked
// unchanged.
//
// The input is not trusted. The importer does not run or fetch anything. It follows references only within the
// document. An OpenAPI description can also refer to files in its own folder. The importer refuses paths that lead out
// of the archive or folder. Sizes, nesting and the number of entries are limited.
package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/tailscale/hujson"
	"gopkg.in/yaml.v3"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/manifest"
)

// The values of Note.Kind.
const (
	Guessed = "guessed"
	Dropped = "dropped"
	// Secret means that a value was not copied and that the user must set the value.
	Secret = "secret"
)

// Note is a message that the user must check after the import.
type Note struct {
	Kind   string `json:"kind"`
	What   string `json:"what"`
	Detail string `json:"detail"`
}

// Result is an imported agent.
type Result struct {
	// Source describes the input.
	Source  string
	Dialect agent.Dialect
	// Name is the suggested name of the agent.
	Name  string
	Text  []byte
	Notes []Note
	// Next is the ambit command to run next: lock, verify or inspect.
	Next string
	// Started is true if the servers come from the configuration of a client, which starts them itself.
	Started bool

	// unpack writes additional files for the manifest to dir, which is the folder of the manifest. It is nil if the
	// manifest needs no additional files.
	unpack func(dir string) error
}

// Unpack writes additional files for the manifest to dir, which is the folder of the manifest. It returns false if the
// manifest needs no additional files.
func (r *Result) Unpack(dir string) (bool, error) {
	if r.unpack == nil {
		return false, nil
	}
	return true, r.unpack(dir)
}

// Error is the error for a file that cannot be imported.
type Error struct {
	Reason, Hint string
}

func (e *Error) Error() string { return e.Reason }

func fail(hint, format string, args ...any) error {
	return &Error{Reason: fmt.Sprintf(format, args...), Hint: hint}
}

// maxInput is the maximum size of the input in bytes. maxDepth is the maximum nesting depth of the input.
const (
	maxInput = 16 << 20
	maxDepth = 200
)

// Options are the options of an import.
type Options struct {
	// Name is the name for an agent that is made from a configuration. If it is empty, the import chooses a name.
	Name string
	// Only selects parts of an OpenAPI description. Each element is a tag, a path or an operation. If Only is empty,
	// the whole description is imported.
	Only []string
	// LoopbackHTTP allows the API of an OpenAPI description to be on this machine, for development.
	LoopbackHTTP bool
}

// Import creates a manifest from the file or folder at path. Paths in the manifest are relative to output, which is the
// folder where the caller will write the manifest.
func (o Options) Import(path, output string) (*Result, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	b := &builder{only: o.Only, name: o.Name, loopback: o.LoopbackHTTP, refs: map[string]string{}}
	if b.places, err = placesOf(path, output); err != nil {
		return nil, err
	}
	var r *Result
	switch {
	case info.IsDir():
		r, err = b.skills(path, output)
	case !info.Mode().IsRegular():
		return nil, fail("", "%s is neither a file nor a folder", path)
	default:
		r, err = b.importFile(path)
	}
	if err != nil {
		return nil, err
	}
	if len(o.Only) > 0 && r.Source != openAPISource {
		return nil, fail("import the file without --only", "only an OpenAPI description can be imported in part")
	}
	return b.finish(r)
}

// importFile imports a file. It detects the format from the content.
func (b *builder) importFile(path string) (*Result, error) {
	text, err := readBounded(path)
	if err != nil {
		return nil, err
	}
	name := agent.Slug(strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)))
	if bytes.HasPrefix(text, []byte("PK\x03\x04")) {
		return b.bundle(path)
	}
	if len(text) > maxInput {
		return nil, fail("", "%s is larger than %d bytes", path, maxInput)
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	ext := strings.ToLower(filepath.Ext(path))
	if ext == ".md" || ext == ".mdc" {
		return b.subagent(name, text)
	}
	root, err := decode(ext, text)
	if err != nil {
		return nil, err
	}
	return b.importDocument(path, name, root)
}

// importDocument imports a parsed document. It detects the format from the keys.
func (b *builder) importDocument(path, name string, root map[string]any) (*Result, error) {
	switch {
	case root["schema_version"] != nil && root["agent"] != nil:
		return nil, fail("to check the manifest, run: ambit validate "+diag.ShellWord(path), "%s is already a manifest",
			filepath.Base(path))
	case root["openapi"] != nil:
		return b.openAPI(path, name, root)
	case root["swagger"] != nil:
		return nil, fail("convert the file to OpenAPI 3 first",
			"the file is a Swagger 2 description; only OpenAPI 3 is supported")
	case has(root, "packages", "remotes") && root["name"] != nil:
		return b.registry(root)
	case root["manifest_version"] != nil && root["server"] != nil, root["dxt_version"] != nil:
		return nil, fail("import the .mcpb file instead", "the file is only the manifest of an MCPB bundle")
	}
	if file := text(root["mcpServers"]); file != "" {
		return nil, fail("import that file", "the servers are in another file, %s", diag.Quote(file))
	}
	if holder := serversOf(root); holder != nil {
		return b.configuration(path, name, root, holder)
	}
	return nil, fail("",
		"%s has an unknown format: ambit imports MCP configurations, server.json, MCPB bundles, Claude sub-agents, "+
			"folders of skills or rules, and OpenAPI 3", filepath.Base(path))
}

func has(m map[string]any, keys ...string) bool {
	return slices.ContainsFunc(keys, func(k string) bool { return m[k] != nil })
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxInput+1))
}

// decode parses TOML, YAML, or JSON with or without comments. The parameter ext is the extension of the file. The
// error omits the parser's message, because that message could contain a secret.
func decode(ext string, text []byte) (map[string]any, error) {
	var root any
	var err error
	switch {
	case ext == ".toml":
		err = toml.Unmarshal(text, &root)
	case ext == ".yaml" || ext == ".yml":
		err = yaml.Unmarshal(text, &root)
	default:
		if !shallow(text) {
			return nil, fail("", "the file is nested too deeply")
		}
		var standard []byte
		if standard, err = hujson.Standardize(text); err == nil {
			d := json.NewDecoder(bytes.NewReader(standard))
			d.UseNumber()
			err = d.Decode(&root)
		}
	}
	if err != nil {
		return nil, fail("open the file in the program that uses it, and fix the syntax error",
			"the file cannot be parsed: %s", position(err))
	}
	if root, err = normalize(root, 0); err != nil {
		return nil, err
	}
	m, ok := root.(map[string]any)
	if !ok {
		return nil, fail("", "the file does not contain an object")
	}
	return m, nil
}

// position returns the position of a parser error, without the text at that position.
func position(err error) string {
	if e, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, column := e.Position()
		return fmt.Sprintf("line %d, column %d", line, column)
	}
	text := err.Error()
	for _, prefix := range []string{"hujson: ", "yaml: "} {
		if rest, ok := strings.CutPrefix(text, prefix); ok && strings.HasPrefix(rest, "line ") {
			at, _, _ := strings.Cut(rest, ":")
			return at
		}
	}
	return "syntax error"
}

// shallow reports whether the nesting depth of a JSON text is at most maxDepth.
func shallow(text []byte) bool {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return false
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return true
}

// normalize converts the result of any parser to the same types: objects with string keys, lists, strings, json.Number
// and booleans.
func normalize(v any, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fail("", "the file is nested too deeply")
	}
	var err error
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			if v[k], err = normalize(v[k], depth+1); err != nil {
				return nil, err
			}
		}
		return v, nil
	case map[any]any:
		m := make(map[string]any, len(v))
		for k, item := range v {
			if m[fmt.Sprint(k)], err = normalize(item, depth+1); err != nil {
				return nil, err
			}
		}
		return m, nil
	case []any:
		for i := range v {
			if v[i], err = normalize(v[i], depth+1); err != nil {
				return nil, err
			}
		}
		return v, nil
	case int, int64, uint64, float64:
		text, err := json.Marshal(v)
		if err != nil {
			return nil, fail("", "the file contains a number that JSON cannot represent")
		}
		return json.Number(text), nil
	case nil, string, bool, json.Number:
		return v, nil
	}
	return fmt.Sprint(v), nil // the value is a date
}

// builder holds the state of an import.
type builder struct {
	// name is the name of the new agent. If name is empty, the configuration determines the agent's name.
	name  string
	only  []string
	notes []Note
	// loopback is true if the API of an OpenAPI description is allowed to be on this machine.
	loopback bool
	// withheld lists the possible secrets in the input. They must not appear in the result.
	withheld []string
	// refs maps the variables in the manifest to the values that they replace. If two servers have different values for
	// the same setting, they get different variables.
	refs map[string]string
	// places are the folders of the configuration.
	places places
}

// maxNotes is the maximum number of notes. An import with more notes fails, because a person could not check them all.
const maxNotes = 2000

var errTooManyNotes = fail("import a part of the file", "the import would leave more than %d notes to check", maxNotes)

func (b *builder) note(kind, what, format string, args ...any) {
	if len(b.notes) > maxNotes {
		return
	}
	n := Note{kind, clean(what), clean(fmt.Sprintf(format, args...))}
	if !slices.Contains(b.notes, n) {
		b.notes = append(b.notes, n)
	}
}

// finish validates the result. It fails if the result contains a withheld value.
func (b *builder) finish(r *Result) (*Result, error) {
	if len(b.notes) > maxNotes {
		return nil, errTooManyNotes
	}
	r.Notes = b.notes
	for i := range r.Notes {
		r.Notes[i].What, r.Notes[i].Detail = b.scrub(r.Notes[i].What), b.scrub(r.Notes[i].Detail)
	}
	for _, secret := range b.withheld {
		quoted, err := json.Marshal(secret)
		if err != nil || !plainWords[secret] && bytes.Contains(r.Text, []byte(secret)) ||
			!plainWords[secret] && bytes.Contains(r.Text, bytes.Trim(quoted, `"`)) {
			return nil, fail("remove the secret from the name or description, and import again",
				"the manifest would contain a value that could be a secret")
		}
	}
	if _, err := manifest.Parse("imported.json", r.Text,
		manifest.Options{Dialect: r.Dialect, LoopbackHTTP: b.loopback}); err != nil {
		return nil, fail("", "the result is not a valid manifest: %v", err)
	}
	return r, nil
}

func encode(v any) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(v)
	return out.Bytes(), err
}

// asType returns v as a T. It returns the zero value if v has a different type.
func asType[T any](v any) T {
	t, _ := v.(T)
	return t
}

var (
	text   = asType[string]
	object = asType[map[string]any]
	list   = asType[[]any]
	truth  = asType[bool]
)

// texts returns the strings and numbers in a list, as strings.
func texts(v any) []string {
	var out []string
	for _, item := range list(v) {
		switch item := item.(type) {
		case string:
			out = append(out, item)
		case json.Number:
			out = append(out, item.String())
		}
	}
	return out
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
