// Package manifest reads agent manifests in four dialects, says everything
// that is wrong with one, and compares, converts and forks them.
//
// [Load] is the way in. It reads a file, finds out its dialect ([Detect]),
// holds it to that dialect's rules and returns a [Manifest] with every problem
// found, each with its place, a stable code and a hint. A manifest without
// errors compiles to an [agent.Agent], which is all that the rest of ambit
// looks at.
//
// Reading goes through the same steps for every dialect:
//
//	bytes → encoding → syntax (doc) → dialect → rules (matrix, gpars, …) → hygiene → sorted diagnostics
//
// A syntax error that hides what follows stops the rules, since they would
// only report what the error made of the file. Everything else is reported
// together. Hygiene is what no dialect may hold: text that looks like a
// secret, and characters that hide from people.
//
// The digest of a manifest ([Manifest.Digest]) is the sha256 of its RFC 8785
// form, so that layout and key order do not matter and meaning does. TOML
// first becomes the JSON that says the same.
//
// Nothing here runs anything, opens a connection or reads another file.
package manifest

import (
	"fmt"
	"path/filepath"
	"strings"
	"unicode/utf8"
	"unsafe"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
)

// Diagnostic is one problem of a manifest.
type Diagnostic = diag.Diagnostic

// Options change how a manifest is read. The zero Options are the usual ones.
type Options struct {
	// Dialect, if it is one of agent.Dialects, is taken instead of looking for it.
	Dialect agent.Dialect
	// Strict makes errors of warnings and asks for what only strict reading asks.
	Strict bool
	// LoopbackHTTP, for development, lets FindAgent actions and slots name this
	// machine, by localhost or a loopback address, also over plain http.
	LoopbackHTTP bool
}

// Manifest is a manifest that was read, with or without problems.
type Manifest struct {
	// Path is the file's name as it was given.
	Path string
	// Dialect is empty if it could not be told.
	Dialect agent.Dialect
	// Diagnostics are all problems, in the order of the file.
	Diagnostics []Diagnostic
	// Source is the text, for showing a diagnostic in place.
	Source *diag.Source

	typed  compiler
	errors int
	agent  *agent.Agent
}

type compiler interface{ Compile() *agent.Agent }

// InvalidError says that a manifest has errors.
type InvalidError struct{ Manifest *Manifest }

func (e *InvalidError) Error() string {
	m := e.Manifest
	for _, d := range m.Diagnostics {
		if d.Severity == diag.Error {
			more := ""
			if m.errors > 1 {
				more = fmt.Sprintf(" (and %d more)", m.errors-1)
			}
			return fmt.Sprintf("%s:%d:%d: %s [%s]%s", m.Path, d.Line, d.Column, d.Message, d.Code, more)
		}
	}
	return m.Path + ": invalid manifest"
}

// Load reads the manifest at path. The error is an [InvalidError] if it has
// errors, and the manifest is returned with it; any other error means that the
// file could not be read.
func Load(path string, o Options) (*Manifest, error) {
	src, err := readFile(path)
	if err != nil {
		return nil, err
	}
	// The bytes are ours alone and nobody writes them again: no copy is needed.
	m := parse(path, unsafe.String(unsafe.SliceData(src), len(src)), o)
	if !m.Valid() {
		return m, &InvalidError{m}
	}
	return m, nil
}

// Parse reads a manifest from memory. The name tells JSON from TOML by its
// extension; where it has none, the text does.
func Parse(name string, src []byte, o Options) *Manifest {
	return parse(name, string(src), o)
}

func parse(name, src string, o Options) *Manifest {
	m := &Manifest{Path: name, Dialect: o.Dialect}
	r, readable := decode(name, src, o.Strict)
	m.Source = r.Source
	if readable {
		tree, complete := parseTree(r, o.Dialect)
		m.read(tree.Root(), complete, r, o)
		checkHygiene(tree, r)
		tree.Release()
		if r.Any() {
			m.Source.BeforeFrames(func() { maskNamed(m.tree(), m.Source) })
		}
	}
	m.Diagnostics, m.errors = r.Finish(), r.Errors()
	return m
}

// parseTree reads the source of r; d is its dialect, if that is known.
func parseTree(r *diag.Reporter, d agent.Dialect) (t *doc.Tree, complete bool) {
	if isTOML(r.Source.Name, r.Source.Text, d) {
		return doc.ParseTOML(r.Source, r)
	}
	return doc.ParseJSON(r.Source, r)
}

// tree reads the manifest's text again. Trees are not kept, because most
// manifests are only asked whether they are valid.
func (m *Manifest) tree() *doc.Tree {
	t, _ := parseTree(diag.Open(m.Path, m.Source.Text, false), m.Dialect)
	return t
}

// read tells the dialect and holds the manifest to its rules.
func (m *Manifest) read(root doc.Value, complete bool, r *diag.Reporter, o Options) {
	if root.Ok() && !root.Is(doc.Object) {
		// What is no JSON value at all was told already, and is read as null.
		if complete && (!root.Is(doc.Null) || r.Errors() == 0) {
			r.Report(diag.NotObject, root.Head(), "", "a manifest is an object, and this is %s", root.Kind())
		}
		return
	}
	if rooms[m.Dialect] == nil {
		m.Dialect = detect(root, r, complete)
	}
	if room := rooms[m.Dialect]; room != nil && complete {
		m.typed = room.parser(o)(root, r)
		checkName(room.name(root), r)
	}
}

