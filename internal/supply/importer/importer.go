// Package importer creates manifests from existing files: an MCP client's
// configuration, a registry's server.json, an MCPB bundle, a Claude sub-agent, a
// repository of skills or rules, an OpenAPI description.
//
// The result is always a valid manifest, and as narrow as possible: unknown things are
// not allowed. A [Note] records everything that was guessed or left out, and a person
// checks it before the agent does anything.
//
// Secrets are not copied. Configurations contain them in unexpected places: arguments,
// addresses, prompts. So settings are copied only if they are plainly harmless, and
// become references such as $env:NAME otherwise. Arguments cannot be references: only
// flags, paths, addresses, packages and words without digits are copied. A secret that
// is a plain word is the one kind that passes. Texts for people are copied without
// anything that looks like a secret. Finally the whole result is searched for every
// withheld value, and refused if it contains one. The files of a bundle are its
// program and are unpacked unchanged.
//
// The input is not trusted. Nothing in it is run or fetched, references are followed
// only within the document, no path leaves its archive or folder, and size, depth and
// number are limited.
package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// Kinds of notes.
const (
	Guessed = "guessed"
	Dropped = "dropped"
	// Secret is a value that was not copied and has to be set.
	Secret = "secret"
)

// Note is a statement for a person to check.
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
	// Name is a suggestion for the agent's name.
	Name  string
	Text  []byte
	Notes []Note
	// Next is the next command to run: lock, verify or inspect.
	Next string

	// unpack writes the files that the manifest needs beside it; nil if none.
	unpack func(dir string) error
}

// Unpack writes the files that the manifest needs into its folder. It reports
// whether there are any.
func (r *Result) Unpack(dir string) (bool, error) {
	if r.unpack == nil {
		return false, nil
	}
	return true, r.unpack(dir)
}

// Error is why a file cannot be imported, with a hint.
type Error struct {
	Reason, Hint string
}

func (e *Error) Error() string { return e.Reason }

func fail(hint, format string, args ...any) error {
	return &Error{Reason: fmt.Sprintf(format, args...), Hint: hint}
}

// Limits of the input.
const (
	maxInput = 16 << 20
	maxDepth = 200
)

// Import reads a file or folder. output is the folder of the future manifest; paths of
// other files are relative to it.
func Import(path, output string) (*Result, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	b := &builder{}
	var r *Result
	switch {
	case info.IsDir():
		r, err = b.skills(path, output)
	case !info.Mode().IsRegular():
		return nil, fail("", "%s is neither a file nor a folder", path)
	default:
		r, err = b.file(path)
	}
	if err != nil {
		return nil, err
	}
	return b.finish(r)
}

// file detects the format of a file by its content.
func (b *builder) file(path string) (*Result, error) {
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
	return b.document(path, name, root)
}

// document detects the format of a parsed document by its keys.
func (b *builder) document(path, name string, root map[string]any) (*Result, error) {
	switch {
	case root["schema_version"] != nil && root["agent"] != nil:
		return nil, fail("check it with: ambit validate "+diag.ShellWord(path), "%s is already a manifest", filepath.Base(path))
	case root["openapi"] != nil:
		return b.openAPI(name, root)
	case root["swagger"] != nil:
		return nil, fail("convert it to OpenAPI 3 first", "this is Swagger 2; only OpenAPI 3 is supported")
	case has(root, "packages", "remotes") && root["name"] != nil:
		return b.registry(root)
	case root["manifest_version"] != nil && root["server"] != nil, root["dxt_version"] != nil:
		return nil, fail("give the whole .mcpb file", "this is the manifest of an MCPB bundle, without the bundle")
	}
	if holder := serversOf(root); holder != nil {
		return b.configuration(path, name, root, holder)
	}
	return nil, fail("", "%s has an unknown format: ambit imports MCP configurations, server.json, MCPB bundles, Claude sub-agents, folders of skills or rules, and OpenAPI 3", filepath.Base(path))
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

// decode parses JSON with comments, TOML or YAML. It does not repeat the parser's
// error, which may contain a secret.
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
			return nil, fail("", "it is nested too deeply")
		}
		var standard []byte
		if standard, err = hujson.Standardize(text); err == nil {
			d := json.NewDecoder(bytes.NewReader(standard))
			d.UseNumber()
			err = d.Decode(&root)
		}
	}
	if err != nil {
		return nil, fail("check it with the program that reads it", "the file cannot be parsed: %s", place(err))
	}
	if root, err = plain(root, 0); err != nil {
		return nil, err
	}
	m, ok := root.(map[string]any)
	if !ok {
		return nil, fail("", "the file does not contain an object")
	}
	return m, nil
}

// place is where a parser stopped, without the text there.
func place(err error) string {
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
	return "the syntax is wrong"
}

// shallow reports whether JSON is nested no deeper than a parser can handle.
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

// plain converts the result of any parser to objects with string keys, lists, strings,
// json.Number and booleans.
func plain(v any, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fail("", "it is nested too deeply")
	}
	var err error
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			if v[k], err = plain(v[k], depth+1); err != nil {
				return nil, err
			}
		}
		return v, nil
	case map[any]any:
		m := make(map[string]any, len(v))
		for k, item := range v {
			if m[fmt.Sprint(k)], err = plain(item, depth+1); err != nil {
				return nil, err
			}
		}
		return m, nil
	case []any:
		for i := range v {
			if v[i], err = plain(v[i], depth+1); err != nil {
				return nil, err
			}
		}
		return v, nil
	case int, int64, uint64, float64:
		text, err := json.Marshal(v)
		if err != nil {
			return nil, fail("", "it contains a number that JSON cannot represent")
		}
		return json.Number(text), nil
	case nil, string, bool, json.Number:
		return v, nil
	}
	return fmt.Sprint(v), nil // a date
}

// builder collects the notes of an import.
type builder struct {
	notes []Note
	// withheld are the values, which must not be in the result.
	withheld []string
}

func (b *builder) note(kind, what, format string, args ...any) {
	n := Note{kind, clean(what), clean(fmt.Sprintf(format, args...))}
	if !slices.Contains(b.notes, n) {
		b.notes = append(b.notes, n)
	}
}

// finish validates the result and searches it for withheld values.
func (b *builder) finish(r *Result) (*Result, error) {
	r.Notes = b.notes
	for i := range r.Notes {
		r.Notes[i].What, r.Notes[i].Detail = b.scrub(r.Notes[i].What), b.scrub(r.Notes[i].Detail)
	}
	for _, secret := range b.withheld {
		quoted, err := json.Marshal(secret)
		if err != nil || bytes.Contains(r.Text, []byte(secret)) || bytes.Contains(r.Text, bytes.Trim(quoted, `"`)) {
			return nil, fail("remove the secret from the name or description, and import again", "a value that was withheld as a secret also appears where it would be copied")
		}
	}
	if _, err := manifest.Parse("imported.json", r.Text, manifest.Options{Dialect: r.Dialect}); err != nil {
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

// These getters return a zero value for any other type.

func text(v any) string {
	s, _ := v.(string)
	return s
}

func object(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

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

func truth(v any) bool {
	t, _ := v.(bool)
	return t
}

// sorted returns the sorted keys of an object.
func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
