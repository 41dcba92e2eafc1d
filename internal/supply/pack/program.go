package pack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// npmSelf is the part of a package's package.json that ambit uses.
type npmSelf struct {
	Name    string          `json:"name"`
	Version string          `json:"version"`
	Bin     json.RawMessage `json:"bin"`
}

func readNpmManifest(dir string) (npmSelf, error) {
	var self npmSelf
	b, err := readBounded(filepath.Join(dir, "package.json"), 4<<20)
	if err == nil {
		err = json.Unmarshal(b, &self)
	}
	return self, err
}

// bins maps the names of the package's programs to their paths in the package.
func (s npmSelf) bins() map[string]string {
	var one string
	if json.Unmarshal(s.Bin, &one) == nil && one != "" {
		return map[string]string{path.Base(s.Name): one}
	}
	var many map[string]string
	if json.Unmarshal(s.Bin, &many) != nil {
		return nil
	}
	return many
}

// nodeProgram returns the command that runs a package's program. It chooses the same program as npx.
func nodeProgram(tree string, ref Ref) ([]string, error) {
	dir := filepath.Join(tree, "node_modules", filepath.FromSlash(ref.Name))
	self, err := readNpmManifest(dir)
	if err != nil {
		return nil, fail(NoProgram, ref.String(), "the package's package.json cannot be read", "do not use this package",
			err)
	}
	bins := self.bins()
	names := slices.Sorted(maps.Keys(bins))
	if targets := sorted(slices.Collect(maps.Values(bins))); len(targets) == 1 && ref.Bin == "" {
		names = names[:1] // all names refer to the same program
	}
	chosen, err := chooseProgram(ref, names, path.Base(ref.Name))
	if err != nil {
		return nil, err
	}
	target := path.Clean(bins[chosen])
	if !filepath.IsLocal(filepath.FromSlash(target)) {
		return nil, fail(NoProgram, ref.String(),
			"the path of the program "+diag.Quote(chosen)+" leads outside the package",
			"do not use this package", nil)
	}
	return runFile(ref, filepath.Join(dir, filepath.FromSlash(target)))
}

// chooseProgram returns the requested program. If no program was requested, it returns the only program, or the
// program with the same name as the package.
func chooseProgram(ref Ref, names []string, own string) (string, error) {
	switch {
	case ref.Bin != "" && slices.Contains(names, ref.Bin):
		return ref.Bin, nil
	case ref.Bin != "":
		hint := diag.DidYouMean(ref.Bin, names)
		if hint == "" && len(names) > 0 {
			hint = "the package has the programs " + diag.Words(quoted(names), "and")
		}
		return "", fail(NoProgram, ref.String(), "the package has no program "+diag.Quote(ref.Bin), hint, nil)
	case len(names) == 1:
		return names[0], nil
	case slices.Contains(names, own):
		return own, nil
	case len(names) == 0:
		return "", fail(NoProgram, ref.String(), "the package has no program",
			"specify a package that has a program; this package is a library", nil)
	}
	option := "-p " + ref.Name
	if ref.Kind == PyPI {
		option = "--from " + ref.Name
	}
	return "", fail(NoProgram, ref.String(), "the package has several programs: "+diag.Words(quoted(names), "and"),
		"to choose one of them, change the arguments to: "+option+" PROGRAM", nil)
}

func quoted(names []string) []string {
	const most = 8
	var out []string
	for i, n := range names {
		if i == most {
			return append(out, fmt.Sprintf("%d more", len(names)-most))
		}
		out = append(out, diag.Quote(n))
	}
	return out
}

// runFile returns the command that runs one file of a tree. A script is run with the interpreter in its first line.
// JavaScript without such a line is run with node, and machine code is run directly.
func runFile(ref Ref, file string) ([]string, error) {
	start := make([]byte, 512)
	f, err := os.Open(file)
	if err == nil {
		defer f.Close()
		var n int
		n, err = io.ReadFull(f, start)
		start = start[:n]
	}
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return nil, fail(NoProgram, ref.String(), "the program of the package cannot be read",
			"report to the package's authors that the package is incomplete", err)
	}
	words := shebang(start)
	switch ext := strings.ToLower(filepath.Ext(file)); {
	case len(words) > 0:
	case ext == ".js" || ext == ".mjs" || ext == ".cjs":
		words = []string{"node"}
	case machineCode(start):
		return []string{file}, nil
	default:
		return nil, fail(NoProgram, ref.String(), "the program of the package is neither a script nor machine code",
			"report the problem to the package's authors", nil)
	}
	interpreter, err := lookup(words[0], "")
	if err != nil {
		return nil, err
	}
	return slices.Concat([]string{interpreter}, words[1:], []string{file}), nil
}

// shebang returns the interpreter and its options from a script's first line. It drops the interpreter's folder,
// because paths differ between machines.
func shebang(start []byte) []string {
	line, _, _ := bytes.Cut(start, []byte("\n"))
	rest, ok := bytes.CutPrefix(line, []byte("#!"))
	if !ok {
		return nil
	}
	words := strings.Fields(string(rest))
	if len(words) > 0 && path.Base(words[0]) == "env" {
		words = words[1:]
		if len(words) > 0 && words[0] == "-S" {
			words = words[1:]
		}
	}
	if len(words) == 0 {
		return nil
	}
	words[0] = path.Base(words[0])
	return words
}

func machineCode(start []byte) bool {
	magic := []string{"\x7fELF", "\xcf\xfa\xed\xfe", "\xca\xfe\xba\xbe", "MZ"}
	return slices.ContainsFunc(magic, func(m string) bool { return bytes.HasPrefix(start, []byte(m)) })
}
