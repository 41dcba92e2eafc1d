// Package manifest reads agent manifests in four dialects, reports every problem, and compares, converts and forks
// manifests.
//
// # Use
//
// [Load] reads a file and [Parse] reads bytes. Both detect the dialect, check the dialect's rules and return a [Manifest]
// with all its problems as [Diagnostic]s, each with a location, a stable code and a hint. If one of them is an error, the
// returned error is an [*InvalidError], and the manifest is returned with it. [Manifest.Agent] is the neutral model
// (package agent) of a valid manifest. [Diff] compares two models and separates wider permissions from narrower ones;
// [Convert] translates a manifest to another dialect and lists what was lost and added; [Fork] changes the name.
//
// # Design
//
// All dialects are read in the same steps:
//
//	bytes → encoding → syntax → dialect → rules of the dialect → hygiene → sorted diagnostics
//
// A syntax error that hides the rest of the file stops the rules, which would only report consequences of that error.
// All other problems are reported together. Hygiene applies to every dialect: no text may look like a secret or contain
// invisible characters. Secrets are masked wherever a problem is shown.
//
// The digest of a manifest ([Manifest.Digest]) is the sha256 of its RFC 8785 form, so that layout and key order do not
// matter. TOML is first converted to JSON.
//
// Work and memory are bounded: 16 MiB, 100 levels, a million values, 10,000 diagnostics. The package runs nothing, opens
// no connection and reads no other file. A Manifest may be used by several goroutines at once.
package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
	"unsafe"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
)

// Diagnostic is one problem of a manifest: its location, a stable code, a message and a hint. Rule is the explanation of
// a code.
type (
	Diagnostic = diag.Diagnostic
	Rule       = diag.Rule
)

// Options change how a manifest is read. The zero value is right for most uses.
type Options struct {
	// Dialect skips the detection if it is one of agent.Dialects.
	Dialect agent.Dialect
	// Strict turns warnings into errors and adds checks.
	Strict bool
	// LoopbackHTTP is for development. It allows FindAgent actions and slots to use localhost and loopback addresses,
	// also over plain http.
	LoopbackHTTP bool
}

// Manifest is a manifest with its problems, if it has any.
type Manifest struct {
	// Path is the file name that was passed to Load or Parse.
	Path string
	// Dialect is empty if it could not be detected.
	Dialect agent.Dialect
	// Diagnostics are all problems, in the order of the file.
	Diagnostics []Diagnostic
	// Source is the text. Its method Frame returns the lines around a diagnostic.
	Source *diag.Source

	typed compiler
	model func() *agent.Agent
}

type compiler interface{ Compile() *agent.Agent }

// InvalidError reports that a manifest has errors.
type InvalidError struct{ Manifest *Manifest }

func (e *InvalidError) Error() string {
	m, errs := e.Manifest, e.Manifest.Errors()
	if len(errs) == 0 {
		return m.Path + ": invalid manifest"
	}
	more := ""
	if len(errs) > 1 {
		more = fmt.Sprintf(" (and %d more)", len(errs)-1)
	}
	d := errs[0]
	return fmt.Sprintf("%s:%d:%d: %s [%s]%s", m.Path, d.Line, d.Column, d.Message, d.Code, more)
}

// Load reads the manifest at path. If the manifest has errors, Load returns it with an *InvalidError. Any other error
// means that the file could not be read.
func Load(path string, o Options) (*Manifest, error) {
	src, err := readFile(path)
	if err != nil {
		return nil, err
	}
	// The bytes are never written again, so the string needs no copy.
	return parse(path, unsafe.String(unsafe.SliceData(src), len(src)), o)
}

// readFile reads a file up to one byte more than a manifest may have.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, &os.PathError{Op: "read", Path: path, Err: errors.New("is a folder, not a manifest")}
	}
	b := bytes.NewBuffer(make([]byte, 0, min(info.Size(), doc.MaxBytes)+bytes.MinRead))
	_, err = b.ReadFrom(io.LimitReader(f, doc.MaxBytes+1))
	return b.Bytes(), err
}

// Parse reads a manifest from memory. The name's extension selects JSON or TOML; without one, the text does. If the
// manifest has errors, Parse returns it with an *InvalidError; there is no other error.
func Parse(name string, src []byte, o Options) (*Manifest, error) {
	return parse(name, string(src), o)
}

