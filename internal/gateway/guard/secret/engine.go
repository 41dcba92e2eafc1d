// Package secret finds credentials in text.
//
// The rules are those of gitleaks and our own. gitleaks runs a rule over the whole text
// if the text contains one of its keywords, and keywords are as common as "key". This
// package analyses each rule when it is loaded: every match begins with one of a few
// shapes, and a shape contains a literal. One pass searches for all literals (package
// literal). At each literal the shape is checked byte by byte, then the value after the
// name, and only the remaining candidates are matched with the regular expression,
// anchored and bounded. A text without secrets has almost no candidates.
//
// Entropy, allowlists and stop words are those of gitleaks. Markers such as
// gitleaks:allow have no effect. A text is also scanned without its invisible characters,
// with its escapes resolved, and decoded from base64 and hex, two levels deep.
//
// Everything is loaded at the first scan.
package secret

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"sync"

	"github.com/ambit-run/ambit/internal/gateway/guard/literal"
	"github.com/ambit-run/ambit/internal/gateway/guard/view"
)

// Match is a secret in a text. It never contains the secret itself.
type Match struct {
	Rule       string
	Start, End int

	rank int // the lower, the better it knows what it found
}

// ErrTooHard means that a text needs more work than a scan may cost. It cannot be
// called clean.
var ErrTooHard = errors.New("the text takes too much work to scan")

// Engine is a compiled rule set.
type Engine struct {
	rules   []*rule
	allow   []Allow
	set     *literal.Set
	words   [][]place // of each word of the set
	scratch sync.Pool
}

// place is a shape that a word belongs to; the zero place is a signal that there
// are invisible characters.
type place struct {
	rule  *rule
	index int // of the rule
	shape *shape
}

var standard = sync.OnceValues(func() (*Engine, error) {
	rules, allow, err := unpack()
	if err != nil {
		return nil, fmt.Errorf("the packed rules: %w", err)
	}
	return build(amend(rules), allow)
})

// Standard is the engine with every rule. The first call loads it.
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
		unfill(tree)
		out := &rule{Rule: r, tree: tree, pem: r.ID == "private-key"}
		if tree.Op != syntax.OpAlternate {
			out.value = valueOf(r.Regex)
		}
		var letters set
		if _, longest := size(tree, &letters); longest > 0 {
			out.reach = longest
		}
		if out.shapes = m.shapes(tree); out.shapes == nil {
			return nil, fmt.Errorf("rule %s has no literal to look for", r.ID)
		}
		for i := range out.shapes {
			w := word(out.shapes[i].literal)
			e.words[w] = append(e.words[w], place{out, len(e.rules), &out.shapes[i]})
		}
		e.rules = append(e.rules, out)
	}
	signals, alike := view.Signals()
	for _, s := range signals {
		w := word(s)
		e.words[w] = append(e.words[w], place{})
	}
	set, err := literal.New(words, maxWord, alike...)
	if err != nil {
		return nil, err
	}
	e.set = set
	e.scratch.New = func() any { return &scan{Engine: e, done: make([]int, len(e.rules))} }
	return e, nil
}
