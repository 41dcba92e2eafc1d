package pack

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/manifest/read"
	"github.com/ambit-run/ambit/tooluri"
)

// lockAnew is the hint for a lock that cannot be used. It does not suggest
// overwriting, which would drop the lock's promises unreviewed.
const lockAnew = "restore it, or remove it and lock again"

// The rules of lock files.
var (
	ruleField = diag.NewError(
		"LK001", "a field that lock files do not have",
		"ambit cannot check a field that it does not know, so it refuses the lock.",
		lockAnew,
	)
	ruleVersion = diag.NewError(
		"LK002", "a newer version of the lock file's format",
		"The lock may contain promises that this version of ambit would not check.",
		"update ambit",
	)
	ruleDigest = diag.NewError(
		"LK003", "not a sha256",
		"Digests in a lock are sha256: and 64 lower-case hex digits.",
		lockAnew,
	)
	ruleHash = diag.NewError(
		"LK004", "a hash that is not that of its content",
		"One was edited without the other, or a merge mixed two locks. The locked content is no longer certain.",
		lockAnew,
	)
	ruleEntry = diag.NewError(
		"LK005", "an entry that fits nothing",
		"The parts of a lock refer to each other; this one refers to a missing part or has a different name.",
		lockAnew,
	)
)

// Rules are the rules of lock files.
var Rules = []*diag.Rule{ruleField, ruleVersion, ruleDigest, ruleHash, ruleEntry}

// ReadLock reads and checks a lock file.
func ReadLock(path string) (*Lock, error) {
	b, err := readBounded(path, doc.MaxBytes)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &Error{Code: LockMissing, What: path, Detail: "there is no lock file", Err: err, Hint: "write one", Command: lockCommand}
	case err != nil:
		return nil, &Error{Code: LockInvalid, What: path, Detail: "the lock file cannot be read", Err: err, Hint: "a lock file is a plain file of at most 16 MiB; " + lockAnew, Command: lockCommand}
	}
	return ParseLock(path, b)
}

// ParseLock parses a lock. The error's Problems list every problem.
func ParseLock(name string, text []byte) (*Lock, error) {
	r := &lockReader{text: string(text)}
	src := diag.NewSource(name, r.text)
	r.Reader = read.Reader{Reporter: diag.NewReporter(src, true), Unknown: ruleField}
	invalid := &Error{Code: LockInvalid, What: name, Source: src, Hint: lockAnew, Command: lockCommand}
	if len(text) > doc.MaxBytes || !utf8.Valid(text) {
		invalid.Detail = "the lock file is too large or not UTF-8"
		return nil, invalid
	}
	l := NewLock()
	tree, complete := doc.ParseJSON(src, r.Reporter)
	if root := tree.Root(); complete {
		r.lock(root, l)
	}
	for _, d := range r.Finish() {
		switch d.Code {
		case ruleVersion.Code:
			return nil, &Error{Code: LockTooNew, What: name, Detail: d.Message, Hint: d.Hint, Source: src, Problems: []diag.Diagnostic{d}}
		case diag.InexactNumber.Code: // schemas contain such numbers, and nothing here reads them
		default:
			invalid.Problems = append(invalid.Problems, d)
		}
	}
	if n := len(invalid.Problems); n > 0 {
		first := invalid.Problems[0]
		invalid.Detail = fmt.Sprintf("line %d: %s", first.Line, first.Message)
		if n > 1 {
			invalid.Detail += fmt.Sprintf(" (and %d more)", n-1)
		}
		return nil, invalid
	}
	return l, nil
}

type lockReader struct {
	read.Reader
	text string
	deps map[string][]byte
}

func (r *lockReader) lock(root doc.Value, l *Lock) {
	o := r.Object(root)
	if v := o.Get("version", read.Required); r.Is(v, doc.Number) {
		if n, ok := v.Int(); !ok || n < lockVersion {
			r.Report(ruleEntry, v.Place(), "", "%s is not a version of lock files", diag.Quote(v.Text()))
		} else if n > lockVersion {
			r.Report(ruleVersion, v.Place(), "", "the lock file has version %s, but this ambit supports version %d", diag.Quote(v.Text()), lockVersion)
		}
	}
	agents, deps := o.Get("agents", read.Required), o.Get("dependencies", read.Optional)
	o.Done()
	for v := range r.members(deps) {
		if r.digest(v.Key(), v.KeyPlace()) && r.Is(v, doc.Object) {
			form, err := canonical([]byte(r.source(v)))
			if err != nil || digestOf(form) != v.Key() {
				r.Report(ruleHash, v.KeyPlace(), "", "the list of dependencies does not match this digest")
			}
			l.Dependencies[v.Key()] = form
		}
	}
	r.deps = l.Dependencies
	for v := range r.members(agents) {
		o := r.Object(v)
		a := &LockedAgent{Servers: map[string]*LockedServer{}}
		for s := range r.members(o.Get("servers", read.Required)) {
			a.Servers[s.Key()] = r.server(s)
		}
		o.Done()
		l.Agents[v.Key()] = a
	}
}