// decode checks size and encoding and takes off a byte order mark. It is
// readable if there is text to go on with.
func decode(name, src string, strict bool) (r *diag.Reporter, readable bool) {
	fail := func(rule *diag.Rule, hint, format string, args ...any) (*diag.Reporter, bool) {
		r := diag.Open(name, "", strict)
		r.Report(rule, diag.Place{}, hint, format, args...)
		return r, false
	}
	switch {
	case len(src) > doc.MaxBytes:
		return fail(diag.TooLarge, "", "the file is larger than %d MiB", doc.MaxBytes>>20)
	case len(src) >= 2 && (src[0] == 0xFF && src[1] == 0xFE || src[0] == 0xFE && src[1] == 0xFF):
		return fail(diag.NotUTF8, "", "the file is UTF-16, not UTF-8")
	case !utf8.ValidString(src):
		good := strings.ToValidUTF8(src, "\x00")
		at := strings.IndexByte(good, 0)
		r := diag.Open(name, strings.ToValidUTF8(src, "\uFFFD"), strict)
		r.Report(diag.NotUTF8, diag.Place{Start: at, End: at + 1}, "", "byte %d of the file is not UTF-8", at+1)
		return r, false
	}
	rest, marked := strings.CutPrefix(src, "\uFEFF")
	r = diag.Open(name, rest, strict)
	if marked {
		r.Report(diag.ByteOrderMark, diag.Place{}, "", "the file starts with a byte order mark")
	}
	if strings.TrimSpace(rest) == "" {
		r.Report(diag.Empty, diag.Place{}, "", "the file is empty")
		return r, false
	}
	return r, true
}

func isTOML(name, text string, d agent.Dialect) bool {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".toml":
		return true
	case ".json":
		return false
	}
	if room := rooms[d]; room != nil {
		return room.toml
	}
	return !strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), "{")
}

// Attached is what was found in a file that belongs to a manifest of a dialect,
// to be told with the manifest's own problems.
func Attached(d agent.Dialect, r *diag.Reporter) *Manifest {
	return &Manifest{Path: r.Source.Name, Dialect: d, Source: r.Source, Diagnostics: r.Finish(), errors: r.Errors()}
}

// Suspect reports whether a file whose dialect cannot be told still looks like a
// manifest: it has the name of one, or it cannot be read and holds the name of a
// key that only manifests have. Such a file is broken, not something else.
func (m *Manifest) Suspect() bool {
	if m.Dialect != "" || m.Valid() {
		return false
	}
	base := filepath.Base(m.Path)
	named := base == "agent.toml" || base == "findagent.json"
	for _, d := range m.Diagnostics {
		switch d.Code {
		case diag.UnknownDialect.Code: // it could be read, and is something else
			return named && !isSchema(m.tree().Root())
		case diag.MixedDialects.Code, diag.NotUTF8.Code, diag.TooLarge.Code:
			return true // what cannot be read must not pass for something else
		}
	}
	for _, key := range tellingWords {
		if strings.Contains(m.Source.Text, key) {
			return true
		}
	}
	return named
}

// tellingWords are keys that stand in no other kind of file.
var tellingWords = []string{
	`"allowed_side_effects"`, `"side_effect_class"`, "matrix://agent/", `"required_mcp_servers"`, `"permission_scopes"`,
	`"system_prompt"`, `"example_prompts"`, `"credential_slots"`, "cpu_ms_per_task", "budget_credits_per_hour",
}

// Valid reports whether the manifest has no errors.
func (m *Manifest) Valid() bool { return m.errors == 0 }

// Errors counts the errors.
func (m *Manifest) Errors() int { return m.errors }

// Digest is the sha256 of the manifest's canonical form, empty for a manifest
// with errors: what cannot be read in one way has no digest.
func (m *Manifest) Digest() string {
	if !m.Valid() {
		return ""
	}
	if m.agent != nil {
		return m.agent.Digest
	}
	if m.typed == nil {
		return "" // a file that belongs to a manifest
	}
	return m.tree().Digest()
}

// Agent is the neutral model, nil for a manifest with errors.
func (m *Manifest) Agent() *agent.Agent {
	if m.agent == nil && m.Valid() && m.typed != nil {
		a := m.typed.Compile()
		a.Digest = m.tree().Digest()
		m.agent = a
	}
	return m.agent
}

// Remote is the manifest of a hosted agent as it is reached from here; see
// [agent.Agent.Remote]. It is m itself for other agents.
func (m *Manifest) Remote() *Manifest {
	a := m.Agent()
	if a == nil || !a.Hosted() {
		return m
	}
	remote := *m
	remote.agent = a.Remote()
	return &remote
}

// Typed is the manifest in its dialect's own type, such as
// *matrix.AgentManifest; nil if the dialect could not be told.
func (m *Manifest) Typed() any { return m.typed }
