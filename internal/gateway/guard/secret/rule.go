package secret

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"fmt"
	"io"
	"math"
	"regexp"
	"regexp/syntax"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"

	"github.com/ambit-run/ambit/internal/gateway/guard/literal"
)

//go:generate go run -C gitleaks .

//go:embed gitleaks.json.gz
var gitleaks []byte

// Rule is one kind of secret.
type Rule struct {
	ID    string `json:"id"`
	Regex string `json:"regex"`
	// Group is the group of Regex that is the secret; 0 is the first that matched.
	Group int `json:"group"`
	// Entropy is what the secret must exceed, in bits a character.
	Entropy float64 `json:"entropy"`
	Allow   []Allow `json:"allow"`

	// quick, if set, rejects most texts that have the shape.
	quick func(text []byte) bool
}

// Allow lists matches that are no secrets.
type Allow struct {
	// All requires every kind of evidence below, not just one.
	All bool `json:"all"`
	// Target is what Regexes look at: the secret, or the match or line it is in.
	Target    string   `json:"target"`
	Regexes   []string `json:"regexes"`
	StopWords []string `json:"stop_words"`

	once  sync.Once
	regex *regexp.Regexp
	stop  *literal.Set
}

// rule is a Rule made ready for the engine.
type rule struct {
	*Rule
	tree   *syntax.Regexp
	shapes []shape
	value  *value
	reach  int // the longest match, or 0 where there is no longest
	pem    bool

	once     sync.Once
	anchored *regexp.Regexp
}

// regex is compiled when the first text gets as far as needing it.
func (r *rule) regex() *regexp.Regexp {
	r.once.Do(func() { r.anchored = regexp.MustCompile(`\A(?:` + r.tree.String() + `)`) })
	return r.anchored
}

// unpack reads the packed rule set.
func unpack() (rules []*Rule, allow []Allow, err error) {
	z, err := gzip.NewReader(bytes.NewReader(gitleaks))
	if err != nil {
		return nil, nil, err
	}
	text, err := io.ReadAll(z)
	if err != nil {
		return nil, nil, err
	}
	var all struct {
		Allow []Allow `json:"allow"`
		Rules []*Rule `json:"rules"`
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, nil, err
	}
	return all.Rules, all.Allow, nil
}

// allows reports whether the match is harmless.
func (a *Allow) allows(secret, match, line []byte) bool {
	a.once.Do(a.compile)
	target := secret
	switch a.Target {
	case "match":
		target = match
	case "line":
		target = line
	}
	regex := a.regex != nil && a.regex.Match(target)
	stop := a.stop != nil && a.stop.Contains(secret)
	if a.All {
		return (regex || a.regex == nil) && (stop || a.stop == nil)
	}
	return regex || stop
}

func (a *Allow) compile() {
	if len(a.Regexes) > 0 {
		parts := make([]string, len(a.Regexes))
		for i, r := range a.Regexes {
			parts[i] = "(?:" + r + ")"
		}
		a.regex = regexp.MustCompile(strings.Join(parts, "|"))
	}
	if len(a.StopWords) > 0 {
		set, err := literal.New(a.StopWords, math.MaxInt)
		if err != nil {
			panic(fmt.Sprintf("stop words: %v", err))
		}
		a.stop = set
	}
}

// entropy is Shannon's, in bits a byte.
func entropy(b []byte) float64 {
	var count [256]int
	for _, c := range b {
		count[c]++
	}
	e, n := 0.0, float64(len(b))
	for _, k := range count {
		if k > 0 {
			f := float64(k) / n
			e -= f * math.Log2(f)
		}
	}
	return e
}