// members yields the members of an object. It reports other values and empty keys.
func (r *lockReader) members(v doc.Value) func(func(doc.Value) bool) {
	return func(yield func(doc.Value) bool) {
		if !r.Is(v, doc.Object) {
			return
		}
		for m := range v.Each() {
			if m.Key() == "" {
				r.Report(ruleEntry, m.KeyPlace(), "", "a name is empty")
				continue
			}
			if !yield(m) {
				return
			}
		}
	}
}

// source is the text of a value in the file.
func (r *lockReader) source(v doc.Value) string {
	p := v.Place()
	return r.text[p.Start:p.End]
}

func (r *lockReader) digest(s string, at diag.Place) bool {
	if !tooluri.IsDigest(s) {
		r.Report(ruleDigest, at, "", "%s is not sha256: and 64 lower-case hex digits", diag.Quote(s))
		return false
	}
	return true
}

func (r *lockReader) server(v doc.Value) *LockedServer {
	o := r.Object(v)
	s := &LockedServer{Tools: map[string]LockedTool{}}
	s.Resolved = r.resolved(o.Get("resolved", read.Optional))
	s.Package = r.pkg(o.Get("package", read.Required))
	s.Protocol, _ = o.Text("protocol", read.Optional)
	for t := range r.members(o.Get("tools", read.Required)) {
		s.Tools[t.Key()] = r.tool(t)
	}
	o.Done()
	return s
}

func (r *lockReader) pkg(v doc.Value) LockedPackage {
	o := r.Object(v)
	var p LockedPackage
	kinds := make([]string, len(Kinds))
	for i, k := range Kinds {
		kinds[i] = string(k)
	}
	kind, _ := o.Enum("kind", read.Required, kinds)
	p.Kind = Kind(kind)
	p.Name, _ = o.Text("name", read.Required)
	p.Version, _ = o.String("version", read.Required)
	if d := o.Get("digest", read.Presence(kind != string(Remote) && kind != string(Builtin))); r.Is(d, doc.String) {
		r.digest(d.Text(), d.Place())
		p.Digest = d.Text()
	}
	stored := p.Kind == NPM || p.Kind == PyPI || p.Kind == MCPB
	builds := o.Get("builds", read.Presence(stored))
	if kind != "" && builds.Is(doc.Object) && (builds.Len() > 0) != stored {
		r.Report(ruleEntry, builds.Place(), "", "a package of kind %s has no such builds", diag.Quote(kind))
	}
	for b := range r.members(builds) {
		if p.Builds == nil {
			p.Builds = map[string]Build{}
		}
		p.Builds[b.Key()] = r.build(b)
	}
	p.Scripts = o.Texts("scripts", read.Optional)
	if v := o.Value().Get("scripts"); v.Ok() && (!slices.Equal(p.Scripts, sorted(p.Scripts)) || len(p.Scripts) == 0) {
		r.Report(ruleEntry, v.Place(), "", "the scripts must be sorted and unique")
	}
	o.Done()
	return p
}

func (r *lockReader) build(v doc.Value) Build {
	if os, arch, ok := strings.Cut(v.Key(), "/"); !ok || os == "" || arch == "" || strings.Contains(arch, "/") {
		r.Report(ruleEntry, v.KeyPlace(), "", "%s is not of the form os/arch", diag.Quote(v.Key()))
	}
	o := r.Object(v)
	var b Build
	if t := o.Get("tree", read.Required); r.Is(t, doc.String) {
		r.digest(t.Text(), t.Place())
		b.Tree = t.Text()
	}
	if f := o.Get("lockfile", read.Required); r.Is(f, doc.String) && r.digest(f.Text(), f.Place()) {
		b.Lockfile = f.Text()
		if _, ok := r.deps[b.Lockfile]; !ok {
			r.Report(ruleEntry, f.Place(), "", "the file does not contain this list of dependencies")
		}
	}
	o.Done()
	return b
}

func (r *lockReader) tool(v doc.Value) LockedTool {
	o := r.Object(v)
	var t LockedTool
	hash, def := o.Get("hash", read.Required), o.Get("definition", read.Required)
	o.Done()
	if r.Is(hash, doc.String) && r.digest(hash.Text(), hash.Place()) && r.Is(def, doc.Object) {
		got, form, err := HashTool([]byte(r.source(def)))
		switch {
		case err != nil: // ParseJSON has reported why
			r.Report(ruleHash, def.Head(), "", "the definition has no hash")
		case got != hash.Text():
			r.Report(ruleHash, hash.Place(), "", "the hash does not match the definition below it")
		case def.Get("name").Text() != v.Key():
			r.Report(ruleEntry, def.Head(), "", "the definition belongs to another tool")
		}
		t = LockedTool{Hash: hash.Text(), Definition: form}
	}
	return t
}
