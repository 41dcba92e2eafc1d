package pack

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// interpreter is a program that gets the file to run as its first argument.
type interpreter struct {
	names []string
	// options lists the options that do not change which code runs. An option that ends in "=" takes a value.
	options []string
	// letters contains the one-letter options that do not change which code runs. They can be combined after a single
	// hyphen.
	letters string
}

var interpreters = []interpreter{
	{[]string{"node", "nodejs"}, []string{
		"--no-warnings", "--no-deprecation", "--enable-source-maps", "--experimental-strip-types",
		"--experimental-transform-types", "--trace-warnings", "--trace-uncaught", "--use-system-ca", "--max-old-space-size=",
		"--max-http-header-size=", "--stack-size=",
		"--unhandled-rejections=", "--disable-warning=",
	}, ""},
	{[]string{"bun"}, []string{"--bun", "--smol", "--silent"}, ""},
	{[]string{"python", "pypy"}, nil, "uBEsSIOqPb"},
	{[]string{"sh", "bash", "dash", "zsh"}, nil, "eux"},
	{[]string{"ruby", "perl", "php", "tsx"}, nil, "w"},
}

// matches reports whether program is one of the interpreter's names. For Python, the version in a name such as
// python3.12 is ignored.
func (in interpreter) matches(program string) bool {
	return slices.Contains(in.names, program) || in.names[0] == "python" &&
		slices.Contains(in.names, strings.TrimRight(program, "0123456789."))
}

// isHarmless reports whether an option is known to have no influence on which code runs.
func (in interpreter) isHarmless(option string) bool {
	name, _, joined := strings.Cut(option, "=")
	if joined {
		name += "="
	}
	letters, _ := strings.CutPrefix(option, "-")
	return slices.Contains(in.options, name) || letters != "" && strings.Trim(letters, in.letters) == ""
}

// launchers lists programs that run other code, which the hash of the launcher does not cover.
var launchers = []string{
	"docker", "podman", "nerdctl", "deno", "go", "cargo", "java", "dotnet", "make", "sudo", "env", "nix", "npm", "pnpm",
	"yarn", "uv", "pipx", "cmd", "powershell", "pwsh", "wsl", "ssh", "nohup", "xargs", "ts-node", "bundle", "poetry",
	"conda", "mise",
}

// identifyLocal identifies a command that starts a file or a program on this machine.
func (c *command) identifyLocal() (Ref, error) {
	program := c.argv[0]
	if program == "" {
		return Ref{}, c.unpinnable("the server has no command", "add a command to the server")
	}
	name := c.program()
	for _, in := range interpreters {
		if in.matches(name) {
			return c.script(name, in)
		}
	}
	switch {
	case slices.Contains(launchers, name):
		return Ref{}, c.unpinnable(diag.Quote(name)+" cannot be pinned, because its hash does not cover the code it runs",
			"start the server's own program, or its package with npx or uvx")
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
		if !in.isHarmless(word) {
			return Ref{}, c.unpinnable("the option "+diag.Quote(word)+" could run code that is not in a file",
				"specify the server's file directly after the interpreter")
		}
		ref.Flags = append(ref.Flags, word)
	}
	if c.off >= len(c.argv) || c.argv[c.off] == "" {
		return Ref{}, c.unpinnable("the command does not specify a file", "specify the server's file after the interpreter")
	}
	ref.Name = c.argv[c.off]
	if name == "bun" && !strings.ContainsAny(ref.Name, "./") {
		return Ref{}, c.unpinnable(diag.Quote(ref.Name)+" could be the name of a script in package.json",
			"specify the server's file, including the extension")
	}
	c.off++
	ref.Args = c.rest()
	return ref, nil
}

// OpenLocal hashes the file or program that ref refers to. Paths are relative to the manifest's folder. The file is not
// copied to the store, because it could import other files in its folder. If the file is a script in a project,
// OpenLocal hashes all files of the project.
func OpenLocal(ref Ref, manifest string) (*Package, error) {
	manifest, err := filepath.Abs(manifest)
	if err != nil {
		return nil, localError(ref, err)
	}
	dir := filepath.Dir(manifest)
	var file string
	var argv []string
	switch ref.Kind {
	case File:
		if file = ref.Name; !filepath.IsAbs(file) {
			file = filepath.Join(dir, file)
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
		return nil, fail(Unpinnable, ref.Name, "this is neither a local file nor a program",
			"open the package with the package store instead", nil)
	}
	got, err := hashFile(file)
	if err != nil {
		return nil, localError(ref, err)
	}
	p := &Package{
		Kind: ref.Kind, Name: ref.Name, Version: ref.Version, Digest: got, Platform: platform(), File: file, argv: argv,
	}
	if ref.Runtime != "" && strings.ContainsAny(ref.Runtime, `/\`) {
		p.interpreter = argv[0]
	}
	p.script = isScript(ref, file)
	if err = p.hashProject(ref, manifest); err != nil {
		return nil, fail(NotFound, ref.Name, "a file of the server's project cannot be read",
			"check the file's permissions", err)
	}
	if p.Tree != "" { // otherwise Python would write compiled files into the project
		p.Env = map[string]string{"PYTHONDONTWRITEBYTECODE": "1"}
	}
	return p, nil
}

// Compare compares a local file with the digest that the manifest pins, and its project with the digest in the lock
// file. If a digest differs, Compare fails with Tampered. It does not compare the project if want.Tree is empty.
func (p *Package) Compare(want Want) error {
	detail := ""
	switch {
	case p.Digest != want.Digest:
		detail = "the file has the sha256 " + p.Digest + ", but the manifest pins " + want.Digest
	case want.Tree != "" && p.Tree != want.Tree:
		detail = "other files of its project changed since they were locked"
		if p.interpreter != "" {
			detail = "its interpreter or other files of its project changed since they were locked"
		}
	default:
		return nil
	}
	return &Error{
		Code: Tampered, What: p.Name, File: p.Name, Detail: detail,
		Hint: "if you made this change, pin the new content", Command: lockCommand,
	}
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
		return "", fail(RuntimeMissing, name, "is not installed", "install the program, or add its folder to PATH", err)
	}
	return found, nil
}

func localError(ref Ref, err error) error {
	if os.IsNotExist(err) {
		return fail(RuntimeMissing, ref.Name, "the file does not exist",
			"check the path; it can be absolute or relative to the manifest's folder", err)
	}
	return fail(NotFound, ref.Name, "the file cannot be read", "check the file's permissions", err)
}
