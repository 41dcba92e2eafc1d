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

// Quote puts a value from a manifest into a message: quoted, printable, cut to
// a readable length, and masked where it looks like a secret.
func Quote(s string) string {
	if secretlike.Find(s).Found() {
		return `"` + mask + `"`
	}
	if len(s) > quoteMost {
		s = Cut(s, quoteMost) + "…"
	}
	return `"` + Printable(s) + `"`
}

// Cut is the beginning of a text, at most so many bytes and no half of a character.
func Cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}

// ShellWord is a text as one word of a command line for copying: a shell
// finds nothing in it to carry out, and a terminal nothing to obey.
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

// escapedWord has what people do not see as the escapes of bash and zsh.
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

// Name is a key from a manifest as it may be printed: masked where it looks
// like a secret.
func Name(s string) string {
	if secretlike.Find(s).Found() {
		return mask
	}
	return s
}

// Words lists words for a sentence: a, b or c.
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

// DidYouMean makes a hint of the candidate that s was most likely meant to be,
// or nothing.
func DidYouMean(s string, candidates []string) string {
	if best := Closest(s, candidates); best != "" {
		return "did you mean " + Quote(best) + "?"
	}
	return ""
}

// Closest returns the candidate within reach of a typing mistake from s: at
// most two edits (one in a word of four letters), or a third of its length,
// letter case and separators aside.
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

// Sorted returns the words in order, for messages that must not depend on the
// order of a map.
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