func parse(name, src string, o Options) (*Manifest, error) {
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
	m.Diagnostics = r.Finish()
	if !m.Valid() {
		return m, &InvalidError{m}
	}
	m.model = sync.OnceValue(func() *agent.Agent {
		a := m.typed.Compile()
		a.Digest = m.tree().Digest()
		return a
	})
	return m, nil
}

// parseTree reads the source of r. The dialect d may be empty.
func parseTree(r *diag.Reporter, d agent.Dialect) (t *doc.Tree, complete bool) {
	if isTOML(r.Source.Name, r.Source.Text, d) {
		return doc.ParseTOML(r.Source, r)
	}
	return doc.ParseJSON(r.Source, r)
}

// tree parses the text again. A Manifest does not keep the tree, because most callers only need the diagnostics.
func (m *Manifest) tree() *doc.Tree {
	t, _ := parseTree(diag.Open(m.Path, m.Source.Text, false), m.Dialect)
	return t
}

// read detects the dialect and checks its rules.
func (m *Manifest) read(root doc.Value, complete bool, r *diag.Reporter, o Options) {
	if root.Ok() && !root.Is(doc.Object) {
		// A syntax error is already reported, and its value reads as null.
		if complete && (!root.Is(doc.Null) || r.Errors() == 0) {
			r.Report(diag.NotObject, root.Head(), "", "a manifest is an object, and this is %s", root.Kind())
		}
		return
	}
	if formats[m.Dialect] == nil {
		m.Dialect = detect(root, r, complete)
	}
	if f := formats[m.Dialect]; f != nil && complete {
		parse := f.parse
		if o.LoopbackHTTP && f.parseLoopback != nil {
			parse = f.parseLoopback
		}
		m.typed = parse(root, r)
		checkName(f.name(root), r)
	}
}

// decode checks size and encoding and removes a byte order mark. It reports whether there is text to parse.
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
	if f := formats[d]; f != nil {
		return f.toml
	}
	return !strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), "{")
}

// Suspect reports whether a file of no known dialect is probably a broken manifest: it has the name of a manifest, or it
// cannot be parsed and contains a key that only manifests have.
func (m *Manifest) Suspect() bool {
	if m.Dialect != "" || m.Valid() {
		return false
	}
	base := filepath.Base(m.Path)
	named := base == "agent.toml" || base == "findagent.json"
	for _, d := range m.Diagnostics {
		switch d.Code {
		case diag.UnknownDialect.Code: // it was parsed, and is another kind of file
			return named && !isSchema(m.tree().Root())
		case diag.MixedDialects.Code, diag.NotUTF8.Code, diag.TooLarge.Code:
			return true // fail closed: an unreadable file may be a manifest
		}
	}
	for _, key := range ownWords {
		if strings.Contains(m.Source.Text, key) {
			return true
		}
	}
	return named
}

// ownWords are keys that only manifests contain.
var ownWords = []string{
	`"allowed_side_effects"`, `"side_effect_class"`, "matrix://agent/", `"required_mcp_servers"`, `"permission_scopes"`,
	`"system_prompt"`, `"example_prompts"`, `"credential_slots"`, "cpu_ms_per_task", "budget_credits_per_hour",
}

// Valid reports whether the manifest has no errors.
func (m *Manifest) Valid() bool { return !slices.ContainsFunc(m.Diagnostics, isError) }

// Errors returns the diagnostics that make the manifest invalid.
func (m *Manifest) Errors() []Diagnostic {
	var errs []Diagnostic
	for _, d := range m.Diagnostics {
		if isError(d) {
			errs = append(errs, d)
		}
	}
	return errs
}

func isError(d Diagnostic) bool { return d.Severity == diag.Error }

// Digest returns the sha256 of the manifest's canonical form. It is empty for a manifest with errors.
func (m *Manifest) Digest() string {
	if a := m.Agent(); a != nil {
		return a.Digest
	}
	return ""
}

// Agent returns the neutral model, which all callers share. It is nil for a manifest with errors.
func (m *Manifest) Agent() *agent.Agent {
	if m.model == nil {
		return nil
	}
	return m.model()
}

// Remote returns the manifest of a hosted agent as seen from this machine; see [agent.Agent.Remote]. For other agents it
// returns m.
func (m *Manifest) Remote() *Manifest {
	a := m.Agent()
	if a == nil || !a.Hosted() {
		return m
	}
	remote := *m
	hosted := a.Remote()
	remote.model = func() *agent.Agent { return hosted }
	return &remote
}
