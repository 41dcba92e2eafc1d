package diag

import (
	"fmt"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/ambit-run/ambit/internal/manifest/secretlike"
)

const quoteMost = 60

// Quote returns a manifest value in double quotes for a message. The result is printable and shortened. A value that
// looks like a secret is masked.
func Quote(s string) string {
	if secretlike.Find(s).Found() {
		return `"` + mask + `"`
	}
	if len(s) > quoteMost {
		s = Cut(s, quoteMost) + "…"
	}
	return `"` + Printable(s) + `"`
}

// Cut truncates a string to a maximum number of bytes without splitting a character.
func Cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// ShellWord quotes a string as one word of a command line that a person can copy. Neither the shell nor the terminal
// interprets any part of the word.
func ShellWord(s string) string {
	if !isVisible(s) {
		return escapedWord(s)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("@%+=:,./-_", r) || r == filepath.Separator)
	}) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// escapedWord quotes a string in the $'…' syntax of bash and zsh. Invisible characters are escaped.
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

// Name returns a key of a manifest, or a mask if the key looks like a secret.
func Name(s string) string {
	if secretlike.Find(s).Found() {
		return mask
	}
	return s
}

// Words joins words into a list for a sentence. With the conjunction "or", the list is "a, b or c".
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

// DidYouMean returns a hint with the candidate that [Closest] returns. The hint is empty if no candidate is close.
func DidYouMean(s string, candidates []string) string {
	if best := Closest(s, candidates); best != "" {
		return "did you mean " + Quote(best) + "?"
	}
	return ""
}

// DidYouMean returns the hint of the function [DidYouMean]. To save time, it returns "" if there are more than 200
// errors or more than 200 candidates.
func (r *Reporter) DidYouMean(s string, candidates []string) string {
	if len(candidates) > 200 || r.errors > 200 {
		return ""
	}
	return DidYouMean(s, candidates)
}

// Closest returns the candidate that needs the fewest edits to match a word. Case and separators are ignored. Closest
// returns "" if every candidate needs too many edits. For a word of up to four bytes, one edit is allowed. For a longer
// word, two edits or a third of its length are allowed, whichever is more.
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

// distance returns the smallest number of edits that turn a into b. An edit inserts, deletes or replaces a character,
// or swaps two adjacent characters.
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

// Command is an ambit command about one manifest: "ambit VERB MANIFEST ARG". MANIFEST is not a field, because the code
// that suggests a command does not know the name or path that the user gave. The code that prints the command adds the
// name or path.
type Command struct{ Verb, Arg string }

// After appends the command to a hint. If no manifest is given, the command contains the word PATH instead. If Verb is
// empty, the result is the unchanged hint.
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
