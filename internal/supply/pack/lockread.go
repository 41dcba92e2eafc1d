package pack

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/manifest/read"
	"github.com/ambit-run/ambit/tooluri"
)

// lockAgain is the hint for a lock file that cannot be used. It does not suggest overwriting the file, because the
// pins in the file would then be lost without a review.
const lockAgain = "restore the lock file, or remove it and lock again"

//go:embed rules.txt
var rulesText string

// Rules lists the diagnostic rules for lock files.
var Rules = diag.ParseRules(rulesText)

var (
	ruleField   = Rules.Get("LK001")
	ruleVersion = Rules.Get("LK002")
	ruleDigest  = Rules.Get("LK003")
	ruleHash    = Rules.Get("LK004")
	ruleEntry   = Rules.Get("LK005")
)

// Problems lists all problems in a lock file, sorted by their position in the file.
type Problems []diag.Diagnostic

func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, d := range p {
		lines[i] = fmt.Sprintf("%d:%d: %s: %s (%s)", d.Line, d.Column, d.Code, d.Message, cmp.Or(d.Hint, lockAgain))
	}
	return strings.Join(lines, "; ")
}

// ReadLock reads and checks a lock file.
func ReadLock(path string) (*Lock, error) {
	b, err := readBounded(path, doc.MaxBytes)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fail(LockMissing, path, "the lock file does not exist", "write a lock file", err, lockCommand)
	case err != nil:
		return nil, fail(LockInvalid, path, "the lock file cannot be read",
			"a lock file must be a regular file of at most 16 MiB; "+lockAgain, err, lockCommand)
	}
	return ParseLock(path, b)
}

type lockFile struct {
	Version      int                       `json:"version"`
	Agents       map[string]*LockedAgent   `json:"agents"`
	Dependencies map[string]jsontext.Value `json:"dependencies,omitempty"`
}

// ParseLock parses a lock file and checks every hash in it. Errors refer to the file by the given name. If the lock
// file is invalid, the error wraps [Problems].
func ParseLock(name string, text []byte) (*Lock, error) {
	if len(text) > doc.MaxBytes || !utf8.Valid(text) {
		return nil, fail(LockInvalid, name, "the lock file is too large or not UTF-8", lockAgain, nil, lockCommand)
	}
	r := &lockReader{lists: map[string][]byte{}, definitions: map[string][]byte{}}
	r.Reader = read.Reader{Reporter: diag.Open(name, string(text), true), Unknown: ruleField}
	if tree, complete := doc.ParseJSON(r.Source, r.Reporter); complete {
		r.checkShape(tree.Root(), reflect.TypeFor[lockFile]())
		r.check(tree.Root())
	}
	problems := Problems(r.Finish())
	if i := slices.IndexFunc(problems, func(d diag.Diagnostic) bool { return d.Code == ruleVersion.Code }); i >= 0 {
		return nil, fail(LockTooNew, name, "a newer version of ambit wrote the lock file", ruleVersion.Fix, problems[i:i+1])
	}
	problems = slices.DeleteFunc(problems, func(d diag.Diagnostic) bool {
		// Tool schemas can contain numbers that float64 cannot represent exactly. This is harmless, because ambit does not
		// compute with them.
		return d.Code == diag.InexactNumber.Code
	})
	var file lockFile
	var err error = problems
	if len(problems) == 0 {
		err = json.Unmarshal(text, &file, json.RejectUnknownMembers(true))
	}
	if err != nil {
		return nil, fail(LockInvalid, name, "the lock file is not valid", lockAgain, err, lockCommand)
	}
	for _, a := range file.Agents {
		for _, s := range a.Servers {
			for name, t := range s.Tools {
				s.Tools[name] = LockedTool{t.Hash, r.definitions[t.Hash]}
			}
		}
	}
	return &Lock{Agents: file.Agents, Dependencies: r.lists}, nil
}

type lockReader struct {
	read.Reader
	// The keys of both maps are digests. The values are canonical JSON: the first map contains lists of dependencies, and
	// the second map contains tool definitions.
	lists, definitions map[string][]byte
}

// checkShape checks that v can be decoded into the Go type t. It reports values of the wrong JSON type, missing fields
// and unknown fields.
func (r *lockReader) checkShape(v doc.Value, t reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer:
		r.checkShape(v, t.Elem())
	case reflect.Struct:
		o := r.Object(v)
		for i := range t.NumField() {
			name, option, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			r.checkShape(o.Get(name, read.Presence(option == "")), t.Field(i).Type)
		}
		o.Done()
	case reflect.Map:
		if !r.Is(v, doc.Object) {
			return
		}
		for m := range v.Each() {
			if m.Key() == "" {
				r.Report(ruleEntry, m.KeyPlace(), "", "a name is empty")
			}
			r.checkShape(m, t.Elem())
		}
	case reflect.Slice:
		// The field contains the JSON of a list of dependencies or of a definition.
		if t.Elem().Kind() == reflect.Uint8 {
			r.Is(v, doc.Object)
		} else if r.Is(v, doc.Array) {
			for item := range v.Each() {
				r.checkShape(item, t.Elem())
			}
		}
	case reflect.String:
		if r.Is(v, doc.String) && t == reflect.TypeFor[Kind]() {
			var words []string
			for _, k := range Kinds {
				words = append(words, string(k))
			}
			r.OneOf(v, words)
		}
	case reflect.Int:
		r.Is(v, doc.Number)
	case reflect.Bool:
		r.Is(v, doc.Bool)
	}
}

