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

// npmSelf is the part of package.json that ambit uses.
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

// bins are the package's programs by name.
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

// nodeProgram returns the command that runs a package's program, chosen as npx would.
func nodeProgram(tree string, ref Ref) ([]string, error) {
	dir := filepath.Join(tree, "node_modules", filepath.FromSlash(ref.Name))
	self, err := readNpmManifest(dir)
	if err != nil {
		return nil, &Error{Code: NoProgram, What: ref.String(), Detail: "its package.json cannot be read", Err: err, Hint: "do not use this package"}
	}
	bins := self.bins()
	names := slices.Sorted(maps.Keys(bins))
	if targets := sorted(slices.Collect(maps.Values(bins))); len(targets) == 1 && ref.Bin == "" {
		names = names[:1] // other names for the same program
	}
	chosen, err := choose(ref, names, path.Base(ref.Name))
	if err != nil {
		return nil, err
	}
	target := path.Clean(bins[chosen])
	if !filepath.IsLocal(filepath.FromSlash(target)) {
		return nil, &Error{Code: NoProgram, What: ref.String(), Detail: "its program " + diag.Quote(chosen) + " is outside the package", Hint: "do not use this package"}
	}
	return runFile(ref, filepath.Join(dir, filepath.FromSlash(target)))
}

// choose returns the requested program, the only program, or the program with the
// package's own name.
func choose(ref Ref, names []string, own string) (string, error) {
	switch {
	case ref.Bin != "" && slices.Contains(names, ref.Bin):
		return ref.Bin, nil
	case ref.Bin != "":
		hint := diag.DidYouMean(ref.Bin, names)
		if hint == "" && len(names) > 0 {
			hint = "it has " + diag.Words(quoted(names), "and")
		}
		return "", &Error{Code: NoProgram, What: ref.String(), Detail: "has no program " + diag.Quote(ref.Bin), Hint: hint}
	case len(names) == 1:
		return names[0], nil
	case slices.Contains(names, own):
		return own, nil
	case len(names) == 0:
		return "", &Error{Code: NoProgram, What: ref.String(), Detail: "has no program", Hint: "it is a library; name a package that has a program"}
	}
	option := "-p " + ref.Name
	if ref.Kind == PyPI {
		option = "--from " + ref.Name
	}
	return "", &Error{
		Code: NoProgram, What: ref.String(), Detail: "has several programs: " + diag.Words(quoted(names), "and"),
		Hint: "say which: " + option + " PROGRAM",
	}
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

// runFile returns the command that runs one file of a tree: with the interpreter in
// its first line, with node for JavaScript without such a line, or directly if it is
// machine code.
func runFile(ref Ref, file string) ([]string, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, &Error{Code: NoProgram, What: ref.String(), Detail: "its program cannot be read", Err: err, Hint: "the package is incomplete; report it to its authors"}
	}
	defer f.Close()
	start := make([]byte, 512)
	n, err := io.ReadFull(f, start)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return nil, &Error{Code: NoProgram, What: ref.String(), Detail: "its program cannot be read", Err: err, Hint: "the package is incomplete; report it to its authors"}
	}
	start = start[:n]
	words := shebang(start)
	switch ext := strings.ToLower(filepath.Ext(file)); {
	case len(words) > 0:
	case ext == ".js" || ext == ".mjs" || ext == ".cjs":
		words = []string{"node"}
	case machineCode(start):
		return []string{file}, nil
	default:
		return nil, &Error{Code: NoProgram, What: ref.String(), Detail: "its program is neither a script nor machine code", Hint: "report it to the package's authors"}
	}
	interpreter, err := lookup(words[0], "")
	if err != nil {
		return nil, err
	}
	return slices.Concat([]string{interpreter}, words[1:], []string{file}), nil
}

// shebang returns the interpreter and options in a script's first line. The
// interpreter is looked up by name, because paths differ between machines.
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
	for _, magic := range []string{"\x7fELF", "\xcf\xfa\xed\xfe", "\xca\xfe\xba\xbe", "MZ"} {
		if bytes.HasPrefix(start, []byte(magic)) {
			return true
		}
	}
	return false
}
