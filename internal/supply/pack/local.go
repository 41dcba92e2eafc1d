package pack

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// interpreter runs the file that is its first argument.
type interpreter struct {
	names []string
	// options do not change which code runs; an option that ends in = has a value.
	// letters can be combined behind one hyphen.
	options []string
	letters string
}

var interpreters = []interpreter{
	{[]string{"node", "nodejs"}, []string{
		"--no-warnings", "--no-deprecation", "--enable-source-maps", "--experimental-strip-types", "--experimental-transform-types",
		"--trace-warnings", "--trace-uncaught", "--use-system-ca", "--max-old-space-size=", "--max-http-header-size=", "--stack-size=",
		"--unhandled-rejections=", "--disable-warning=",
	}, ""},
	{[]string{"bun"}, []string{"--bun", "--smol", "--silent"}, ""},
	{[]string{"python", "pypy"}, nil, "uBEsSIOqPb"},
	{[]string{"sh", "bash", "dash", "zsh"}, nil, "eux"},
	{[]string{"ruby", "perl", "php", "tsx"}, nil, "w"},
}

// is reports whether a program is this interpreter; python3.12 is python.
func (in interpreter) is(program string) bool {
	return slices.Contains(in.names, program) || in.names[0] == "python" && slices.Contains(in.names, strings.TrimRight(program, "0123456789."))
}

// harmless reports whether an option does not change which code runs.
func (in interpreter) harmless(option string) bool {
	name, _, joined := strings.Cut(option, "=")
	if joined {
		name += "="
	}
	letters, _ := strings.CutPrefix(option, "-")
	return slices.Contains(in.options, name) || letters != "" && strings.Trim(letters, in.letters) == ""
}

// launchers run code that their own hash does not cover.
var launchers = []string{
	"docker", "podman", "nerdctl", "deno", "go", "cargo", "java", "dotnet", "make", "sudo", "env", "nix", "npm", "pnpm", "yarn",
	"uv", "pipx", "cmd", "powershell", "pwsh", "wsl", "ssh", "nohup", "xargs", "ts-node", "bundle", "poetry", "conda", "mise",
}

// local identifies a command that starts a file or program of this machine.
func (c *command) local() (Ref, error) {
	program := c.argv[0]
	if program == "" {
		return Ref{}, c.unpinnable("there is no command", "give the server a command")
	}
	name := c.program()
	for _, in := range interpreters {
		if in.is(name) {
			return c.script(name, in)
		}
	}
	switch {
	case slices.Contains(launchers, name):
		return Ref{}, c.unpinnable(diag.Quote(name)+" cannot be pinned: its hash does not cover the code it starts", "start the server's own program, or its package with npx or uvx")
	case strings.ContainsAny(program, `/\`):
		return Ref{Kind: File, Name: program, Args: c.argv[1:]}, nil
	}
	return Ref{Kind: Program, Name: program, Args: c.argv[1:]}, nil
}

// script identifies the file that an interpreter runs.
func (c *command) script(name string, in interpreter) (Ref, error) {
	ref := Ref{Kind: File, Runtime: c.argv[0]}
	if name == "bun" && slices.Equal(c.next(1), []string{"run"}) {
		ref.Flags = []string{"run"}
	}
	c.off = 1 + len(ref.Flags)
	for ; c.off < len(c.argv); c.off++ {
		word := c.argv[c.off]
		if word == "--" {
			c.off++
			break
		}
		if !strings.HasPrefix(word, "-") {
			break
		}
		if !in.harmless(word) {
			return Ref{}, c.unpinnable(diag.Quote(word)+" may run code that is not in a file", "name the server's file right after the interpreter")
		}
		ref.Flags = append(ref.Flags, word)
	}
	if c.off >= len(c.argv) || c.argv[c.off] == "" {
		return Ref{}, c.unpinnable("it names no file to run", "name the server's file after the interpreter")
	}
	ref.Name = c.argv[c.off]
	if name == "bun" && !strings.ContainsAny(ref.Name, "./") {
		return Ref{}, c.unpinnable(diag.Quote(ref.Name)+" may be a script of package.json", "name the server's file, with its extension")
	}
	c.off++
	ref.Args = c.rest()
	return ref, nil
}

// OpenLocal hashes the file or program that ref names, relative to dir. If digest is
// not empty, a file of another digest is refused. The file is not copied: it runs in
// place, beside the files it imports.
func OpenLocal(ref Ref, dir, digest string) (*Package, error) {
	var file string
	var argv []string
	var err error
	switch ref.Kind {
	case File:
		if file = ref.Name; !filepath.IsAbs(file) {
			file = filepath.Join(dir, file)
		}
		if file, err = filepath.Abs(file); err != nil {
			return nil, localError(ref, err)
		}
		argv = []string{file}
		if ref.Runtime != "" {
			runtime, err := lookup(ref.Runtime, dir)
			if err != nil {
				return nil, err
			}
			argv = slices.Concat([]string{runtime}, ref.Flags, argv)
		}
	case Program:
		if file, err = lookup(ref.Name, dir); err != nil {
			return nil, err
		}
		argv = []string{file}
	default:
		return nil, &Error{Code: Unpinnable, What: ref.Name, Detail: "is neither a file nor a program", Hint: "open it in the package store"}
	}
	got, err := hashFile(file)
	if err != nil {
		return nil, localError(ref, err)
	}
	if digest != "" && got != digest {
		return nil, &Error{
			Code: Tampered, What: ref.Name, File: ref.Name, Detail: "its sha256 is " + got + ", but the manifest pins " + digest,
			Hint: "if you made the change, pin it", Command: lockCommand,
		}
	}
	return &Package{Kind: ref.Kind, Name: ref.Name, Version: ref.Version, Digest: got, Platform: platform(), File: file, argv: argv}, nil
}

// lookup finds a program by name on PATH, or by its path relative to dir.
func lookup(name, dir string) (string, error) {
	if strings.ContainsRune(name, filepath.Separator) || strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
	}
	found, err := exec.LookPath(name)
	if err == nil {
		found, err = filepath.Abs(found)
	}
	if err != nil {
		return "", &Error{Code: RuntimeMissing, What: name, Detail: "is not installed", Err: err, Hint: "install it, or add its folder to PATH"}
	}
	return found, nil
}

func localError(ref Ref, err error) error {
	if os.IsNotExist(err) {
		return &Error{Code: RuntimeMissing, What: ref.Name, Detail: "there is no such file", Err: err, Hint: "paths are relative to the manifest's folder"}
	}
	return &Error{Code: NotFound, What: ref.Name, Detail: "the file cannot be read", Err: err, Hint: "check its permissions"}
}
