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
	// NPM is a package from the npm registry. Its digest is the sha256 of the tarball.
	NPM Kind = "npm"
	// PyPI is a package from the Python package index. Its digest is the sha256 of the wheel.
	PyPI Kind = "pypi"
	// File is a local file. Its digest is the sha256 of the file.
	File Kind = "file"
	// Program is a program on PATH. Its digest is the sha256 of the executable.
	Program Kind = "program"
	// Remote is a server on another machine. ambit cannot verify its code.
	Remote Kind = "remote"
)

// Kinds lists all kinds.
var Kinds = []Kind{NPM, PyPI, MCPB, File, Program, Remote, Builtin}

// Ref is the package, file, program or endpoint that a server's command refers to.
type Ref struct {
	Kind Kind
	// Name is the package's name, the file's path as written, the program's name, or the endpoint.
	Name string
	// Version is the exact version. It is empty if no exact version is declared.
	Version string
	// Asked is the version in the arguments: an exact version, a tag or a range. It is empty if the arguments contain no
	// version.
	Asked string
	// Bin is the name of the program to run. The package contains this program. If Bin is empty, the default program runs.
	Bin string
	// Extras lists the requested optional parts of a Python package.
	Extras []string
	// Runtime is the interpreter that runs a file. For a Python package, it is the requested interpreter, if any.
	Runtime string
	// Flags lists the options of the interpreter.
	Flags []string
	// Args lists the arguments of the program itself.
	Args []string

	// spec is the index of the server's argument that names the package.
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

// Identify returns the package, file, program or endpoint that a server's command refers to. It looks only at the
// server's declaration, and uses neither the file system nor the network.
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
	if s.Placeholder && s.Version == UnknownVersion && ref.Asked == "" {
		return ref, nil // the newest version
	}
	ref.Version, err = exactVersion(ref, s.Version)
	if err != nil {
		return Ref{}, err
	}
	return ref, nil
}

// UnknownVersion is the version in a manifest whose author did not know the server's version. Together with a
// placeholder for the digest, it means the newest version.
const UnknownVersion = "0.0.0"

// ProgramOf identifies the program of a server, without its version. For a package, the result contains the kind and
// the name. For a local file, it contains a digest of the file, the interpreter and its options as written in the
// command. For any other command, it contains a digest of all words, because an argument can contain code or name a
// file with code.
func ProgramOf(s agent.Server) string {
	kind, name, words := "command", "", append([]string{s.Command}, s.Args...)
	if ref, err := Identify(s); err == nil {
		kind, name = string(ref.Kind), " "+ref.Name
		switch {
		case ref.Kind != File && ref.Kind != Program:
			return kind + name
		case ref.Runtime != "":
			words = slices.Concat([]string{ref.Runtime}, ref.Flags, []string{ref.Name})
		}
	}
	return kind + name + " " + digestOf([]byte(strings.Join(words, "\x00")))
}

// exactVersion returns the exact version to use. It fails if the version in the arguments contradicts the declared
// version.
func exactVersion(ref Ref, declared string) (string, error) {
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
		return "", fail(VersionConflict, ref.Name,
			"the arguments request version "+diag.Quote(ref.Asked)+", but the declared version is "+diag.Quote(declared),
			"use the same version in \"args\" and in \"version\"", nil)
	case exact && ref.Kind == PyPI:
		// The two versions can be spelled differently, such as 1.0 and 1.0.0. Use the spelling in the arguments, because the
		// index knows that spelling.
		return ref.Asked, nil
	}
	return declared, nil
}

// command is a command line that is being parsed.
type command struct {
	argv []string
	// off is the number of words in argv that have been parsed.
	off int
}

// identify finds the family that contains the command, and parses the command with the rules of this family. If no
// family contains the command, identify fails for "cmd /c" and calls identifyLocal for any other command.
func (c *command) identify() (Ref, error) {
	// On Windows, scripts are started with "cmd /c".
	if c.program() == "cmd" && len(c.argv) > 2 && strings.EqualFold(c.argv[1], "/c") {
		c.off = 2
	}
	name := c.program()
	for _, f := range families {
		for _, words := range f.words {
			if name == words[0] && slices.Equal(c.next(len(words)-1), words[1:]) {
				c.off += len(words)
				return f.read(c)
			}
		}
	}
	if c.off > 0 {
		return Ref{}, c.unpinnable("ambit cannot tell which code cmd runs", "use the program as the command, without cmd /c")
	}
	return c.identifyLocal()
}

// program returns the base name of the program, without its extension.
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

// next returns the n words after the program, or fewer if the command ends before that.
func (c *command) next(n int) []string {
	from := min(c.off+1, len(c.argv))
	return c.argv[from:min(from+n, len(c.argv))]
}

func (c *command) rest() []string { return c.argv[c.off:] }

func (c *command) unpinnable(detail, hint string) error {
	return fail(Unpinnable, diag.Quote(strings.Join(c.argv, " ")), detail, hint, nil)
}
