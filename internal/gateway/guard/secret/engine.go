// Package secret finds credentials in text.
//
// The rules come from gitleaks, and ambit adds some rules. gitleaks matches a rule against the whole text if the text
// contains one of the rule's keywords, which can be as common as "key". This package is faster, because it analyzes
// each rule when the rule is loaded. Every match of a rule begins with one of a few byte patterns, called shapes.
// Each shape contains a literal. A scan has three steps:
//   - One pass searches for the literals of all rules (package literal).
//   - At each literal, the scan checks the shape byte by byte. For an assignment, it also checks the value after the
//     name.
//   - The remaining candidates are matched against the regular expression, anchored and limited in length.
//
// Text without secrets has almost no candidates.
//
// Entropy, allowlists and stop words work as in gitleaks. Markers such as gitleaks:allow have no effect. A scan also
// covers the text without its invisible characters, with its escapes decoded, and decoded from base64 and hex.
// Decoding goes two levels deep.
//
// Rules are loaded at the first scan.
package secret

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"sync"

	"github.com/ambit-run/ambit/internal/gateway/guard/literal"
	"github.com/ambit-run/ambit/internal/gateway/guard/view"
)

// Match is the position of a secret in a text. It never contains the secret itself.
type Match struct {
	Rule       string
	Start, End int

	rank int // more specific rules have a lower rank; 0 for a credential that ambit stores
}

// ErrTooHard means that a scan stopped because the text needs too much work. The rest of the text may contain secrets.
var ErrTooHard = errors.New("the text takes too much work to scan")

// Engine is a compiled rule set.
type Engine struct {
	rules   []*rule
	allow   []Allow
	set     *literal.Set
	words   [][]place // for each word in the set, the shapes that have this word as literal
	scratch sync.Pool
}

// place identifies a shape of a rule. The zero place has no rule: its word can be the beginning of an invisible
// character.
type place struct {
	rule  *rule
	index int // index of the rule
	shape *shape
}

var standard = sync.OnceValues(func() (*Engine, error) {
	rules, allow, err := unpack()
	if err != nil {
		return nil, fmt.Errorf("the packed rules cannot be read: %w", err)
	}
	return build(amend(rules), allow)
})

// Standard returns the engine with every rule. The first call loads the rules.
func Standard() (*Engine, error) { return standard() }

func build(rules []*Rule, allow []Allow) (*Engine, error) {
	e := &Engine{allow: allow}
	m := newMaker()
	index := map[string]int{}
	var words []string
	word := func(w string) int {
		i, ok := index[w]
		if !ok {
			i = len(words)
			index[w] = i
			words = append(words, w)
			e.words = append(e.words, nil)
		}
		return i
	}
	for _, r := range rules {
		tree, err := syntax.Parse(r.Regex, syntax.Perl)
		if err != nil {
			return nil, fmt.Errorf("rule %s: %w", r.ID, err)
		}
		dropPrefix(tree)
		out := &rule{Rule: r, tree: tree, pem: r.ID == "private-key"}
		if tree.Op != syntax.OpAlternate {
			out.value = valueOf(r.Regex)
		}
		var letters set
		if _, longest := matchSize(tree, &letters); longest > 0 {
			out.reach = longest
		}
		if out.shapes = m.shapes(tree); out.shapes == nil {
			return nil, fmt.Errorf("rule %s has no literal to search for", r.ID)
		}
		for i := range out.shapes {
			w := word(out.shapes[i].literal)
			e.words[w] = append(e.words[w], place{out, len(e.rules), &out.shapes[i]})
		}
		e.rules = append(e.rules, out)
	}
	signals, groups := view.Signals()
	for _, s := range signals {
		w := word(s)
		e.words[w] = append(e.words[w], place{})
	}
	set, err := literal.New(words, maxWord, groups...)
	if err != nil {
		return nil, err
	}
	e.set = set
	e.scratch.New = func() any { return &scan{Engine: e, done: make([]int, len(e.rules))} }
	return e, nil
}
