package pack

import (
	"path"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/tooluri"
)

// Kind is the kind of code that a server runs.
type Kind string

// The kinds.
const (
	// NPM is a package of the npm registry; its digest is that of the tarball.
	NPM Kind = "npm"
	// PyPI is a package of the Python index; its digest is that of the wheel.
	PyPI Kind = "pypi"
	// File is a local file; its digest is that of the file.
	File Kind = "file"
	// Program is a program on PATH; its digest is that of the executable.
	Program Kind = "program"
	// Remote is a server on another machine, which cannot be verified.
	Remote Kind = "remote"
)

// Kinds lists all kinds.
var Kinds = []Kind{NPM, PyPI, MCPB, File, Program, Remote, Builtin}

// Ref is the package, file, program or endpoint that a server's command names.
type Ref struct {
	Kind Kind
	// Name is the package's name, the file's path as written, the program's name, or
	// the endpoint.
	Name string
	// Version is the exact version; empty if none is declared.
	Version string
	// Asked is the version in the arguments: exact, a tag or a range; empty if there
	// is none.
	Asked string
	// Bin is the package's program to run; empty for its default program.
	Bin string
	// Extras are the optional parts of a Python package.
	Extras []string
	// Runtime interprets a file, with Flags. For a Python package it is the requested
	// interpreter, if any.
	Runtime string
	Flags   []string
	// Args are the program's own arguments.
	Args []string

	// spec is the index of the argument that names the package.
	spec int
}

// String returns the package's name and version for messages.
func (r Ref) String() string {
	switch {
	case r.Version == "" || r.Kind != NPM && r.Kind != PyPI:
		return r.Name
	case r.Kind == PyPI:
		return r.Name + "==" + r.Version
	}
	return r.Name + "@" + r.Version
}

// Identify returns what a server's command names. It reads only the command, no file
// and no network.
func Identify(s agent.Server) (Ref, error) {
	if s.Transport == agent.StreamableHTTP {
		return Ref{Kind: Remote, Name: s.Endpoint, Version: s.Version}, nil
	}
	c := command{argv: append([]string{s.Command}, s.Args...)}
	ref, err := c.identify()
	if err != nil {
		return Ref{}, err
	}
	if ref.Kind != NPM && ref.Kind != PyPI {
		ref.Version = s.Version
		return ref, nil
	}
	ref.Version, err = settle(ref, s.Version)
	if err != nil {
		return Ref{}, err
	}
	return ref, nil
}

// settle returns the exact version that the arguments and the declaration agree on.
func settle(ref Ref, declared string) (string, error) {
	pin, err := tooluri.ParsePin(declared)
	if err != nil || pin.Digest() {
		declared = ""
	}
	exact := IsExact(ref.Kind, ref.Asked)
	switch {
	case declared == "" && exact:
		return ref.Asked, nil
	case declared == "" || ref.Asked == "":
		return declared, nil
	case exact && !sameVersion(ref.Kind, ref.Asked, declared), !exact && !satisfies(ref.Asked, declared):
		return "", &Error{
			Code: VersionConflict, What: ref.Name,
			Detail: "the arguments name version " + diag.Quote(ref.Asked) + ", but version " + diag.Quote(declared) + " is declared",
			Hint:   "write the same version in both places",
		}
	case exact && ref.Kind == PyPI:
		return ref.Asked, nil // 1.0 and 1.0.0 are one version; the index knows it as written in the arguments
	}
	return declared, nil
}

// command is a command line that is being parsed. Offsets of arguments count from the
// first after the command itself.
type command struct {
	argv []string
	// off is the number of words of argv that are parsed.
	off int
}

// identify finds the family that the command belongs to.
func (c *command) identify() (Ref, error) {
	// Windows needs this wrapper for scripts.
	if c.program() == "cmd" && len(c.argv) > 2 && strings.EqualFold(c.argv[1], "/c") {
		c.off = 2
	}
	name := c.program()
	for _, f := range families {
		for _, words := range f.words {
			if name == words[0] && slices.Equal(c.next(len(words)-1), words[1:]) {
				c.off += len(words)
				return f.read(c, f)
			}
		}
	}
	if c.off > 0 {
		return Ref{}, c.unpinnable("a shell decides what runs", "name the program itself as the command")
	}
	return c.local()
}

// program is the base name of the program, without its extension.
func (c *command) program() string {
	if c.off >= len(c.argv) {
		return ""
	}
	name := path.Base(strings.ReplaceAll(c.argv[c.off], `\`, "/"))
	for _, ext := range []string{".exe", ".cmd", ".bat", ".ps1"} {
		if n := len(name) - len(ext); n > 0 && strings.EqualFold(name[n:], ext) {
			return name[:n]
		}
	}
	return name
}

// next returns the n words after the program, or fewer at the end.
func (c *command) next(n int) []string {
	from := min(c.off+1, len(c.argv))
	return c.argv[from:min(from+n, len(c.argv))]
}

// rest returns the words that are not parsed yet.
func (c *command) rest() []string { return c.argv[c.off:] }

func (c *command) unpinnable(detail, hint string) error {
	return &Error{Code: Unpinnable, What: diag.Quote(strings.Join(c.argv, " ")), Detail: detail, Hint: hint}
}