// check checks the content of a lock file. Every part must match its hash, and the parts must not contradict each
// other.
func (r *lockReader) check(root doc.Value) {
	if v := root.Get("version"); v.Is(doc.Number) {
		if n, ok := v.Int(); !ok || n < lockVersion {
			r.Report(ruleEntry, v.Place(), "", "%s is not a valid version of the lock file format", diag.Quote(v.Text()))
		} else if n > lockVersion {
			r.Report(ruleVersion, v.Place(), "",
				"the lock file has format version %d, but this ambit supports only format version %d",
				n, lockVersion)
		}
	}
	for list := range root.Get("dependencies").Each() {
		if list.Is(doc.Object) && r.digest(list.Key(), list.KeyPlace()) {
			form, err := canonical([]byte(list.Raw()))
			if err != nil || digestOf(form) != list.Key() {
				r.Report(ruleHash, list.KeyPlace(), "", "the list of dependencies does not match this digest")
			}
			r.lists[list.Key()] = form
		}
	}
	for agent := range root.Get("agents").Each() {
		for server := range agent.Get("servers").Each() {
			r.pkg(server.Get("package"))
			resolved := server.Get("resolved")
			recipe := resolved.Get("recipe")
			r.filled(resolved.Get("version"))
			r.filled(recipe.Get("name"))
			for need := range recipe.Get("needs").Each() {
				r.filled(need)
			}
			r.isDigest(recipe.Get("digest"))
			for tool := range server.Get("tools").Each() {
				r.tool(tool)
			}
		}
	}
}

func (r *lockReader) filled(v doc.Value) {
	if v.Is(doc.String) && v.Text() == "" {
		r.Report(diag.EmptyText, v.Place(), "", "the string must not be empty")
	}
}

// isDigest reports whether v is a digest. If v is a string but not a digest, isDigest adds a diagnostic. Values that
// are not strings are already reported by checkShape.
func (r *lockReader) isDigest(v doc.Value) bool {
	return v.Is(doc.String) && r.digest(v.Text(), v.Place())
}

func (r *lockReader) digest(s string, at diag.Place) bool {
	if !tooluri.IsDigest(s) {
		r.Report(ruleDigest, at, "", "%s is not \"sha256:\" followed by 64 lower-case hexadecimal digits", diag.Quote(s))
		return false
	}
	return true
}

func (r *lockReader) pkg(v doc.Value) {
	if !v.Is(doc.Object) {
		return
	}
	o := r.Object(v)
	kind := Kind(v.Get("kind").Text())
	stored := kind == NPM || kind == PyPI || kind == MCPB
	r.filled(v.Get("name"))
	r.isDigest(o.Get("digest", read.Presence(stored || kind == File || kind == Program)))
	if folder := v.Get("folder"); r.isDigest(folder) && kind != File {
		r.Report(ruleEntry, folder.Place(), "", "\"folder\" is invalid for a package of the kind %s",
			diag.Quote(string(kind)))
	}
	builds := o.Get("builds", read.Presence(stored))
	if builds.Is(doc.Object) && slices.Contains(Kinds, kind) && (builds.Len() > 0) != stored {
		r.Report(ruleEntry, builds.Place(), "", "\"builds\" is invalid for a package of the kind %s",
			diag.Quote(string(kind)))
	}
	for b := range builds.Each() {
		if os, arch, _ := strings.Cut(b.Key(), "/"); os == "" || arch == "" || strings.Contains(arch, "/") {
			r.Report(ruleEntry, b.KeyPlace(), "", "%s is not of the form os/arch", diag.Quote(b.Key()))
		}
		r.isDigest(b.Get("tree"))
		if list := b.Get("lockfile"); r.isDigest(list) && r.lists[list.Text()] == nil {
			r.Report(ruleEntry, list.Place(), "", "the lock file does not contain a list of dependencies with this digest")
		}
	}
	var names []string
	scripts := v.Get("scripts")
	for s := range scripts.Each() {
		names = append(names, s.Text())
	}
	if scripts.Is(doc.Array) && (len(names) == 0 || !slices.Equal(names, sorted(names))) {
		r.Report(ruleEntry, scripts.Place(), "", "the names in \"scripts\" must be sorted and unique")
	}
}

func (r *lockReader) tool(v doc.Value) {
	hash, definition := v.Get("hash"), v.Get("definition")
	if !r.isDigest(hash) || !definition.Is(doc.Object) {
		return
	}
	t, err := LockTool([]byte(definition.Raw()))
	name := definition.Get("name")
	switch {
	case err != nil:
		r.Report(ruleHash, definition.Head(), "", "the definition cannot be hashed")
	case t.Hash != hash.Text():
		r.Report(ruleHash, hash.Place(), "", "the hash does not match the tool's definition")
	case !name.Is(doc.String) || name.Text() != v.Key():
		r.Report(ruleEntry, definition.Head(), "", "the name in the definition differs from the name of the tool")
	}
	r.definitions[t.Hash] = t.Definition
}
