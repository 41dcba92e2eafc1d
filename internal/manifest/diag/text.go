package diag

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ambit-run/ambit/internal/manifest/secretlike"
)

const quoteMost = 60

// Quote formats a manifest's value for a message: quoted, printable, shortened, and
// masked if it looks like a secret.
func Quote(s string) string {
	if secretlike.Find(s).Found() {
		return `"` + mask + `"`
	}
	if len(s) > quoteMost {
		s = Cut(s, quoteMost) + "…"
	}
	return `"` + Printable(s) + `"`
}

// Cut returns the beginning of a text, at most most bytes, without splitting a
// character.
func Cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}

// ShellWord returns a text as one word of a command line to copy. Neither the shell
// nor the terminal interprets anything in it.
func ShellWord(s string) string {
	if !seen(s) {
		return escapedWord(s)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("@%+=:,./-_", r) || r == filepath.Separator)
	}) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// escapedWord writes invisible characters as the escapes of bash and zsh.
func escapedWord(s string) string {
	var b strings.Builder
	b.WriteString("$'")
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch one := s[:size]; {
		case Unseen(r), r == utf8.RuneError:
			for i := range size {
				fmt.Fprintf(&b, `\x%02x`, one[i])
			}
		case r == '\'', r == '\\':
			b.WriteString(`\` + one)
		default:
			b.WriteString(one)
		}
		s = s[size:]
	}
	return b.String() + "'"
}

// Name returns a manifest's key in printable form, masked if it looks like a secret.
func Name(s string) string {
	if secretlike.Find(s).Found() {
		return mask
	}
	return s
}

// Words joins words for a sentence: a, b or c.
func Words(words []string, conjunction string) string {
	switch len(words) {
	case 0:
		return ""
	case 1:
		return words[0]
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " " + conjunction + " " + words[last]
}

// DidYouMean returns a hint with the candidate that s was probably meant to be, or "".
func DidYouMean(s string, candidates []string) string {
	if best := Closest(s, candidates); best != "" {
		return "did you mean " + Quote(best) + "?"
	}
	return ""
}

// Closest returns the candidate that s may be a misspelling of: at most two edits (one
// in a word of four letters), or a third of its length, ignoring case and separators.
func Closest(s string, candidates []string) string {
	if len(s) == 0 || len(s) > 80 {
		return ""
	}
	folded := fold(s)
	best, bestCost := "", max(2, len(s)/3)+1
	if len(s) <= 4 {
		bestCost = 2
	}
	for _, c := range candidates {
		if c == "" || c == s || len(c)-len(s) > bestCost || len(s)-len(c) > bestCost {
			continue
		}
		cost := distance(folded, fold(c))
		if cost >= len(c) {
			continue // nothing in common
		}
		if cost < bestCost {
			best, bestCost = c, cost
		}
	}
	return best
}

var foldSeparators = strings.NewReplacer("-", "", "_", "", ".", "", " ", "")

func fold(s string) string { return foldSeparators.Replace(strings.ToLower(s)) }

// distance counts insertions, deletions, replacements and swaps of neighbours.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	width := len(y) + 1
	rows := [3][]int{make([]int, width), make([]int, width), make([]int, width)}
	for j := range width {
		rows[1][j] = j
	}
	for i := 1; i <= len(x); i++ {
		before, prev, cur := rows[0], rows[1], rows[2]
		cur[0] = i
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				cur[j] = min(cur[j], before[j-2]+1)
			}
		}
		rows = [3][]int{prev, cur, before}
	}
	return rows[1][len(y)]
}

// Sorted returns the words in order, so that messages do not depend on the order of a
// map.
func Sorted(words []string) []string {
	words = slices.Clone(words)
	slices.Sort(words)
	return words
}

// Command is an ambit command about one manifest: "ambit VERB MANIFEST ARG". The
// code that suggests a command does not know the name or path under which the reader
// knows the manifest; the code that prints the command does.
type Command struct{ Verb, Arg string }

// After returns a hint that ends with the command. An empty manifest prints PATH, and
// without a verb there is no command.
func (c Command) After(hint, manifest string) string {
	if c.Verb == "" {
		return hint
	}
	words := []string{hint + ": ambit", c.Verb, "PATH"}
	if manifest != "" {
		words[2] = ShellWord(manifest)
	}
	if c.Arg != "" {
		words = append(words, ShellWord(c.Arg))
	}
	return strings.Join(words, " ")
}
