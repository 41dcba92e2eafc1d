// Package secret finds credentials in text.
//
// There are two kinds of rules. A format describes credentials that can be recognized by themselves, such as
// "ghp_" and 36 letters or digits; formats.txt lists the formats. A name describes the value that follows it,
// such as password=, "api_key": or Authorization: Bearer.
//
// A scan takes time in proportion to the text, whatever the text contains:
//   - One pass searches for the literals of all formats and for the words in names (package literal).
//   - At each literal, the scan compares the parts of the format. A part is a literal or a run of characters of one
//     class. The end of each run is stored, so that a run is read only once for each class.
//   - At each word, the scan reads the rest of the name, the operator and the value. The number of steps is
//     limited, except for the value, which is a run of characters too.
//
// A token ends at the first character that it cannot contain. A scan also covers the text without its invisible
// characters, the text with its escapes decoded, and the data in its base64 and hex. The size of all decoded text
// together is limited to little more than the size of the text.
//
// At the end, all forms of the text are searched for further copies and parts of the values that were found.
//
// Rules are loaded at the first scan.
package secret

import (
	"fmt"
	"strings"
	"sync"

	_ "embed"

	"github.com/ambit-run/ambit/internal/gateway/guard/literal"
)

// Match is the position of a secret in a text. It never contains the secret itself.
type Match struct {
	Rule       string
	Start, End int

	rank int // more specific rules have a lower rank; 0 for a credential that ambit stores
}

// Engine is a compiled rule set.
type Engine struct {
	classes classes
	formats []*format
	runs    []*format // formats without a literal, at most 16; they are tried at long runs of letters and digits
	// runFirst and runLast have one bit for each format in runs. If the format begins with its long part, its bit is set
	// in runFirst for each byte that can begin the format. Otherwise, its bit is set in runLast for each byte that can
	// precede the long part.
	runFirst, runLast [256]uint16
	beside            set // the characters that can precede or follow the long part of a format in runs
	set               *literal.Set
	lead              set    // the characters that can precede the word of a format in a token
	reach             int    // the maximum number of these characters
	words             []word // the formats and names of each word in the set
	scratch           sync.Pool
}

// word lists the formats and names that contain the word. If bounded is set, the word matches only at the beginning of
// a word in the text.
type word struct {
	formats []*format
	names   []*name
	bounded bool
	repeats bool // the word is one repeated character; in a sequence of occurrences, only the first one counts
}

//go:embed formats.txt
var formatList string

// Standard returns the engine with every rule. The first call loads the rules.
var Standard = sync.OnceValue(func() *Engine {
	e, err := build(formatList)
	if err != nil {
		panic(err) // formats.txt is embedded and tested, so it has no errors
	}
	return e
})

func build(list string) (*Engine, error) {
	e := &Engine{}
	index := map[string]int{}
	var words []string
	at := func(w string) *word {
		i, ok := index[w]
		if !ok {
			i = len(words)
			index[w] = i
			words = append(words, w)
			e.words = append(e.words, word{bounded: true, repeats: strings.Count(w, w[:1]) == len(w)})
		}
		return &e.words[i]
	}
	addName := func(n *name) {
		w := at(n.word)
		w.names, w.bounded = append(w.names, n), false
	}
	e.classes.add(&nameClass)
	for _, c := range []*set{&bareClass, &noDouble, &noSingle, &noBacktick, &userClass, &solid, &line} {
		e.classes.add(c)
	}
	for line := range strings.Lines(list) {
		line = strings.TrimRight(line, "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		id, expression, ok := strings.Cut(line, "\t")
		if !ok {
			return nil, fmt.Errorf("formats: the line %q has no tab", line)
		}
		expression, context, named := strings.Cut(expression, "\t")
		formats, err := e.classes.compile(id, expression, named)
		if err != nil {
			return nil, fmt.Errorf("format %s: %w", id, err)
		}
		for _, f := range formats {
			f.rank = len(e.formats) + 1
			e.formats = append(e.formats, f)
			if named {
				addName(&name{context, f.tryAssigned})
				continue
			}
			if len(f.words) == 0 {
				e.addRun(f)
			}
			e.addLead(f)
			for _, text := range f.words {
				w := at(text)
				w.formats = append(w.formats, f)
				w.bounded = w.bounded && !f.inner && f.offset == 0
			}
		}
	}
	for i := range names {
		addName(&names[i])
	}
	var err error
	if e.set, err = literal.New(words, maxWord); err != nil {
		return nil, err
	}
	e.scratch.New = func() any { return &scan{Engine: e} }
	return e, nil
}

// addLead adds the characters before the word of a format to the engine's lead.
func (e *Engine) addLead(f *format) {
	e.reach = max(e.reach, f.offset)
	size := 0
	for _, p := range f.parts {
		if size >= f.offset {
			return
		}
		for b := range 256 {
			if strings.IndexByte(p.text, byte(b)) >= 0 || p.text == "" && e.classes.has(p.class, byte(b)) {
				e.lead[b] = true
			}
		}
		size += p.size()
	}
}

// addRun adds a format without a literal, and the characters that separate its long part from its other parts.
func (e *Engine) addRun(f *format) {
	bit, size := uint16(1)<<len(e.runs), 0
	for _, p := range f.parts {
		for b := range 256 {
			if f.lead == 0 && size == 0 && e.classes.has(p.class, byte(b)) {
				e.runFirst[b] |= bit
			}
			if before := size + p.size(); f.lead > 0 && before == f.lead &&
				(p.text == "" && e.classes.has(p.class, byte(b)) || strings.HasSuffix(p.text, string(rune(b)))) {
				e.runLast[b] |= bit
			}
		}
		size += p.size()
	}
	e.runs = append(e.runs, f)
	for _, p := range f.parts {
		for b := range 256 {
			inText := strings.IndexByte(p.text, byte(b)) >= 0
			inShort := p.text == "" && p.min < minLong && e.classes.has(p.class, byte(b))
			if !alnum[b] && (inText || inShort) {
				e.beside[b] = true
			}
		}
	}
}
