// Package manifest parses agent manifests in four dialects and reports all their problems. It also compares, converts
// and forks manifests.
//
// # Use
//
// [Load] parses a file, and [Parse] parses bytes. Both detect the dialect, check its rules and return a [Manifest]
// with all its problems. Each problem is a [Diagnostic] with a location, a stable code and a hint. If any problem is
// an error, Load and Parse return the manifest together with an [*InvalidError].
//
// [Manifest.Agent] returns the agent that a valid manifest describes; see package agent. [Diff] compares two agents. It
// separates changes that extend the agent's rights from changes that reduce them. [Convert] translates a manifest to
// another dialect, and lists losses and additions. [Fork] renames an agent.
//
// # Design
//
// Manifests of all dialects go through the same steps:
//
//	bytes → encoding → syntax → dialect → rules of the dialect → hygiene → sorted diagnostics
//
// If a syntax error stops the parser, the rules do not run, because they would report consequences of the syntax
// error. All other problems are reported together. The hygiene step is the same for every dialect. It reports texts
// that look like a secret or contain invisible characters. Diagnostics never show a secret.
//
// The digest of a manifest ([Manifest.Digest]) is the SHA-256 of its canonical JSON (RFC 8785). White space and key
// order do not change the digest. TOML is first converted to JSON.
//
// Time and memory are limited: a manifest can have at most 16 MiB, 100 levels, a million values and 10,000
// diagnostics. The package runs no programs, opens no connections and reads only the manifest file. Several
// goroutines can use a Manifest at the same time.
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

// Diagnostic is a problem in a manifest, with a location, a stable code, a message and a hint. Rule explains a code.
type (
	Diagnostic = diag.Diagnostic
	Rule       = diag.Rule
)

// Options controls how a manifest is checked. The zero value is right for most uses.
type Options struct {
	// Dialect is the dialect of the manifest. If it is empty or unknown, the dialect is detected.
	Dialect agent.Dialect
	// Strict turns warnings into errors and enables additional checks.
	Strict bool
	// LoopbackHTTP allows localhost and loopback addresses in FindAgent actions and slots. Actions can also use plain
	// http with these addresses. The option is for development.
	LoopbackHTTP bool
	// NoTools accepts Matrix servers whose list of tools is empty. The option is for commands that start the servers to
	// find their tools.
	NoTools bool
}

// Manifest is a parsed manifest with its problems.
type Manifest struct {
	// Path is the file name that was passed to Load or Parse.
	Path string
	// Dialect is the dialect of the manifest, or "" if the dialect is not known.
	Dialect agent.Dialect
	// Diagnostics lists all problems in file order.
	Diagnostics []Diagnostic
	// Source is the text of the manifest. Source.Frame returns the source line of a diagnostic.
	Source *diag.Source

	typed   compiler
	compile sync.Once
	agent   *agent.Agent // set by compile
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

// Load parses the manifest file at path. If the manifest has errors, Load returns the manifest and an *InvalidError.
// Any other error means that the file could not be read.
func Load(path string, o Options) (*Manifest, error) {
	src, err := readFile(path)
	if err != nil {
		return nil, err
	}
	// Nothing modifies src later, so the string can share its memory.
	return parse(path, unsafe.String(unsafe.SliceData(src), len(src)), o)
}

// readFile reads a manifest file, up to one byte more than the maximum size. The extra byte shows the caller that the
// file is too large.
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

// Parse parses a manifest that is already in memory. A name that ends in .json or .toml selects the syntax. For other
// names, the syntax depends on Options.Dialect or on the text. If the manifest has errors, Parse returns the manifest
// and an *InvalidError. It returns no other errors.
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
	return m, nil
}

// parseTree parses the source of r as JSON or TOML. The dialect d may be empty. The second result is false if an
// error stopped the parser.
func parseTree(r *diag.Reporter, d agent.Dialect) (t *doc.Tree, complete bool) {
	if isTOML(r.Source.Name, r.Source.Text, d) {
		return doc.ParseTOML(r.Source, r)
	}
	return doc.ParseJSON(r.Source, r)
}

// tree parses the text again. A Manifest does not keep the tree, because most callers need only the diagnostics.
func (m *Manifest) tree() *doc.Tree {
	t, _ := parseTree(diag.Open(m.Path, m.Source.Text, false), m.Dialect)
	return t
}

// read checks a parsed manifest against the rules of its dialect. It first detects the dialect if m.Dialect is empty or
// unknown.
func (m *Manifest) read(root doc.Value, complete bool, r *diag.Reporter, o Options) {
	if root.Ok() && !root.Is(doc.Object) {
		// The parser replaces an unknown word with null and reports the word. Do not report the null as well.
		if complete && (!root.Is(doc.Null) || r.Errors() == 0) {
			r.Report(diag.NotObject, root.Head(), "", "a manifest must be an object, not %s", root.Kind())
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
		if o.NoTools && f.parseNoTools != nil {
			parse = f.parseNoTools
		}
		m.typed = parse(root, r)
		checkName(f.nameOf(root), r)
	}
}

// decode checks the size and encoding of a manifest, and removes a byte order mark. It returns a reporter for the
// remaining text, and whether this text can be parsed.
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

// Suspect reports whether a file of unknown dialect is probably a broken manifest. One sign is a file name that is
// typical of manifests. Another sign is a file that cannot be parsed but contains a text that occurs only in manifests.
func (m *Manifest) Suspect() bool {
	if m.Dialect != "" || m.Valid() {
		return false
	}
	base := filepath.Base(m.Path)
	named := base == "agent.toml" || base == "findagent.json"
	for _, d := range m.Diagnostics {
		switch d.Code {
		case diag.UnknownDialect.Code: // the file was parsed and is not a manifest
			return named && !isSchema(m.tree().Root())
		case diag.MixedDialects.Code, diag.NotUTF8.Code, diag.TooLarge.Code:
			return true // fail closed: an unreadable file could be a manifest
		}
	}
	for _, key := range ownWords {
		if strings.Contains(m.Source.Text, key) {
			return true
		}
	}
	return named
}

// ownWords lists texts that occur only in manifests.
var ownWords = []string{
	`"allowed_side_effects"`, `"side_effect_class"`, "matrix://agent/", `"required_mcp_servers"`, `"permission_scopes"`,
	`"system_prompt"`, `"example_prompts"`, `"credential_slots"`, "cpu_ms_per_task", "budget_credits_per_hour",
}

// Valid reports whether the manifest has no errors.
func (m *Manifest) Valid() bool { return !slices.ContainsFunc(m.Diagnostics, isError) }

// Errors returns the diagnostics with severity Error.
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

// Digest returns the SHA-256 of the manifest's canonical JSON, or "" if the manifest has errors.
func (m *Manifest) Digest() string {
	if a := m.Agent(); a != nil {
		return a.Digest
	}
	return ""
}

// Agent returns the agent that the manifest describes, or nil if the manifest has errors. All callers share the same
// Agent and must not modify it.
func (m *Manifest) Agent() *agent.Agent {
	m.compile.Do(func() {
		if m.agent == nil && m.typed != nil && m.Valid() {
			a := m.typed.Compile()
			a.Digest = m.tree().Digest()
			m.agent = a // assign m.agent last, so that a panic cannot leave an agent without a digest
		}
	})
	return m.agent
}

// Remote returns a copy of m if the agent is hosted. The copy's Agent method returns the result of
// [agent.Agent.Remote]. If the agent is not hosted, or the manifest has errors, Remote returns m itself.
func (m *Manifest) Remote() *Manifest {
	a := m.Agent()
	if a == nil || !a.Hosted() {
		return m
	}
	return &Manifest{
		Path: m.Path, Dialect: m.Dialect, Diagnostics: m.Diagnostics, Source: m.Source, agent: a.Remote(),
	}
}
